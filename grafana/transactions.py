"""Dashboard of transactions: open, late and hanging ones, outcomes, time-outs, markers, and what producers are refused."""

from grafana.board import BROKER, CLUSTER, RATE, TOPIC, Board, Row, largest
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, number, rows, time_series

UID = "odradek-transactions"

PLACES = f'{CLUSTER},topic=~"$topic"'
AGE_STEPS = [(900, YELLOW), (1200, RED)]
"""transaction.max.timeout.ms, and 5 minutes more."""
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
                "transaction.max.timeout.ms. `odradek transaction hanging` names them.",
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
                "For how long the oldest transaction that is open in a partition has been open.",
                "s",
                Query(f"max(odradek_oldest_open_transaction_seconds{{{BROKER}}})", "age"),
                steps=AGE_STEPS,
            ),
        ),
        (
            4,
            number(
                "Oldest without all markers",
                "Time since the outcome of a transaction was decided, for the oldest one with a partition without a marker.",
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
                "Transactional ids that the coordinators know, with and without a transaction.",
                "short",
                Query(f"sum(odradek_transactional_ids{{{BROKER}}})", "ids"),
            ),
        ),
        (
            4,
            number(
                "Timed out",
                "Transactions that a coordinator aborted after their timeout, in the selected time range.",
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
                "Transactions per second that coordinators aborted without a request of their producers. timeout: open for "
                "longer than their timeout; fenced: another producer with the transactional id started.",
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
                "with isolation level read_committed see the records after this time at the earliest.",
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
                "EndTxn requests per second of each client. The fifteen largest.",
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
                "Offsets from the last stable offset to the high watermark, for the partition of the topic with the most. "
                "It returns to 0 with each transaction; a line that only rises is a transaction that does not end. "
                "The fifteen largest.",
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
                "For how long the oldest transaction that is open in a partition has been open, by broker.",
                "s",
                Query(f"odradek_oldest_open_transaction_seconds{{{BROKER}}}", "{{instance}}"),
                steps=AGE_STEPS,
            ),
        ),
        (
            12,
            time_series(
                "Partitions with open transactions",
                "Partitions in which a transaction is open, and those in which one is late, by broker.",
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
                "Last stable offset lag of each partition. Topic other: the largest of all topics without series.",
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
                "Transactions whose outcome is decided and that are not complete. Markers wait for partitions without a known "
                "leader; last records must be appended to __transaction_state again.",
                "none",
                Query(f"odradek_transactions_completing{{{BROKER}}}", "not complete {{instance}}"),
                Query(
                    f"kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize{{{BROKER}}}",
                    "markers without a leader {{instance}}",
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
                "Markers per second that coordinators sent, and those that a partition did not write and that are sent again.",
                "ops",
                Query(f"sum(rate(odradek_transaction_markers_total{{{BROKER}}}[{RATE}]))", "sent"),
                Query(f"sum(rate(odradek_transaction_marker_failures_total{{{BROKER}}}[{RATE}]))", "not written"),
            ),
        ),
        (
            8,
            time_series(
                "Loading",
                "Partitions of __transaction_state that a broker is loading; meanwhile their transactional ids wait.",
                "none",
                Query(f"odradek_transaction_partitions_loading{{{BROKER}}}", "{{instance}}"),
            ),
        ),
        (
            8,
            time_series(
                "Verification failures",
                "Transactional batches per second that were refused, because no coordinator confirmed their transaction. The "
                "errors CONCURRENT_TRANSACTIONS and NOT_ENOUGH_REPLICAS are retried.",
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
                "Mean time in which a broker got the answer of a coordinator about transactional batches.",
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
                "Errors per second that only transactions cause, by code. CONCURRENT_TRANSACTIONS is part of normal work: the "
                "client retries.",
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
    "Outcomes and age of transactions, what they keep consumers from reading, and the work of coordinators.",
    [NOW, ENDS, READERS, COORDINATOR],
    variables=[TOPIC],
)
