"""The broker as a whole: who it is and what it lets clients do.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

import re

from odradek.config.key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    NONE,
    NONE_YET,
    NOW,
    READ_ONLY,
    STRING,
    VERSION,
    ConfigKey,
    OneOf,
    OnlyDefault,
    Pattern,
    Range,
    Synonym,
)
from odradek.config.loggers import LEVELS, LOGGERS

TITLE = "The broker as a whole: who it is and what it lets clients do."

LOGGER_LEVEL = Pattern(
    rf"({'|'.join(map(re.escape, LOGGERS))})=(?i:{'|'.join(LEVELS)})",
    f"a list of LOGGER=LEVEL, with the loggers of docs/logs.md and the levels {', '.join(LEVELS)}",
)

# fmt: off
KEYS = (
    ConfigKey("node.id", INT, -1, Range(0, None, -1), HIGH, READ_ONLY, NOW,
        "The id of this broker in its cluster. Unset: broker.id, else that of the data directory, else 1.",
        "broker", (Synonym("broker.id"),)),
    ConfigKey("broker.id", INT, -1, Range(0, None, -1), HIGH, READ_ONLY, NOW,
        "The older name of node.id; both may be given if they agree.", "broker", (Synonym("node.id"),)),
    ConfigKey("broker.id.generation.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY, NONE,
        "Whether ZooKeeper hands out ids to brokers that have none (until Kafka 3.9)."),
    ConfigKey("reserved.broker.max.id", INT, 1000, Range(0), MEDIUM, READ_ONLY, NONE,
        "The largest id that a person may give if ids are also generated (until Kafka 3.9)."),
    ConfigKey("broker.rack", STRING, None, None, MEDIUM, READ_ONLY, NONE_YET,
        "The rack or zone of this broker: for the placement of replicas and fetching from the nearest one."),
    ConfigKey("process.roles", LIST, (), OneOf(("broker", "controller")), HIGH, READ_ONLY, NONE,
        "Accepted from KRaft files. The list must contain broker, and also controller unless metadata.store is set, because "
        "this broker cannot join the controllers of a KRaft cluster."),
    ConfigKey("auto.create.topics.enable", BOOLEAN, True, None, HIGH, READ_ONLY, NOW,
        "Whether a Metadata request for a topic that does not exist creates it."),
    ConfigKey("delete.topic.enable", BOOLEAN, True, None, HIGH, READ_ONLY, NOW,
        "Whether topics may be deleted."),
    ConfigKey("log.level", STRING, "INFO", OneOf(tuple(LEVELS), any_case=True), MEDIUM, READ_ONLY, NOW,
        "The level of the log messages that the broker writes: messages less severe than this are dropped. kafka-configs with "
        "--entity-type broker-loggers changes the level of single loggers, or of root, until the next start. Odradek's own "
        "key."),
    ConfigKey("log.levels", LIST, (), LOGGER_LEVEL, MEDIUM, READ_ONLY, NOW,
        "Levels of single loggers, comma-separated, such as odradek.cleaner=DEBUG. A logger without an entry has the level of "
        "its parent. docs/logs.md lists the loggers. Odradek's own key."),
    ConfigKey("log.format", STRING, "text", OneOf(("text", "json")), MEDIUM, READ_ONLY, NOW,
        "The format of log messages on the standard error stream: text for people, or json with one object a line and the "
        "fields that docs/logs.md lists. Odradek's own key."),
    ConfigKey("odradek.max.partitions", INT, 65536, Range(64, 1_048_576), LOW, READ_ONLY, NOW,
        "The most partitions this broker can hold at once; unused room costs no memory. Odradek's own key."),
    ConfigKey("odradek.stop.timeout.ms", INT, 30000, Range(1), LOW, READ_ONLY, NOW,
        "At the ordered stop, how long each kind of process may take to end before it is killed. Odradek's own key."),
    ConfigKey("odradek.stuck.lock.ms", INT, 10000, Range(100), LOW, READ_ONLY, NOW,
        "How long in ms a process may hold the lock of one partition before the supervisor kills and replaces it. Processes "
        "that wait for a device are not killed. Odradek's own key."),
    ConfigKey("odradek.stuck.process.ms", INT, 30000, Range(100), LOW, READ_ONLY, NOW,
        "How long in ms the event loop of a process may make no progress before the supervisor kills and replaces the process. "
        "Processes that wait for a device are not killed. Odradek's own key."),
    ConfigKey("num.partitions", INT, 1, Range(1), MEDIUM, READ_ONLY, NOW,
        "Partitions of a topic that is created without saying how many."),
    ConfigKey("default.replication.factor", INT, 1, Range(1), MEDIUM, READ_ONLY, NOW,
        "Replicas of a topic that is created without saying how many."),
    ConfigKey("message.max.bytes", INT, 1_048_588, Range(0), HIGH, CLUSTER_WIDE, NOW,
        "The largest record batch accepted, as sent (compressed, with its header)."),
    ConfigKey("compression.type", STRING, "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), HIGH, CLUSTER_WIDE, NOW,
        "The codec in which batches are stored; producer keeps what was sent."),
    ConfigKey("compression.gzip.level", INT, -1, Range(1, 9, -1), MEDIUM, CLUSTER_WIDE, NOW,
        "The level of gzip where the broker itself compresses."),
    ConfigKey("compression.lz4.level", INT, 9, Range(1, 17), MEDIUM, CLUSTER_WIDE, NOW,
        "The level of lz4 where the broker itself compresses."),
    ConfigKey("compression.zstd.level", INT, 3, Range(-131_072, 22), MEDIUM, CLUSTER_WIDE, NOW,
        "The level of zstd where the broker itself compresses."),
    ConfigKey("min.insync.replicas", INT, 1, Range(1), HIGH, CLUSTER_WIDE, NOW,
        "The number of in-sync replicas, including the leader, that a write with acks=all needs; with fewer the write is "
        "refused (NOT_ENOUGH_REPLICAS). A partition with fewer replicas than that needs all of its replicas, as in Kafka from "
        "version 3.7 on: with one replica, acks=all waits for the leader alone."),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE, NONE_YET,
        "Whether a replica that is not in sync may lead if no other lives; that may lose records."),
    ConfigKey("unclean.leader.election.interval.ms", LONG, 300_000, Range(1), MEDIUM, READ_ONLY, NONE_YET,
        "How often to look for partitions without leader that an unclean election would help."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, READ_ONLY, NONE_YET,
        "Whether leadership returns to the preferred replicas by itself."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, 300, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How often to look for partitions led by another than the preferred replica."),
    ConfigKey("leader.imbalance.per.broker.percentage", INT, 10, Range(0), HIGH, READ_ONLY, NONE_YET,
        "The share of such partitions on a broker that starts a rebalance (until Kafka 3.9)."),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY, NONE_YET,
        "Whether a stopping broker hands its leaderships over first."),
    ConfigKey("controlled.shutdown.max.retries", INT, 3, None, MEDIUM, READ_ONLY, NONE_YET,
        "How often the hand-over is tried (until Kafka 3.9)."),
    ConfigKey("controlled.shutdown.retry.backoff.ms", LONG, 5000, None, MEDIUM, READ_ONLY, NONE_YET,
        "The pause between two tries of the hand-over (until Kafka 3.9)."),
    ConfigKey("controller.socket.timeout.ms", INT, 30000, Range(1), MEDIUM, READ_ONLY, NONE_YET,
        "How long the controller waits for an answer of a broker."),
    ConfigKey("create.topic.policy.class.name", CLASS, None, None, LOW, READ_ONLY, NOW,
        "A Python class, package.module:Class, that may refuse new topics (docs/policies.md)."),
    ConfigKey("alter.config.policy.class.name", CLASS, None, None, LOW, READ_ONLY, NOW,
        "A Python class, package.module:Class, that may refuse changes of configuration (docs/policies.md)."),
    ConfigKey("config.providers", LIST, (), OnlyDefault(()), LOW, CLUSTER_WIDE, NONE_YET,
        "Java classes that replace ${...} in values: cannot be loaded here."),
    ConfigKey("inter.broker.protocol.version", STRING, None, VERSION, MEDIUM, READ_ONLY, NONE,
        "The version brokers speak among themselves (until Kafka 3.9); here they agree by ApiVersions."),
    ConfigKey("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY, NONE,
        "Whether unreleased versions of APIs are advertised."),
    ConfigKey("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY, NONE,
        "Whether unreleased features may be turned on."),
    ConfigKey("eligible.leader.replicas.enable", BOOLEAN, False, None, HIGH, READ_ONLY, NONE,
        "Whether eligible leader replicas are tracked (KIP-966, a setting until Kafka 3.9)."),
    ConfigKey("server.max.startup.time.ms", LONG, MAX_LONG, Range(0), MEDIUM, READ_ONLY, NONE,
        "How long a start may take before Kafka gives up."),
    ConfigKey("initial.broker.registration.timeout.ms", INT, 60000, None, MEDIUM, READ_ONLY, NONE,
        "How long a broker tries to register with a KRaft controller."),
    ConfigKey("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM, READ_ONLY, NONE,
        "How often a broker reports to a KRaft controller."),
    ConfigKey("broker.session.timeout.ms", INT, 9000, None, MEDIUM, READ_ONLY, NONE,
        "How long a KRaft controller waits for a report before it fences the broker."),
    ConfigKey("telemetry.max.bytes", INT, 1_048_576, Range(1), LOW, READ_ONLY, NONE_YET,
        "The largest push of client metrics accepted (KIP-714)."),
    ConfigKey("metadata.store", STRING, None, OneOf(("embedded", "zookeeper")), HIGH, READ_ONLY, NOW,
        "Where the broker keeps the cluster's metadata: embedded, in the first log directory, or zookeeper, which is not "
        "supported yet: the broker refuses to start with it. Default: zookeeper if zookeeper.connect is set, else embedded. If "
        "this key is not set, the broker also refuses to start with process.roles=broker, because the controllers of such a "
        "cluster keep its metadata. Odradek's own key."),
)
