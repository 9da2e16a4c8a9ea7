"""Dashboard of topics: traffic, writers and readers, distribution over partitions, and replicas."""

from grafana.board import BROKER, CLIENT, CLUSTER, RATE, TOPIC, Board, Row, largest, rate
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, bars, number, rows, time_series

UID = "odradek-topics"

CLUSTER_TOPIC = f'{CLUSTER},topic=~"$topic"'
BROKER_TOPIC = f'{BROKER},topic=~"$topic"'
TO_CLIENTS = Link("Clients of ${__field.labels.topic}", "odradek-clients", {"topic": "topic"})
SELF = Link("Only this topic", UID, {"topic": "Topic"})


def _traffic(name: str) -> str:
    query = f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{name}_total{{{BROKER_TOPIC}}}[{RATE}]))"
    return largest(15, query, "topic")


# fmt: off
COUNTS = Row("The selected topics", 4, [
    number(4, "Topics", "none",
        "Number of selected topics.",
        Query(f"count(kafka_topic_partitions{{{CLUSTER_TOPIC}}})", "topics")),
    number(4, "Partitions", "none",
        "Number of partitions of the selected topics.",
        Query(f"sum(kafka_topic_partitions{{{CLUSTER_TOPIC}}})", "partitions")),
    number(4, "Records kept", "short",
        "Offsets between the log start and the high watermark, summed over the selected topics. With compaction or "
        "control records there are fewer records than offsets.",
        Query(
            f"sum(kafka_topic_partition_current_offset{{{CLUSTER_TOPIC}}}) "
            f"- sum(kafka_topic_partition_oldest_offset{{{CLUSTER_TOPIC}}})",
            "records",
        )),
    number(4, "Stored", "bytes",
        "Bytes on disk of the logs of the selected topics.",
        Query(f"sum(odradek_topic_stored_bytes{{{BROKER_TOPIC}}})", "stored")),
    number(4, "Under-replicated", "none",
        "Partitions with fewer in-sync replicas than replicas.",
        Query(f"sum(kafka_topic_partition_under_replicated_partition{{{CLUSTER_TOPIC}}})", "partitions"),
        steps=[(1, ORANGE)]),
    number(4, "Not on the preferred leader", "none",
        "Partitions whose leader is not their first replica.",
        Query(f"count(kafka_topic_partition_leader_is_preferred{{{CLUSTER_TOPIC}}} == 0) or vector(0)", "partitions"),
        steps=[(1, YELLOW)]),
])

TRAFFIC = Row("Traffic", 9, [
    time_series(8, "Bytes in", "Bps",
        "Bytes of record batches per second from producers, the fifteen topics with the most.",
        Query(_traffic("bytesin"), "{{topic}}"), stacked=True, link=TO_CLIENTS),
    time_series(8, "Bytes out", "Bps",
        "Bytes of record batches per second to consumers, the fifteen topics with the most.",
        Query(_traffic("bytesout"), "{{topic}}"), stacked=True, link=TO_CLIENTS),
    time_series(8, "Records in", "recps",
        "Records appended per second, the fifteen topics with the most.",
        Query(_traffic("messagesin"), "{{topic}}"), stacked=True, link=TO_CLIENTS),
    time_series(8, "Produce requests", "reqps",
        "Produce requests per second that contain the topic, the fifteen topics with the most.",
        Query(_traffic("totalproducerequests"), "{{topic}}")),
    time_series(8, "Fetch requests", "reqps",
        "Fetch requests per second that contain the topic, the fifteen topics with the most.",
        Query(_traffic("totalfetchrequests"), "{{topic}}")),
    time_series(8, "Failed requests", "reqps",
        "Partitions of the topic that Produce and Fetch requests returned with an error, per second.",
        Query(
            "sum by (topic) "
            f"(rate(kafka_server_brokertopicmetrics_failedproducerequests_total{{{BROKER_TOPIC}}}[{RATE}]))",
            "produce {{topic}}",
        ),
        Query(
            "sum by (topic) "
            f"(rate(kafka_server_brokertopicmetrics_failedfetchrequests_total{{{BROKER_TOPIC}}}[{RATE}]))",
            "fetch {{topic}}",
        )),
    time_series(12, "Refused bytes", "Bps",
        "Bytes per second of record batches that the broker refused for any reason, in all topics.",
        Query(
            f'sum(rate(kafka_server_brokertopicmetrics_bytesrejected_total{{{BROKER},topic=""}}[{RATE}]))',
            "refused",
        )),
    time_series(12, "Offsets", "recps",
        "Records per second by which the high watermarks of the topic advance, the fifteen topics with the most. "
        "Computed from offsets, which exist once per cluster.",
        Query(
            largest(
                15,
                rate("kafka_topic_partition_current_offset", "topic", where=CLUSTER_TOPIC),
                "topic",
            ),
            "{{topic}}",
        )),
])


def _mean(name: str, divisor: str) -> str:
    """The mean over the divisor, of the fifteen topics with the most traffic: a ratio of rare requests says little."""
    parts = [
        f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{part}_total{{{BROKER_TOPIC}}}[{RATE}]))"
        for part in (name, divisor)
    ]
    return f"({parts[0]} / ({parts[1]} > 0)) and on (topic) ({_traffic('bytesin')})"


SIZES = Row("Sizes", 8, [
    time_series(8, "Bytes of a record", "bytes",
        "Mean size of an appended record, as stored (compressed), with its part of the batch's header; of the fifteen "
        "topics with the most bytes in.",
        Query(_mean("bytesin", "messagesin"), "{{topic}}")),
    time_series(8, "Records of a Produce request", "short",
        "Mean number of records that a Produce request has for the topic; of the fifteen topics with the most bytes. "
        "Few records in many requests cost CPU time: raise linger.ms of the producers.",
        Query(_mean("messagesin", "totalproducerequests"), "{{topic}}")),
    time_series(8, "Largest batch, of max.message.bytes", "percentunit",
        "The largest appended batch of the topic as a share of max.message.bytes; the fifteen topics with the largest "
        "shares. The broker refuses larger batches.",
        Query(
            largest(
                15,
                f"max by (topic) (odradek_topic_largest_batch_bytes{{{BROKER_TOPIC}}} "
                f"/ odradek_topic_max_message_bytes{{{BROKER_TOPIC}}})",
                "topic",
            ),
            "{{topic}}",
        )),
])

WHO = Row("Who writes and reads", 9, [
    rows(12, "Writers", "bytes",
        "Clients that wrote to the selected topics in the selected time range.",
        {"topic": "Topic", "client_id": "Client", "principal": "Principal"},
        Query(
            "sum by (topic, client_id, principal) (increase(odradek_usage_bytes_in_total"
            f'{{{BROKER_TOPIC},client_id=~"$client",api="Produce"}}[$__range])) > 0',
            "Bytes",
        ),
        Query(
            "sum by (topic, client_id, principal) (increase(odradek_usage_records_in_total"
            f'{{{BROKER_TOPIC},client_id=~"$client",api="Produce"}}[$__range])) > 0',
            "Records",
            unit="short",
        ), links={"Topic": SELF, "Client": Link("The client", "odradek-clients", {"client": "Client"})}),
    rows(12, "Readers", "bytes",
        "Clients that read the selected topics in the selected time range, with or without commits.",
        {"topic": "Topic", "client_id": "Client", "principal": "Principal"},
        Query(
            "sum by (topic, client_id, principal) (increase(odradek_usage_bytes_out_total"
            f'{{{BROKER_TOPIC},client_id=~"$client",api="Fetch"}}[$__range])) > 0',
            "Bytes",
        ),
        Query(
            "sum by (topic, client_id, principal) (increase(odradek_usage_records_out_total"
            f'{{{BROKER_TOPIC},client_id=~"$client",api="Fetch"}}[$__range])) > 0',
            "Records",
            unit="short",
        ), links={"Topic": SELF, "Client": Link("The client", "odradek-clients", {"client": "Client"})}),
])

PARTITIONS = Row("Partitions", 9, [
    bars(8, "Skew", "none",
        "Size of the largest partition of a topic divided by the mean of its partitions. 1 is even; above 2 check the "
        "distribution of keys. The ten most uneven topics.",
        Query(
            f"topk(10, max by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}) "
            f"/ (avg by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}) > 0))",
            "{{topic}}",
        ), steps=[(2, YELLOW), (5, RED)]),
    time_series(8, "Size", "bytes",
        "Bytes on disk of the logs of the fifteen largest topics.",
        Query(largest(15, f"sum by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}})", "topic"), "{{topic}}"),
        stacked=True),
    time_series(8, "Segments", "none",
        "Number of segments of the fifteen topics with the most. A segment that is in use needs open files.",
        Query(largest(15, f"sum by (topic) (kafka_log_log_numlogsegments{{{BROKER_TOPIC}}})", "topic"), "{{topic}}"),
        stacked=True),
    rows(24, "Partitions", "none",
        "Log and replicas of each partition.",
        {"topic": "Topic", "partition": "Partition"},
        Query(f"sum by (topic, partition) (kafka_log_log_size{{{BROKER_TOPIC}}})", "Size", unit="bytes"),
        Query(f"max by (topic, partition) (kafka_log_log_logstartoffset{{{BROKER_TOPIC}}})", "Log start offset"),
        Query(f"max by (topic, partition) (kafka_log_log_logendoffset{{{BROKER_TOPIC}}})", "Log end offset"),
        Query(f"max by (topic, partition) (kafka_topic_partition_leader{{{CLUSTER_TOPIC}}})", "Leader"),
        Query(f"max by (topic, partition) (kafka_topic_partition_replicas{{{CLUSTER_TOPIC}}})", "Replicas"),
        Query(f"max by (topic, partition) (kafka_topic_partition_in_sync_replica{{{CLUSTER_TOPIC}}})", "In sync"),
        links={"Topic": SELF}),
])

BOARD = Board(
    UID,
    "Odradek / Topics",
    "Traffic of topics, the sizes of records and batches, the clients that write and read them, the distribution over "
    "partitions, and whether all replicas are in sync.",
    [COUNTS, TRAFFIC, SIZES, WHO, PARTITIONS],
    variables=[TOPIC, CLIENT],
)
