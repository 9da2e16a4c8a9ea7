"""Dashboard of transactions: open and late transactions, outcomes, timeouts, markers, and errors of producers."""

from grafana.board import BROKER, CLUSTER, RATE, TOPIC, Board, Row, largest, rate
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

# fmt: off
NOW = Row("Now", 4, [
    number(4, "Late transactions", "none",
        "Partitions in which a transaction has been open for more than 5 minutes longer than "
        "transaction.max.timeout.ms. `odradek transaction hanging` finds the transactions that hang.",
        Query(f"sum(kafka_server_replicamanager_partitionswithlatetransactionscount{{{BROKER}}})", "partitions"),
        steps=[(1, RED)]),
    number(4, "Oldest open transaction", "s",
        "Time for which the oldest transaction that is open in a partition has been open.",
        Query(f"max(odradek_oldest_open_transaction_seconds{{{BROKER}}})", "age"), steps=AGE_STEPS),
    number(4, "Oldest without all markers", "s",
        "Time since the outcome of a transaction was decided, for the oldest transaction that is not complete: a "
        "marker or its last record is missing.",
        Query(f"max(odradek_oldest_completing_transaction_seconds{{{BROKER}}})", "age"),
        steps=[(10, YELLOW), (60, RED)]),
    number(4, "Open transactions", "none",
        "Transactional ids with an open transaction.",
        Query(f'sum(odradek_transactional_ids{{{BROKER},state="Ongoing"}})', "transactions")),
    number(4, "Transactional ids", "short",
        "Transactional ids of all coordinators, with and without an open transaction.",
        Query(f"sum(odradek_transactional_ids{{{BROKER}}})", "ids")),
    number(4, "Timed out", "none",
        "Transactions that a coordinator aborted in the selected time range, because they exceeded their timeout.",
        Query(
            f'sum(increase(odradek_transactions_aborted_by_coordinator_total{{{BROKER},reason="timeout"}}[$__range]))',
            "transactions",
        ), steps=[(1, ORANGE)], decimals=0),
])

ENDS = Row("Outcomes", 8, [
    time_series(8, "Completed transactions", "ops",
        "Transactions per second that coordinators completed, by outcome.",
        Query(rate("odradek_transactions_completed_total", "outcome"), "{{outcome}}"),
        stacked=True),
    time_series(8, "Aborted by the coordinator", "ops",
        "Transactions per second that coordinators aborted without a request of their producers. timeout: they were "
        "open for longer than their timeout; fenced: another producer with the same transactional id started.",
        Query(rate("odradek_transactions_aborted_by_coordinator_total", "reason"), "{{reason}}"), stacked=True),
    time_series(8, "Time to complete", "s",
        "Mean time from the durable outcome of a transaction until all its partitions have their markers. Consumers "
        "with isolation level read_committed receive the records of a partition after its marker.",
        Query(
            f"sum by (instance) (rate(odradek_transaction_completion_seconds_sum{{{BROKER}}}[{RATE}])) / sum by "
            f"(instance) (rate(odradek_transaction_completion_seconds_count{{{BROKER}}}[{RATE}]))",
            "{{instance}}",
        )),
    time_series(8, "Transactional ids by state", "short",
        "Transactional ids in each state.",
        Query(f"sum by (state) (odradek_transactional_ids{{{BROKER}}})", "{{state}}"), stacked=True),
    time_series(8, "Requests of transactions", "reqps",
        "Requests of transactional producers and of coordinators per second, by API. InitProducerId is also sent by "
        "idempotent producers without transactions.",
        Query(
            "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
            f'{{{BROKER},request=~"{OF_TRANSACTIONS}"}}[{RATE}]))',
            "{{request}}",
        ), stacked=True),
    time_series(8, "Transactions by client", "reqps",
        "EndTxn requests per second of each client; the fifteen clients with the most.",
        Query(
            largest(
                15,
                f'sum by (client_id) (rate(odradek_usage_requests_total{{{BROKER},api="EndTxn",topic=""}}[{RATE}]))',
                "client_id",
            ),
            "{{client_id}}",
        ), link=TO_CLIENT),
])

READERS = Row("What consumers with read_committed cannot read yet", 8, [
    time_series(12, "Last stable offset lag", "short",
        "Offsets from the last stable offset to the high watermark: for each topic, the partition with the most; the "
        "fifteen topics with the most. The value falls at the end of each transaction; if it only rises, a "
        "transaction does not end.",
        Query(
            largest(15, f"max by (topic) (kafka_cluster_partition_laststableoffsetlag{{{PLACES}}})", "topic"),
            "{{topic}}",
        )),
    time_series(12, "Oldest open transaction", "s",
        "Time for which the oldest transaction that is open in a partition has been open, by broker.",
        Query(f"odradek_oldest_open_transaction_seconds{{{BROKER}}}", "{{instance}}"), steps=AGE_STEPS),
    time_series(12, "Partitions with open transactions", "none",
        "Partitions in which a transaction is open, and partitions in which a transaction is late, by broker.",
        Query(f"odradek_partitions_with_open_transactions{{{BROKER}}}", "open {{instance}}"),
        Query(f"kafka_server_replicamanager_partitionswithlatetransactionscount{{{BROKER}}}", "late {{instance}}")),
    rows(12, "Partitions", "short",
        "Last stable offset lag of each partition. Topic other: the largest value of all topics without series.",
        {"topic": "Topic", "partition": "Partition"},
        Query(f"max by (topic, partition) (kafka_cluster_partition_laststableoffsetlag{{{PLACES}}})", "Lag"),
        links={"Topic": TO_TOPIC}),
])

COORDINATOR = Row("Coordinators and checks", 8, [
    time_series(8, "Transactions without all markers", "none",
        "Transactions whose outcome is decided and that are not complete. Markers to send again: their leader is not "
        "known, refused them or did not respond. Last records: they must be appended to __transaction_state again.",
        Query(f"odradek_transactions_completing{{{BROKER}}}", "not complete {{instance}}"),
        Query(
            f"kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize{{{BROKER}}}",
            "markers to send again {{instance}}",
        ),
        Query(
            f"kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize{{{BROKER}}}",
            "last records {{instance}}",
        )),
    time_series(8, "Markers", "ops",
        "Markers per second that coordinators sent, and markers that a partition did not write, which are sent again.",
        Query(rate("odradek_transaction_markers_total"), "sent"),
        Query(rate("odradek_transaction_marker_failures_total"), "not written")),
    time_series(8, "Loading", "none",
        "Partitions of __transaction_state that a broker is loading. Until they are loaded, requests for their "
        "transactional ids receive COORDINATOR_LOAD_IN_PROGRESS.",
        Query(f"odradek_transaction_partitions_loading{{{BROKER}}}", "{{instance}}")),
    time_series(8, "Verification failures", "ops",
        "Transactional batches per second that were refused, because the coordinator did not confirm their "
        "transaction. Producers retry after the errors CONCURRENT_TRANSACTIONS and NOT_ENOUGH_REPLICAS.",
        Query(
            f"rate(kafka_server_addpartitionstotxnmanager_verificationfailurerate_count{{{BROKER}}}[{RATE}])",
            "{{instance}}",
        )),
    time_series(8, "Time of verification", "ms",
        "Mean time from a question of a broker to a coordinator about transactional batches to the answer.",
        Query(
            "rate(kafka_server_addpartitionstotxnmanager_verificationtimems_sum"
            f"{{{BROKER}}}[{RATE}]) / rate(kafka_server_addpartitionstotxnmanager_verificationtimems_count"
            f"{{{BROKER}}}[{RATE}])",
            "{{instance}}",
        )),
    time_series(8, "Errors of transactions", "ops",
        "Errors per second that only transactions cause, by code. CONCURRENT_TRANSACTIONS also occurs in normal "
        "operation: the client retries.",
        Query(
            "sum by (error) (rate(kafka_network_requestmetrics_errors_total"
            f'{{{BROKER},error=~"{TXN_ERRORS}"}}[{RATE}]))',
            "{{error}}",
        ), stacked=True),
])

BOARD = Board(
    UID,
    "Odradek / Transactions",
    "Outcomes and ages of transactions, records that consumers cannot read yet, and the work of coordinators.",
    [NOW, ENDS, READERS, COORDINATOR],
    variables=[TOPIC],
)
