"""Metrics of logs, of idempotent producers and of transactions. Constants."""

from odradek.metrics.metric import COUNTER, GAUGE, SUMMARY, UNTYPED, rows

PLACE = "topic partition"

STORAGE = (
    *rows(
        GAUGE,
        "log_dir",
        {
            "odradek_recovery_bytes": "Bytes after the recovery points of a log directory, which the last start of the "
            "broker has to check.",
            "odradek_recovered_bytes": "Bytes after the recovery points of a log directory that the last start of the broker "
            "has checked or truncated so far.",
            "odradek_recovery_logs": "Number of logs in a log directory that the last start of the broker has to open.",
            "odradek_recovered_logs": "Number of logs in a log directory that the last start of the broker has opened so far.",
            "odradek_recovery_truncated_bytes": "Bytes that the last start of the broker truncated from the ends of logs, "
            "because they were not a complete record batch.",
            "odradek_log_dir_online": "1 while a log directory is in use, 0 after it has failed.",
            "odradek_log_dir_full_state": "Free space of a log directory. 0: sufficient. 1: below the soft limit, the broker "
            "deletes expired segments sooner. 2: full, the broker refuses producers.",
            "odradek_log_dir_free_bytes": "Free bytes of the file system that holds a log directory.",
            "odradek_log_dir_total_bytes": "Size in bytes of the file system that holds a log directory.",
            "odradek_stray_logs": "Number of logs in a log directory that the broker has set aside as *-stray, because their "
            "topic was deleted and created again. The broker never deletes them.",
            "odradek_stray_log_bytes": "Size in bytes of the files of the logs in a log directory that the broker has set "
            "aside as *-stray.",
        },
    ),
    *rows(
        COUNTER,
        "log_dir",
        {
            "odradek_log_dir_full_total": "Number of times that a log directory became full, so that producers were refused."
        },
    ),
    *rows(
        GAUGE,
        "topic",
        {
            "odradek_topic_stored_bytes": "Size on disk of the logs of a topic's partitions on this broker, in bytes.",
            "odradek_topic_retention_seconds": "Effective retention.ms of a topic, in seconds. -1: no limit.",
            "odradek_topic_retention_bytes": "Effective retention.bytes of a topic: a limit for each partition, in bytes. "
            "-1: no limit.",
        },
    ),
)

PRODUCERS = (
    *rows(
        GAUGE,
        "",
        {
            "odradek_producer_state_bytes": "Bytes of shared memory that hold the state of idempotent producers.",
            "odradek_producer_state_max_bytes": "Maximum size in bytes of the state of idempotent producers "
            "(odradek.producer.state.max.bytes).",
            "odradek_producer_state_producers": "Number of idempotent producers whose state the partitions of this broker "
            "hold. A producer counts once for each partition that it writes to.",
        },
    ),
    *rows(
        COUNTER,
        "reason",
        {
            "odradek_producers_evicted_total": "Idempotent producers whose state a partition evicted before "
            "producer.id.expiration.ms, by reason. client: evicted for a new producer of the same client, which "
            "is at its limit; silent: evicted for a new producer after 15 minutes without a write, because the "
            "partition or the memory is full; early: expired early because the memory is nearly full; start: "
            "dropped at a start that restored more producers than fit.",
            "odradek_producer_batches_refused_total": "Record batches of new idempotent producers that were refused "
            "with NOT_ENOUGH_REPLICAS, by the limit that was reached. client: "
            "odradek.producer.state.client.max.percent; partition: "
            "odradek.producer.state.partition.max.producers; memory: odradek.producer.state.max.bytes.",
        },
    ),
)

TRANSACTIONS = (
    *rows(
        GAUGE,
        PLACE,
        {
            "kafka_cluster_partition_laststableoffsetlag": "Number of offsets from the last stable offset of a "
            "partition led by this broker to its high watermark. Consumers with isolation level read_committed do not "
            'receive these records yet. With topic="other": the largest value of all topics without series.',
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_partitions_with_open_transactions": "Number of partitions led by this broker in which a "
            "transaction is open.",
            "odradek_oldest_open_transaction_seconds": "Time in seconds for which the oldest transaction that is "
            "open in a partition led by this broker has been open; 0 without one. A lower bound if the transaction began "
            "before the reporter process started.",
            "kafka_server_replicamanager_partitionswithlatetransactionscount": "Number of partitions led by this "
            "broker in which a transaction has been open for more than 5 minutes longer than transaction.max.timeout.ms. "
            "The age is measured from the time at which the reporter process first saw the transaction open, so the number "
            "is 0 after a start of this process. Kafka measures from the producer's last write to the partition.",
        },
    ),
    *rows(
        GAUGE,
        "state",
        {
            "odradek_transactional_ids": "Number of transactional ids in a state, of those that this broker "
            "coordinates. Ongoing: the id has an open transaction.",
        },
    ),
    *rows(
        GAUGE,
        "",
        {
            "odradek_transactions_completing": "Number of transactions of this coordinator that are decided, but not complete: "
            "markers in partitions, or the last record in __transaction_state, are missing.",
            "odradek_oldest_completing_transaction_seconds": "Time in seconds since the outcome of a transaction was "
            "decided, for the oldest transaction that is not complete; 0 without one.",
            "odradek_transaction_partitions_loading": "Number of partitions of __transaction_state that this broker "
            "is loading; requests for their transactional ids are answered with COORDINATOR_LOAD_IN_PROGRESS.",
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize": "Number of "
            "transaction markers that this broker as the coordinator sends again, because the leader of their partition is "
            "not known, refused them or did not respond.",
            "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize": "Number of "
            "transactions whose markers are written, but whose last record could not be appended to __transaction_state. "
            "This broker as the coordinator appends it again.",
            "kafka_server_transaction_coordinator_metrics_partition_load_time_max": "Longest time in milliseconds to "
            "load a partition of __transaction_state, of the loads of the last 30 seconds. Absent without a load.",
            "kafka_server_transaction_coordinator_metrics_partition_load_time_avg": "Mean time in milliseconds to "
            "load a partition of __transaction_state, of the loads of the last 30 seconds. Absent without a load.",
        },
    ),
    *rows(
        COUNTER,
        "outcome",
        {
            "odradek_transactions_completed_total": "Transactions that this broker as the coordinator has completed, "
            "by outcome: committed or aborted.",
        },
    ),
    *rows(
        COUNTER,
        "reason",
        {
            "odradek_transactions_aborted_by_coordinator_total": "Transactions that this broker as the coordinator "
            "has aborted without a request of their producers, by reason. timeout: the transaction was open for longer than "
            "its timeout; fenced: another producer with the same transactional id started. "
            "odradek_transactions_completed_total counts them too.",
        },
    ),
    *rows(
        COUNTER,
        "",
        {
            "odradek_transaction_markers_total": "Transaction markers that this broker as the coordinator has sent "
            "to partitions, including repetitions.",
            "odradek_transaction_marker_failures_total": "Transaction markers that a partition did not write, and "
            "that this broker as the coordinator sends again.",
            "odradek_transactional_ids_expired_total": "Transactional ids that this broker as the coordinator has "
            "removed, because they were not used for transactional.id.expiration.ms.",
        },
    ),
    *rows(
        SUMMARY,
        "quantile",
        {
            "odradek_transaction_completion_seconds": "Time in seconds from the durable outcome of a transaction to "
            "its completion, when all partitions have their markers. Only the sum and the count are measured, no quantiles.",
            "kafka_server_addpartitionstotxnmanager_verificationtimems": "Time in milliseconds for which Produce requests "
            "to this broker waited until a transaction coordinator answered whether their partitions belong to a "
            "transaction. Only the sum and the count are measured, no quantiles.",
        },
    ),
    *rows(
        UNTYPED,
        "",
        {
            "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count": "Number of transactional batches that "
            "were refused since the broker's start, because the transaction coordinator did not confirm that the partition "
            "is in a transaction of the producer, or did not answer. Producers retry some of them. Never decreases.",
        },
    ),
)
