"""Dashboard of transactions: open and late transactions, outcomes, timeouts, markers, and errors of producers."""

from grafana.board import BROKER, CLUSTER, RATE, TOPIC, Board, Row, largest
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, number, rows, time_series

UID = "odradek-transactions"

PLACES = f'{CLUSTER},topic=~"$topic"'
AGE_STEPS = [(900, YELLOW), (1200, RED)]
"""The default of transaction.max.timeout.ms, and 5 minutes more, in seconds."""
OF_TRANSACTIONS = "InitProducerId|AddPartitionsToTxn|AddOffsetsToTxn|TxnOffsetCommit|EndTxn|WriteTxnMarkers"
TXN_ERRORS = (
    "INVALID_TXN_STATE|INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_PRODUCER_ID_MAPPING|TRANSACTION_ABORTABLE|"
    "CONCURRENT_TRANSACTIONS|TRANSACTIONAL_ID_AUTHORIZATION_FAILED|INVALID_TRANSACTION_TIMEOUT|"
    "TRANSACTION_COORDINATOR_FENCED|UNSTABLE_OFFSET_COMMIT"
)
TO_TOPIC = Link("The topic", "odradek-topics", {"topic": "Topic"})
TO_CLIENT = Link("Client ${__field.labels.client_id}", "odradek-clients", {"client": "client_id"})

NOW = Row(
    "Now",
    4,
    [
        (
            4,
            number(
                "Late transactions",
                "Partitions in which a transaction has been open for more than 5 minutes longer than "
                "transaction.max.timeout.ms. `odradek transaction hanging` finds the transactions that hang.",
                "none",
                Query(
                    f"sum(kafka_server_replicamanager_partitionswithlatetransactionscount{{{BROKER}}})", "partitions"
                ),
                steps=[(1, RED)],
            ),
        ),
        (
            4,
            number(
                "Oldest open transaction",
                "Time for which the oldest transaction that is open in a partition has been open.",
                "s",
                Query(f"max(odradek_oldest_open_transaction_seconds{{{BROKER}}})", "age"),
                steps=AGE_STEPS,
            ),
        ),
        (
            4,
            number(
                "Oldest without all markers",
                "Time since the outcome of a transaction was decided, for the oldest transaction that is not complete: a "
                "marker or its last record is missing.",
                "s",
                Query(f"max(odradek_oldest_completing_transaction_seconds{{{BROKER}}})", "age"),
                steps=[(10, YELLOW), (60, RED)],
            ),
        ),
        (
            4,
            number(
                "Open transactions",
                "Transactional ids with an open transaction.",
                "none",
                Query(f'sum(odradek_transactional_ids{{{BROKER},state="Ongoing"}})', "transactions"),
            ),
        ),
        (
            4,
            number(
                "Transactional ids",
                "Transactional ids of all coordinators, with and without an open transaction.",
                "short",
                Query(f"sum(odradek_transactional_ids{{{BROKER}}})", "ids"),
            ),
        ),
        (
            4,
            number(
                "Timed out",
                "Transactions that a coordinator aborted in the selected time range, because they exceeded their timeout.",
                "none",
                Query(
                    f'sum(increase(odradek_transactions_aborted_by_coordinator_total{{{BROKER},reason="timeout"}}[$__range]))',
                    "transactions",
                ),
                steps=[(1, ORANGE)],
                decimals=0,
            ),
        ),
    ],
)

ENDS = Row(
    "Outcomes",
    8,
    [
        (
            8,
            time_series(
                "Completed transactions",
                "Transactions per second that coordinators completed, by outcome.",
                "ops",
                Query(
                    f"sum by (outcome) (rate(odradek_transactions_completed_total{{{BROKER}}}[{RATE}]))", "{{outcome}}"
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Aborted by the coordinator",
                "Transactions per second that coordinators aborted without a request of their producers. timeout: they were "
                "open for longer than their timeout; fenced: another producer with the same transactional id started.",
                "ops",
                Query(
                    f"sum by (reason) (rate(odradek_transactions_aborted_by_coordinator_total{{{BROKER}}}[{RATE}]))",
                    "{{reason}}",
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Time to complete",
                "Mean time from the durable outcome of a transaction until all its partitions have their markers. Consumers "
                "with isolation level read_committed receive the records of a partition after its marker.",
                "s",
                Query(
                    f"sum by (instance) (rate(odradek_transaction_completion_seconds_sum{{{BROKER}}}[{RATE}])) / sum by "
                    f"(instance) (rate(odradek_transaction_completion_seconds_count{{{BROKER}}}[{RATE}]))",
                    "{{instance}}",
                ),
            ),
        ),
        (
            8,
            time_series(
                "Transactional ids by state",
                "Transactional ids in each state.",
                "short",
                Query(f"sum by (state) (odradek_transactional_ids{{{BROKER}}})", "{{state}}"),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Requests of transactions",
                "Requests of transactional producers and of coordinators per second, by API. InitProducerId is also sent by "
                "idempotent producers without transactions.",
                "reqps",
                Query(
                    "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                    f'{{{BROKER},request=~"{OF_TRANSACTIONS}"}}[{RATE}]))',
                    "{{request}}",
                ),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Transactions by client",
                "EndTxn requests per second of each client; the fifteen clients with the most.",
                "reqps",
                Query(
                    largest(
                        15,
                        f'sum by (client_id) (rate(odradek_usage_requests_total{{{BROKER},api="EndTxn",topic=""}}[{RATE}]))',
                        "client_id",
                    ),
                    "{{client_id}}",
                ),
                link=TO_CLIENT,
            ),
        ),
    ],
)

READERS = Row(
    "What consumers with read_committed cannot read yet",
    8,
    [
        (
            12,
            time_series(
                "Last stable offset lag",
                "Offsets from the last stable offset to the high watermark: for each topic, the partition with the most; the "
                "fifteen topics with the most. The value falls at the end of each transaction; if it only rises, a transaction "
                "does not end.",
                "short",
                Query(
                    largest(15, f"max by (topic) (kafka_cluster_partition_laststableoffsetlag{{{PLACES}}})", "topic"),
                    "{{topic}}",
                ),
            ),
        ),
        (
            12,
            time_series(
                "Oldest open transaction",
                "Time for which the oldest transaction that is open in a partition has been open, by broker.",
                "s",
                Query(f"odradek_oldest_open_transaction_seconds{{{BROKER}}}", "{{instance}}"),
                steps=AGE_STEPS,
            ),
        ),
        (
            12,
            time_series(
                "Partitions with open transactions",
                "Partitions in which a transaction is open, and partitions in which a transaction is late, by broker.",
                "none",
                Query(f"odradek_partitions_with_open_transactions{{{BROKER}}}", "open {{instance}}"),
                Query(
                    f"kafka_server_replicamanager_partitionswithlatetransactionscount{{{BROKER}}}", "late {{instance}}"
                ),
            ),
        ),
        (
            12,
            rows(
                "Partitions",
                "Last stable offset lag of each partition. Topic other: the largest value of all topics without series.",
                "short",
                {"topic": "Topic", "partition": "Partition"},
                Query(f"max by (topic, partition) (kafka_cluster_partition_laststableoffsetlag{{{PLACES}}})", "Lag"),
                links={"Topic": TO_TOPIC},
            ),
        ),
    ],
)

COORDINATOR = Row(
    "Coordinators and checks",
    8,
    [
        (
            8,
            time_series(
                "Transactions without all markers",
                "Transactions whose outcome is decided and that are not complete. Markers to send again: their leader is not "
                "known, refused them or did not respond. Last records: they must be appended to __transaction_state again.",
                "none",
                Query(f"odradek_transactions_completing{{{BROKER}}}", "not complete {{instance}}"),
                Query(
                    f"kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize{{{BROKER}}}",
                    "markers to send again {{instance}}",
                ),
                Query(
                    f"kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize{{{BROKER}}}",
                    "last records {{instance}}",
                ),
            ),
        ),
        (
            8,
            time_series(
                "Markers",
                "Markers per second that coordinators sent, and markers that a partition did not write, which are sent again.",
                "ops",
                Query(f"sum(rate(odradek_transaction_markers_total{{{BROKER}}}[{RATE}]))", "sent"),
                Query(f"sum(rate(odradek_transaction_marker_failures_total{{{BROKER}}}[{RATE}]))", "not written"),
            ),
        ),
        (
            8,
            time_series(
                "Loading",
                "Partitions of __transaction_state that a broker is loading. Until they are loaded, requests for their "
                "transactional ids receive COORDINATOR_LOAD_IN_PROGRESS.",
                "none",
                Query(f"odradek_transaction_partitions_loading{{{BROKER}}}", "{{instance}}"),
            ),
        ),
        (
            8,
            time_series(
                "Verification failures",
                "Transactional batches per second that were refused, because the coordinator did not confirm their "
                "transaction. Producers retry after the errors CONCURRENT_TRANSACTIONS and NOT_ENOUGH_REPLICAS.",
                "ops",
                Query(
                    f"rate(kafka_server_addpartitionstotxnmanager_verificationfailurerate_count{{{BROKER}}}[{RATE}])",
                    "{{instance}}",
                ),
            ),
        ),
        (
            8,
            time_series(
                "Time of verification",
                "Mean time from a question of a broker to a coordinator about transactional batches to the answer.",
                "ms",
                Query(
                    "rate(kafka_server_addpartitionstotxnmanager_verificationtimems_sum"
                    f"{{{BROKER}}}[{RATE}]) / rate(kafka_server_addpartitionstotxnmanager_verificationtimems_count"
                    f"{{{BROKER}}}[{RATE}])",
                    "{{instance}}",
                ),
            ),
        ),
        (
            8,
            time_series(
                "Errors of transactions",
                "Errors per second that only transactions cause, by code. CONCURRENT_TRANSACTIONS also occurs in normal "
                "operation: the client retries.",
                "ops",
                Query(
                    "sum by (error) (rate(kafka_network_requestmetrics_errors_total"
                    f'{{{BROKER},error=~"{TXN_ERRORS}"}}[{RATE}]))',
                    "{{error}}",
                ),
                stacked=True,
            ),
        ),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Transactions",
    "Outcomes and ages of transactions, records that consumers cannot read yet, and the work of coordinators.",
    [NOW, ENDS, READERS, COORDINATOR],
    variables=[TOPIC],
)
