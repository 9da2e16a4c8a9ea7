"""Dashboard of clusters: controller, replicas, in-sync changes, lag and traffic of followers, sessions in ZooKeeper."""

from grafana.board import BROKER, CLUSTER, RATE, TOPIC, Board, Row, largest, rate
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Placed, Query, number, time_series

UID = "odradek-replication"

MANAGER = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
SESSION = "kafka_server_sessionexpirelistener_zookeeper"
TRAFFIC = "kafka_server_brokertopicmetrics_"


def _each(metric: str, legend: str) -> Query:
    """A gauge of each broker."""
    return Query(f"{metric}{{{BROKER}}}", f"{{{{instance}}}} {legend}")


def _rate(metric: str, legend: str, labels: str = "") -> Query:
    """A counter of each broker, per second."""
    return Query(f"sum by (instance) (rate({metric}{{{BROKER}{labels}}}[{RATE}]))", f"{{{{instance}}}} {legend}")


def _count(title: str, description: str, expr: str, colour: str = RED) -> Placed:
    """A number that should be 0."""
    return number(4, title, "none", description, Query(expr, title.lower()), steps=[(1, colour)])


# fmt: off
STATE = Row("State", 5, [
    number(4, "Active controllers", "none",
        "Brokers that act as the controller. A cluster has exactly one.",
        Query(f"sum({CONTROLLER}activecontrollercount{{{CLUSTER}}})", "controllers"),
        steps=[(0, RED), (1, GREEN), (2, RED)]),
    _count("Offline partitions",
        "Partitions without a live leader: clients can neither write nor read them.",
        f"max({CONTROLLER}offlinepartitionscount{{{CLUSTER}}})"),
    _count("Under min ISR",
        "Partitions with fewer in-sync replicas than min.insync.replicas: they refuse producers with acks=all.",
        f"sum({MANAGER}underminisrpartitioncount{{{CLUSTER}}})"),
    _count("Under-replicated",
        "Partitions with fewer in-sync replicas than replicas.",
        f"sum({MANAGER}underreplicatedpartitions{{{CLUSTER}}})", ORANGE),
    _count("Not registered",
        "Brokers that run, but are not registered in ZooKeeper: other brokers take over their partitions.",
        f"count(odradek_broker_registered{{{CLUSTER}}} == 0) or vector(0)"),
    _count("Unclean elections",
        "Elections of a leader that was not in sync, in the selected time range: acknowledged records may be lost.",
        f"sum(increase(kafka_controller_controllerstats_uncleanleaderelections_total{{{CLUSTER}}}[$__range]))"),
])

REPLICAS = Row("Replicas", 8, [
    time_series(12, "Partitions by role", "none",
        "Partitions that each broker leads, and all partitions with a replica on it.",
        _each(f"{MANAGER}leadercount", "leads"),
        _each(f"{MANAGER}partitioncount", "has")),
    time_series(12, "Partitions with too few replicas in sync", "none",
        "By the broker that leads them: fewer than all replicas, exactly min.insync.replicas, and fewer than "
        "min.insync.replicas.",
        _each(f"{MANAGER}underreplicatedpartitions", "under-replicated"),
        _each(f"{MANAGER}atminisrpartitioncount", "at min ISR"),
        _each(f"{MANAGER}underminisrpartitioncount", "under min ISR")),
    time_series(12, "Changes of in-sync replicas", "cps",
        "Followers that leave and join the in-sync replicas, and changes that the controller did not accept, per "
        "second, by the broker that leads. Followers that leave and join again and again are overloaded.",
        _rate(f"{MANAGER}isrshrinks_total", "leave"),
        _rate(f"{MANAGER}isrexpands_total", "join"),
        _rate(f"{MANAGER}failedisrupdates_total", "not accepted")),
    time_series(12, "Offline replicas", "none",
        "Replicas of each broker whose log or log directory has failed: they neither serve nor replicate.",
        _each(f"{MANAGER}offlinereplicacount", "offline"), steps=[(1, RED)]),
    time_series(12, "Undecided change of in-sync replicas", "s",
        "Age of the oldest proposed change of in-sync replicas that the controller has not decided.",
        _each("odradek_isr_change_pending_seconds", "pending"), steps=[(60, ORANGE)]),
    time_series(12, "Imbalance and reassignment", "none",
        "Partitions that another broker than their preferred replica leads, as the controller counts them, and "
        "partitions whose replicas a reassignment changes.",
        Query(f"max({CONTROLLER}preferredreplicaimbalancecount{{{CLUSTER}}})", "not led by the preferred replica"),
        Query(f"sum({MANAGER}reassigningpartitions{{{CLUSTER}}})", "reassigned")),
    time_series(12, "Elections", "cps",
        "Changes of the live brokers that the controller executed, per second, and their mean time.",
        Query(
            rate("kafka_controller_controllerstats_leaderelectionrateandtimems_count", where=CLUSTER),
            "changes of the live brokers",
        )),
])

FOLLOWERS = Row("Followers", 8, [
    time_series(12, "Largest lag", "none",
        "The largest number of records by which a partition that a broker follows is behind its leader's high "
        "watermark.",
        _each("kafka_server_replicafetchermanager_maxlag", "lag")),
    time_series(12, "Lag by partition", "none",
        "The ten followed partitions with the largest lag in the displayed time range, in records.",
        Query(
            largest(
                10,
                f'kafka_server_fetcherlagmetrics_consumerlag{{{BROKER},topic=~"$topic"}}',
                "instance, topic, partition",
            ),
            "{{instance}} {{topic}}-{{partition}}",
        )),
    time_series(12, "Replication traffic", "Bps",
        "Bytes of record batches per second that each broker replicates from leaders, and sends to followers. "
        "Clients' traffic is not included.",
        _rate(f"{TRAFFIC}replicationbytesin_total", "in", ',topic=""'),
        _rate(f"{TRAFFIC}replicationbytesout_total", "out", ',topic=""')),
    time_series(12, "Throttled replication", "Bps",
        "Bytes per second of replicas that are not in sync and to which the replication throttles apply, as the "
        "leader sends them and as the follower fetches them.",
        Query(rate("odradek_throttled_replication_bytes_total", "instance, role"), "{{instance}} {{role}}")),
    time_series(12, "Reassignment traffic", "Bps",
        "Bytes of record batches per second that replicas receive, and leaders send to them, because a reassignment "
        "adds the replicas. Replication traffic contains them.",
        _rate(f"{TRAFFIC}reassignmentbytesin_total", "in", ',topic=""'),
        _rate(f"{TRAFFIC}reassignmentbytesout_total", "out", ',topic=""')),
    time_series(12, "Partitions that are not fetched", "none",
        "Followed partitions that a broker does not fetch because of an error; its log names each.",
        _each("kafka_server_replicafetchermanager_failedpartitionscount", "not fetched"), steps=[(1, RED)]),
    time_series(12, "Logs that lost their ends", "none",
        "Partitions whose log lost records at its end when a broker loaded it: those that are not in sync again, and "
        "those that the broker leads without these records.",
        _each("odradek_lost_tail_partitions", "not in sync again"),
        _each("odradek_lost_tail_led_partitions", "led without them"), steps=[(1, RED)]),
])

SESSIONS = Row("ZooKeeper", 7, [
    time_series(12, "Without a connection", "s",
        "Time since each broker lost the connection to ZooKeeper; 0 while it is connected. After the session timeout "
        "other brokers take over its partitions.",
        _each("odradek_zookeeper_disconnected_seconds", "disconnected"), steps=[(10, YELLOW), (30, RED)]),
    time_series(12, "Lost connections and sessions", "cps",
        "Lost connections to ZooKeeper, and sessions that ended, per second.",
        _rate(f"{SESSION}disconnects_total", "connections"),
        _rate(f"{SESSION}expires_total", "sessions")),
])

BOARD = Board(
    UID,
    "Odradek / Clusters and replication",
    "Controller, replicas, changes of in-sync replicas, lag and traffic of followers, and sessions in ZooKeeper.",
    [STATE, REPLICAS, FOLLOWERS, SESSIONS],
    variables=[TOPIC],
)
