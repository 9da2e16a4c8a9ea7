"""The broker as a whole: its identity, processes, topics and policies.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

import re

from odradek import codecs
from odradek.config.key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Pattern,
    Range,
    Synonym,
)
from odradek.config.loggers import LEVELS, LOGGERS

TITLE = "The broker as a whole: its identity, processes, topics and policies."

LOGGER_LEVEL = Pattern(
    rf"({'|'.join(map(re.escape, LOGGERS))})=(?i:{'|'.join(LEVELS)})",
    f"a list of LOGGER=LEVEL, with the loggers of docs/operate/logs.md and the levels {', '.join(LEVELS)}",
)

# fmt: off
KEYS = (
    ConfigKey("node.id", INT, -1, Range(0, None, -1), HIGH, READ_ONLY,
        "The id of this broker in its cluster. Default: broker.id, else the id that the data directory contains, else "
        "1 (with ZooKeeper: a generated id).",
        "broker", (Synonym("broker.id"),)),
    ConfigKey("broker.id", INT, -1, Range(0, None, -1), HIGH, READ_ONLY,
        "The older name of node.id. If both keys are set, they must be equal.", "broker", (Synonym("node.id"),)),
    ConfigKey("broker.id.generation.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Whether ZooKeeper generates an id for a broker of a cluster that has none, at its first start. Removed in Kafka 4.0."),
    ConfigKey("reserved.broker.max.id", INT, 1000, Range(0), MEDIUM, READ_ONLY,
        "The largest broker id that an operator may set if ZooKeeper also generates ids. Removed in Kafka 4.0."),
    ConfigKey("broker.rack", STRING, None, None, MEDIUM, READ_ONLY,
        "The rack or zone of this broker. It decides where replicas are placed and which replica a consumer reads "
        "from."),
    ConfigKey("auto.create.topics.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Whether the broker creates a topic that a Metadata request names and that does not exist."),
    ConfigKey("delete.topic.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Whether clients can delete topics. If false, the broker refuses DeleteTopics requests."),
    ConfigKey("log.level", STRING, "INFO", OneOf(tuple(LEVELS), any_case=True), MEDIUM, CLUSTER_WIDE,
        "The minimum level of log messages: the broker drops messages that are less severe. kafka-configs with "
        "--entity-type broker-loggers changes the level of single loggers, or of root, until the next start. Odradek's "
        "own key."),
    ConfigKey("log.levels", LIST, (), LOGGER_LEVEL, MEDIUM, CLUSTER_WIDE,
        "Levels of single loggers, comma-separated, such as odradek.cleaner=DEBUG. A logger without an entry has the "
        "level of its parent. docs/operate/logs.md lists the loggers. Odradek's own key."),
    ConfigKey("log.format", STRING, "text", OneOf(("text", "json", "journal")), MEDIUM, READ_ONLY,
        "The format of log messages on the standard error stream: text, or json with one object per line. With journal, a "
        "broker that systemd runs sends its messages to the journal with named fields; otherwise it is like text. "
        "docs/operate/logs.md lists the fields. Odradek's own key."),
    ConfigKey("odradek.max.partitions", INT, 65536, Range(64, 1_048_576), LOW, READ_ONLY,
        "The maximum number of partitions that this broker can hold. Unused slots take no memory. Odradek's own key."),
    ConfigKey("odradek.stop.timeout.ms", INT, 30000, Range(1), LOW, READ_ONLY,
        "When the broker stops, the time in ms that each kind of process has to end before the supervisor kills it. "
        "Odradek's own key."),
    ConfigKey("odradek.controller.eligible", BOOLEAN, True, None, LOW, READ_ONLY,
        "Whether this broker can become the controller of a cluster with ZooKeeper."),
    ConfigKey("odradek.stuck.lock.ms", INT, 10000, Range(100), LOW, READ_ONLY,
        "The time in ms that a process may hold the lock of one partition before the supervisor kills and replaces it. "
        "Processes that wait for a device are not killed. Odradek's own key."),
    ConfigKey("odradek.stuck.process.ms", INT, 30000, Range(100), LOW, READ_ONLY,
        "The time in ms that the event loop of a process may make no progress before the supervisor kills and replaces "
        "the process. Processes that wait for a device are not killed. Odradek's own key."),
    ConfigKey("num.partitions", INT, 1, Range(1), MEDIUM, READ_ONLY,
        "The number of partitions of a new topic if the request that creates it does not specify a number."),
    ConfigKey("default.replication.factor", INT, 1, Range(1), MEDIUM, READ_ONLY,
        "The number of replicas of a new topic if the request that creates it does not specify a number."),
    ConfigKey("message.max.bytes", INT, 1_048_588, Range(0), HIGH, CLUSTER_WIDE,
        "The maximum size in bytes of a record batch as the client sends it (compressed, with its header). The broker "
        "refuses larger batches with MESSAGE_TOO_LARGE."),
    ConfigKey("compression.type", STRING, "producer",
        OneOf(tuple(codecs.COMPRESSION_TYPES)), HIGH, CLUSTER_WIDE,
        "The codec in which the broker stores record batches. producer: the broker stores each batch as the producer "
        "sent it."),
    ConfigKey("compression.gzip.level", INT, -1, Range(1, 9, -1), MEDIUM, CLUSTER_WIDE,
        "The gzip level for batches that the broker itself compresses. -1 is the default level of the library."),
    ConfigKey("compression.lz4.level", INT, 9, Range(1, 17), MEDIUM, CLUSTER_WIDE,
        "The lz4 level for batches that the broker itself compresses."),
    ConfigKey("compression.zstd.level", INT, 3, Range(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The zstd level for batches that the broker itself compresses."),
    ConfigKey("min.insync.replicas", INT, 1, Range(1), HIGH, CLUSTER_WIDE,
        "The number of in-sync replicas, including the leader, that a write with acks=all requires. With fewer, the "
        "broker refuses the write with NOT_ENOUGH_REPLICAS. A partition that has fewer replicas than this number "
        "requires all of them, as in Kafka since 3.7: with one replica, acks=all waits for the leader only."),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, None, HIGH, CLUSTER_WIDE,
        "Whether a replica that is not in sync can become the leader if no in-sync replica is alive. Records may be "
        "lost."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Whether the preferred replicas automatically become leaders again."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, 300, Range(1), HIGH, READ_ONLY,
        "The time in seconds between two checks for partitions whose leader is not the preferred replica."),
    ConfigKey("leader.imbalance.per.broker.percentage", INT, 10, Range(0), HIGH, READ_ONLY,
        "The percentage of a broker's partitions whose leader is not the preferred replica at which leaders are moved "
        "back. Removed in Kafka 4.0."),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Whether a broker that stops first moves the leadership of its partitions to other brokers."),
    ConfigKey("controlled.shutdown.max.retries", INT, 3, None, MEDIUM, READ_ONLY,
        "How many times a broker that stops tries to move its leaderships. Removed in Kafka 4.0."),
    ConfigKey("controlled.shutdown.retry.backoff.ms", LONG, 5000, None, MEDIUM, READ_ONLY,
        "The time in ms between two attempts of a stopping broker to move its leaderships. Removed in Kafka 4.0."),
    ConfigKey("controller.socket.timeout.ms", INT, 30000, Range(1), MEDIUM, READ_ONLY,
        "The time in ms that the controller waits for a response of a broker."),
    ConfigKey("create.topic.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "A Python class, as package.module:Class, that can refuse new topics. See docs/operate/policies.md."),
    ConfigKey("alter.config.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "A Python class, as package.module:Class, that can refuse configuration changes. See docs/operate/policies.md."),
    ConfigKey("config.providers", LIST, (), None, LOW, CLUSTER_WIDE,
        "Names of providers that replace ${NAME:PATH:KEY} in values of the configuration file when the broker starts. "
        "config.providers.NAME.class is the class of each: Kafka's FileConfigProvider, DirectoryConfigProvider or "
        "EnvVarConfigProvider."),
    ConfigKey("metadata.store", STRING, None, OneOf(("embedded", "zookeeper")), HIGH, READ_ONLY,
        "Where the broker keeps the metadata of the cluster. embedded: in the first log directory. zookeeper: in "
        "ZooKeeper, see docs/operate/cluster.md. Default: zookeeper if zookeeper.connect is set, else embedded. "
        "Without this key, the broker also refuses to start with process.roles=broker, because the controllers of such "
        "a cluster keep its metadata. Odradek's own key."),
)
