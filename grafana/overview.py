"""The overview dashboard: health, traffic, latency, the largest users, and disk space."""

from grafana.board import BROKER, CLUSTER, RATE, Board, Row, largest, rate
from grafana.clients import both_ways
from grafana.panels import GRAY, GREEN, ORANGE, RED, YELLOW, Link, Query, bars, number, rows, states, time_series

UID = "odradek-overview"

BROKER_STATES = {3: ("running", GREEN), 7: ("stopping", ORANGE)}
"""The states in which a broker serves metrics, by Kafka's numbers (org.apache.kafka.metadata.BrokerState)."""

TO_TOPIC = Link("Topic ${__field.labels.topic}", "odradek-topics", {"topic": "topic"})
TO_GROUP = Link("Group ${__field.labels.consumergroup}", "odradek-groups", {"consumergroup": "consumergroup"})
TO_CLIENT = Link("Client ${__field.labels.client_id}", "odradek-clients", {"client": "client_id"})

# fmt: off
HEALTH = Row("Health", 4, [
    number(4, "Broker", "none",
        "The state of the broker: running, or shutting down.",
        Query(f"kafka_server_kafkaserver_brokerstate{{{BROKER}}}", "{{instance}}"), names=BROKER_STATES),
    number(4, "Up for", "s",
        "Time since the broker started. A restart of a child process does not reset it.",
        Query(f"time() - odradek_boot_time_seconds{{{BROKER}}}", "{{instance}}"), steps=[(0, ORANGE), (600, GREEN)]),
    number(4, "Version", "none",
        "The version of the running broker.",
        Query(f"odradek_build_info{{{BROKER}}}", "{{version}}"), steps=[(0, GRAY)], text=True),
    number(4, "Processes down", "none",
        "Processes of the broker that are not running now.",
        Query(f"count(odradek_process_up{{{BROKER}}} == 0) or vector(0)", "down"), steps=[(1, RED)]),
    number(4, "Restarts", "none",
        "Child processes that died and were restarted in the selected time range.",
        Query(f"sum(increase(odradek_process_restarts_total{{{BROKER}}}[$__range]))", "restarts"),
        steps=[(0.5, ORANGE), (3, RED)], decimals=0),
    number(4, "Alerts", "none",
        "Odradek alerts that are firing now (rules in deploy/prometheus/rules).",
        Query(f'count(ALERTS{{alertname=~"Odradek.+",alertstate="firing",{CLUSTER}}}) or vector(0)', "alerts"),
        steps=[(1, RED)]),
    number(4, "Brokers", "none",
        "Brokers in the cluster.",
        Query(f"max(kafka_brokers{{{CLUSTER}}})", "brokers"), steps=[(0, RED), (1, GREEN)]),
    number(4, "Active controllers", "none",
        "Brokers that act as the controller. A cluster has exactly one.",
        Query(f"sum(kafka_controller_kafkacontroller_activecontrollercount{{{CLUSTER}}})", "controllers"),
        steps=[(0, RED), (1, GREEN), (2, RED)]),
    number(4, "Offline partitions", "none",
        "Partitions without a leader: clients can neither write nor read them.",
        Query(f"max(kafka_controller_kafkacontroller_offlinepartitionscount{{{CLUSTER}}})", "partitions"),
        steps=[(1, RED)]),
    number(4, "Under-replicated", "none",
        "Partitions with fewer in-sync replicas than replicas.",
        Query(f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{CLUSTER}}})", "partitions"),
        steps=[(1, ORANGE)]),
    number(4, "Failed log directories", "none",
        "Log directories that are offline after a device error. They stay offline until the broker restarts.",
        Query(f"sum(kafka_log_logmanager_offlinelogdirectorycount{{{BROKER}}})", "directories"), steps=[(1, RED)]),
    number(4, "Largest lag", "s",
        "The largest lag in seconds of a consumer group that has members, and the group: the age of the oldest "
        "uncommitted record.",
        Query(
            f"topk(1, max by (job, consumergroup) (odradek_consumergroup_lag_seconds{{{CLUSTER}}}) "
            f"and on (job, consumergroup) kafka_consumergroup_members{{{CLUSTER}}} > 0)",
            "{{consumergroup}}",
        ), steps=[(60, YELLOW), (300, RED)], named=True),
])

TRAFFIC = Row("Traffic", 8, [
    time_series(8, "Bytes of records", "Bps",
        "Bytes of record batches per second: in from producers, out to consumers.",
        Query(f'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{{{BROKER},topic=""}}[{RATE}]))', "in"),
        Query(f'sum(rate(kafka_server_brokertopicmetrics_bytesout_total{{{BROKER},topic=""}}[{RATE}]))', "out")),
    time_series(8, "Records", "recps",
        "Records appended per second.",
        Query(
            f'sum by (instance) (rate(kafka_server_brokertopicmetrics_messagesin_total{{{BROKER},topic=""}}[{RATE}]))',
            "{{instance}}",
        )),
    time_series(8, "Connections", "none",
        "Open connections by listener.",
        Query(f"sum by (listener) (kafka_server_socket_server_metrics_connection_count{{{BROKER}}})", "{{listener}}"),
        stacked=True),
    time_series(12, "Requests", "reqps",
        "Requests answered per second, for the ten most frequent APIs.",
        Query(
            largest(
                10,
                rate("kafka_network_requestmetrics_requests_total", "request"),
                "request",
            ),
            "{{request}}",
        )),
    time_series(12, "Errors", "cps",
        "Error codes in responses per second, without NONE: the ten most frequent. Clients retry after many of these "
        "errors.",
        Query(
            largest(
                10,
                "sum by (request, error) "
                f'(rate(kafka_network_requestmetrics_errors_total{{{BROKER},error!="NONE"}}[{RATE}]))',
                "request",
                "error",
            ),
            "{{request}} {{error}}",
        )),
])


def _split(request: str) -> list[Query]:
    phases = {"requestqueue": "queue", "local": "local", "remote": "remote", "responsesend": "send"}
    return [
        Query(
            f'max(kafka_network_requestmetrics_{phase}timems{{{BROKER},request="{request}",quantile="0.99"}})', legend
        )
        for phase, legend in phases.items()
    ]


LATENCY = Row("Latency", 8, [
    time_series(8, "Response time", "ms",
        "99th percentile of the time from the arrival of a request to the end of its response, over the last five "
        "minutes, for the eight slowest APIs. A Fetch request waits for records as long as its client allows "
        "(fetch.max.wait.ms).",
        Query(
            largest(
                8,
                f'max by (request) (kafka_network_requestmetrics_totaltimems{{{BROKER},quantile="0.99"}})',
                "request",
            ),
            "{{request}}",
        )),
    time_series(8, "Produce, by phase", "ms",
        "99th percentile of each phase of Produce requests, over the last five minutes. queue: arrival to execution; "
        "local: execution; remote: waiting for a flush or for replicas; send: sending the response.",
        *_split("Produce")),
    time_series(8, "Fetch, by phase", "ms",
        "99th percentile of each phase of Fetch requests, over the last five minutes. queue: arrival to execution; "
        "local: execution; remote: waiting for records; send: sending the response.",
        *_split("Fetch")),
])

WHO = Row("Largest users", 9, [
    bars(8, "Clients by bytes", "Bps",
        "The ten clients with the most bytes per second, in and out together.",
        Query(f"topk(10, {both_ways(BROKER, 'client_id')})", "{{client_id}}"), link=TO_CLIENT),
    bars(8, "Topics by bytes in", "Bps",
        "The ten topics with the most bytes of records per second from producers.",
        Query(
            "topk(10, sum by (topic) "
            f'(rate(kafka_server_brokertopicmetrics_bytesin_total{{{BROKER},topic!=""}}[{RATE}])))',
            "{{topic}}",
        ), link=TO_TOPIC),
    bars(8, "Groups by lag", "s",
        "The ten consumer groups with the largest lag in seconds.",
        Query(
            f"topk(10, max by (consumergroup) (odradek_consumergroup_lag_seconds{{{CLUSTER}}}))",
            "{{consumergroup}}",
        ), steps=[(60, YELLOW), (300, RED)], link=TO_GROUP),
])

CAPACITY = Row("Capacity", 8, [
    time_series(8, "Free space", "percentunit",
        "Free fraction of the file system of each log directory.",
        Query(
            f"odradek_log_dir_free_bytes{{{BROKER}}} / odradek_log_dir_total_bytes{{{BROKER}}}",
            "{{instance}} {{log_dir}}",
        ), high=1),
    time_series(8, "Workers busy", "percentunit",
        "Fraction of the time in which the event loop of each worker is busy. Near 100% its clients wait.",
        Query(f"rate(odradek_worker_busy_seconds_total{{{BROKER}}}[{RATE}])", "{{instance}} worker {{worker}}"),
        steps=[(0.7, YELLOW), (0.9, RED)], high=1),
    states(8, "Processes",
        "Whether each process of the broker is up.",
        Query(f"odradek_process_up{{{BROKER}}}", "{{process}} {{ordinal}}"),
        {1: ("up", GREEN), 0: ("down", RED)}),
    rows(24, "Topics", "bytes",
        "The ten topics with the most bytes on disk.",
        {"topic": "Topic"},
        Query(f"topk(10, sum by (topic) (odradek_topic_stored_bytes{{{BROKER}}}))", "Stored"),
        links={"Topic": Link("Open the topic", "odradek-topics", {"topic": "Topic"})}),
])

BOARD = Board(
    UID,
    "Odradek / Overview",
    "Health, traffic, latency, the largest users, and disk space of the broker.",
    [HEALTH, TRAFFIC, LATENCY, WHO, CAPACITY],
)
