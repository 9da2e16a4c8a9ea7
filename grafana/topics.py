"""Dashboard of topics: traffic, writers and readers, distribution over partitions, and replicas."""

from grafana.board import BROKER, CLIENT, CLUSTER, RATE, TOPIC, Board, Row, largest
from grafana.panels import ORANGE, RED, YELLOW, Link, Query, bars, number, rows, time_series

UID = "odradek-topics"

CLUSTER_TOPIC = f'{CLUSTER},topic=~"$topic"'
BROKER_TOPIC = f'{BROKER},topic=~"$topic"'
TO_CLIENTS = Link("Clients of ${__field.labels.topic}", "odradek-clients", {"topic": "topic"})
SELF = Link("Only this topic", UID, {"topic": "Topic"})


def _traffic(name: str) -> str:
    query = f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{name}_total{{{BROKER_TOPIC}}}[{RATE}]))"
    return largest(15, query, "topic")


COUNTS = Row(
    "The selected topics",
    4,
    [
        (
            4,
            number(
                "Topics",
                "Number of selected topics.",
                "none",
                Query(f"count(kafka_topic_partitions{{{CLUSTER_TOPIC}}})", "topics"),
            ),
        ),
        (
            4,
            number(
                "Partitions",
                "Number of partitions of the selected topics.",
                "none",
                Query(f"sum(kafka_topic_partitions{{{CLUSTER_TOPIC}}})", "partitions"),
            ),
        ),
        (
            4,
            number(
                "Records kept",
                "Offsets between the log start and the high watermark, summed over the selected topics. With compaction "
                "or control records there are fewer records than offsets.",
                "short",
                Query(
                    f"sum(kafka_topic_partition_current_offset{{{CLUSTER_TOPIC}}}) "
                    f"- sum(kafka_topic_partition_oldest_offset{{{CLUSTER_TOPIC}}})",
                    "records",
                ),
            ),
        ),
        (
            4,
            number(
                "Stored",
                "Bytes on disk of the logs of the selected topics.",
                "bytes",
                Query(f"sum(odradek_topic_stored_bytes{{{BROKER_TOPIC}}})", "stored"),
            ),
        ),
        (
            4,
            number(
                "Under-replicated",
                "Partitions with fewer in-sync replicas than replicas.",
                "none",
                Query(f"sum(kafka_topic_partition_under_replicated_partition{{{CLUSTER_TOPIC}}})", "partitions"),
                steps=[(1, ORANGE)],
            ),
        ),
        (
            4,
            number(
                "Not on the preferred leader",
                "Partitions whose leader is not their first replica.",
                "none",
                Query(
                    f"count(kafka_topic_partition_leader_is_preferred{{{CLUSTER_TOPIC}}} == 0) or vector(0)",
                    "partitions",
                ),
                steps=[(1, YELLOW)],
            ),
        ),
    ],
)

TRAFFIC = Row(
    "Traffic",
    9,
    [
        (
            8,
            time_series(
                "Bytes in",
                "Bytes of record batches per second from producers, the fifteen topics with the most.",
                "Bps",
                Query(_traffic("bytesin"), "{{topic}}"),
                stacked=True,
                link=TO_CLIENTS,
            ),
        ),
        (
            8,
            time_series(
                "Bytes out",
                "Bytes of record batches per second to consumers, the fifteen topics with the most.",
                "Bps",
                Query(_traffic("bytesout"), "{{topic}}"),
                stacked=True,
                link=TO_CLIENTS,
            ),
        ),
        (
            8,
            time_series(
                "Records in",
                "Records appended per second, the fifteen topics with the most.",
                "recps",
                Query(_traffic("messagesin"), "{{topic}}"),
                stacked=True,
                link=TO_CLIENTS,
            ),
        ),
        (
            8,
            time_series(
                "Produce requests",
                "Produce requests per second that contain the topic, the fifteen topics with the most.",
                "reqps",
                Query(_traffic("totalproducerequests"), "{{topic}}"),
            ),
        ),
        (
            8,
            time_series(
                "Fetch requests",
                "Fetch requests per second that contain the topic, the fifteen topics with the most.",
                "reqps",
                Query(_traffic("totalfetchrequests"), "{{topic}}"),
            ),
        ),
        (
            8,
            time_series(
                "Failed requests",
                "Partitions of the topic that Produce and Fetch requests returned with an error, per second.",
                "reqps",
                Query(
                    "sum by (topic) "
                    f"(rate(kafka_server_brokertopicmetrics_failedproducerequests_total{{{BROKER_TOPIC}}}[{RATE}]))",
                    "produce {{topic}}",
                ),
                Query(
                    "sum by (topic) "
                    f"(rate(kafka_server_brokertopicmetrics_failedfetchrequests_total{{{BROKER_TOPIC}}}[{RATE}]))",
                    "fetch {{topic}}",
                ),
            ),
        ),
        (
            12,
            time_series(
                "Refused bytes",
                "Bytes per second of record batches that the broker refused for any reason, in all topics.",
                "Bps",
                Query(
                    f'sum(rate(kafka_server_brokertopicmetrics_bytesrejected_total{{{BROKER},topic=""}}[{RATE}]))',
                    "refused",
                ),
            ),
        ),
        (
            12,
            time_series(
                "Offsets",
                "Records per second by which the high watermarks of the topic advance, the fifteen topics with the most. "
                "Computed from offsets, which exist once per cluster.",
                "recps",
                Query(
                    largest(
                        15,
                        f"sum by (topic) (rate(kafka_topic_partition_current_offset{{{CLUSTER_TOPIC}}}[{RATE}]))",
                        "topic",
                    ),
                    "{{topic}}",
                ),
            ),
        ),
    ],
)


def _mean(name: str, divisor: str) -> str:
    """The mean over the divisor, of the fifteen topics with the most traffic: a ratio of rare requests says little."""
    parts = [
        f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{part}_total{{{BROKER_TOPIC}}}[{RATE}]))"
        for part in (name, divisor)
    ]
    return f"({parts[0]} / ({parts[1]} > 0)) and on (topic) ({_traffic('bytesin')})"


SIZES = Row(
    "Sizes",
    8,
    [
        (
            8,
            time_series(
                "Bytes of a record",
                "Mean size of an appended record, as stored (compressed), with its part of the batch's header; of the fifteen "
                "topics with the most bytes in.",
                "bytes",
                Query(_mean("bytesin", "messagesin"), "{{topic}}"),
            ),
        ),
        (
            8,
            time_series(
                "Records of a Produce request",
                "Mean number of records that a Produce request has for the topic; of the fifteen topics with the most bytes. "
                "Few records in many requests cost CPU time: raise linger.ms of the producers.",
                "short",
                Query(_mean("messagesin", "totalproducerequests"), "{{topic}}"),
            ),
        ),
        (
            8,
            time_series(
                "Largest batch, of max.message.bytes",
                "The largest appended batch of the topic as a share of max.message.bytes; the fifteen topics with the largest "
                "shares. The broker refuses larger batches.",
                "percentunit",
                Query(
                    largest(
                        15,
                        f"max by (topic) (odradek_topic_largest_batch_bytes{{{BROKER_TOPIC}}} "
                        f"/ odradek_topic_max_message_bytes{{{BROKER_TOPIC}}})",
                        "topic",
                    ),
                    "{{topic}}",
                ),
            ),
        ),
    ],
)

WHO = Row(
    "Who writes and reads",
    9,
    [
        (
            12,
            rows(
                "Writers",
                "Clients that wrote to the selected topics in the selected time range.",
                "bytes",
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
                ),
                links={"Topic": SELF, "Client": Link("The client", "odradek-clients", {"client": "Client"})},
            ),
        ),
        (
            12,
            rows(
                "Readers",
                "Clients that read the selected topics in the selected time range, with or without commits.",
                "bytes",
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
                ),
                links={"Topic": SELF, "Client": Link("The client", "odradek-clients", {"client": "Client"})},
            ),
        ),
    ],
)

PARTITIONS = Row(
    "Partitions",
    9,
    [
        (
            8,
            bars(
                "Skew",
                "Size of the largest partition of a topic divided by the mean of its partitions. 1 is even; above 2 check "
                "the distribution of keys. The ten most uneven topics.",
                "none",
                Query(
                    f"topk(10, max by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}) "
                    f"/ (avg by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}}) > 0))",
                    "{{topic}}",
                ),
                steps=[(2, YELLOW), (5, RED)],
            ),
        ),
        (
            8,
            time_series(
                "Size",
                "Bytes on disk of the logs of the fifteen largest topics.",
                "bytes",
                Query(largest(15, f"sum by (topic) (kafka_log_log_size{{{BROKER_TOPIC}}})", "topic"), "{{topic}}"),
                stacked=True,
            ),
        ),
        (
            8,
            time_series(
                "Segments",
                "Number of segments of the fifteen topics with the most. A segment that is in use needs open files.",
                "none",
                Query(
                    largest(15, f"sum by (topic) (kafka_log_log_numlogsegments{{{BROKER_TOPIC}}})", "topic"),
                    "{{topic}}",
                ),
                stacked=True,
            ),
        ),
        (
            24,
            rows(
                "Partitions",
                "Log and replicas of each partition.",
                "none",
                {"topic": "Topic", "partition": "Partition"},
                Query(f"sum by (topic, partition) (kafka_log_log_size{{{BROKER_TOPIC}}})", "Size", unit="bytes"),
                Query(
                    f"max by (topic, partition) (kafka_log_log_logstartoffset{{{BROKER_TOPIC}}})", "Log start offset"
                ),
                Query(f"max by (topic, partition) (kafka_log_log_logendoffset{{{BROKER_TOPIC}}})", "Log end offset"),
                Query(f"max by (topic, partition) (kafka_topic_partition_leader{{{CLUSTER_TOPIC}}})", "Leader"),
                Query(f"max by (topic, partition) (kafka_topic_partition_replicas{{{CLUSTER_TOPIC}}})", "Replicas"),
                Query(
                    f"max by (topic, partition) (kafka_topic_partition_in_sync_replica{{{CLUSTER_TOPIC}}})", "In sync"
                ),
                links={"Topic": SELF},
            ),
        ),
    ],
)

BOARD = Board(
    UID,
    "Odradek / Topics",
    "Traffic of topics, the sizes of records and batches, the clients that write and read them, the distribution over "
    "partitions, and whether all replicas are in sync.",
    [COUNTS, TRAFFIC, SIZES, WHO, PARTITIONS],
    variables=[TOPIC, CLIENT],
)
