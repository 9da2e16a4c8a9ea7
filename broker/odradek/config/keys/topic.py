"""Configuration of a topic. A key that is not set for a topic has the value of the corresponding broker key.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek import codecs
from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    STRING,
    ConfigKey,
    OneOf,
    Pattern,
    Range,
    Synonym,
)

TITLE = "Configuration of a topic. A key that is not set for a topic has the value of the corresponding broker key."

THROTTLED_REPLICAS = Pattern(
    r"([0-9]+:[0-9]+)?", "* or a comma-separated list of partition:broker, such as 0:1,0:2,1:1", alone="*"
)

# fmt: off
KEYS = (
    ConfigKey("cleanup.policy", LIST, ("delete",), OneOf(("compact", "delete")), MEDIUM, CLUSTER_WIDE,
        "How the broker limits the size of logs. delete: it deletes old segments. compact: it keeps the last record of "
        "each key. Both can be combined.", "topic", (Synonym("log.cleanup.policy"),)),
    ConfigKey("compression.type", STRING, "producer",
        OneOf(tuple(codecs.COMPRESSION_TYPES)), MEDIUM, CLUSTER_WIDE,
        "The codec in which the broker stores record batches. producer: the broker stores each batch as the producer "
        "sent it.",
        "topic", (Synonym("compression.type"),)),
    ConfigKey("compression.gzip.level", INT, -1, Range(1, 9, -1), MEDIUM, CLUSTER_WIDE,
        "The gzip level for batches that the broker itself compresses. -1 is the default level of the library.",
        "topic", (Synonym("compression.gzip.level"),)),
    ConfigKey("compression.lz4.level", INT, 9, Range(1, 17), MEDIUM, CLUSTER_WIDE,
        "The lz4 level for batches that the broker itself compresses.", "topic", (Synonym("compression.lz4.level"),)),
    ConfigKey("compression.zstd.level", INT, 3, Range(-131_072, 22), MEDIUM, CLUSTER_WIDE,
        "The zstd level for batches that the broker itself compresses.", "topic", (Synonym("compression.zstd.level"),)),
    ConfigKey("delete.retention.ms", LONG, 86_400_000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The time in ms that a tombstone stays in the log after its compaction, so that consumers can read it.",
        "topic", (Synonym("log.cleaner.delete.retention.ms"),)),
    ConfigKey("file.delete.delay.ms", LONG, 60000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The time in ms from the removal of a segment from the log to the deletion of its files. Until then the files "
        "have the suffix .deleted.",
        "topic", (Synonym("log.segment.delete.delay.ms"),)),
    ConfigKey("flush.messages", LONG, MAX_LONG, Range(1), MEDIUM, CLUSTER_WIDE,
        "When a partition has this number of records that are not synced to the disk, the broker syncs them before it "
        "acknowledges the write. 1: every acknowledged record is on the disk. Producers share syncs.",
        "topic", (Synonym("log.flush.interval.messages"),)),
    ConfigKey("flush.ms", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms that records stay unsynced. The broker then syncs the log; no request waits for it.",
        "topic", (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))),
    ConfigKey("follower.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS, MEDIUM, CLUSTER_WIDE,
        "The followers that follower.replication.throttled.rate limits while they are not in sync, as comma-separated "
        "partition:broker (the broker is the follower), or * for all.", "topic"),
    ConfigKey("leader.replication.throttled.replicas", LIST, (), THROTTLED_REPLICAS, MEDIUM, CLUSTER_WIDE,
        "The leaders that leader.replication.throttled.rate limits when they send records to followers that are not in sync, "
        "as comma-separated partition:broker (the broker is the leader), or * for all.", "topic"),
    ConfigKey("index.interval.bytes", INT, 4096, Range(0), MEDIUM, CLUSTER_WIDE,
        "The number of bytes of records between two entries of the offset index.",
        "topic", (Synonym("log.index.interval.bytes"),)),
    ConfigKey("max.compaction.lag.ms", LONG, MAX_LONG, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms that a record of a compacted topic stays uncompacted. The log rolls its active segment "
        "after this time, even if no records are appended.", "topic", (Synonym("log.cleaner.max.compaction.lag.ms"),)),
    ConfigKey("max.message.bytes", INT, 1_048_588, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum size in bytes of a record batch as the client sends it (compressed, with its header). The broker "
        "refuses larger batches with MESSAGE_TOO_LARGE.",
        "topic", (Synonym("message.max.bytes"),)),
    ConfigKey("message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms by which the producer's timestamp of a record may be later than the broker's clock. "
        "The broker refuses the batch with INVALID_TIMESTAMP.",
        "topic", (Synonym("log.message.timestamp.after.max.ms"),)),
    ConfigKey("message.timestamp.before.max.ms", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms by which the producer's timestamp of a record may be earlier than the broker's clock. "
        "The broker refuses the batch with INVALID_TIMESTAMP.",
        "topic", (Synonym("log.message.timestamp.before.max.ms"),)),
    ConfigKey("message.timestamp.type", STRING, "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")), MEDIUM, CLUSTER_WIDE,
        "The timestamp of a stored record. CreateTime: the producer's. LogAppendTime: the broker's time of the append.",
        "topic", (Synonym("log.message.timestamp.type"),)),
    ConfigKey("message.timestamp.difference.max.ms", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms by which the producer's timestamp of a record may be earlier or later than the "
        "broker's clock. Removed in Kafka 4.0.",
        "topic", (Synonym("log.message.timestamp.difference.max.ms"),)),
    ConfigKey("message.downconversion.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE,
        "Whether the broker converts records to the older formats that old consumers need. Removed in Kafka 4.0.",
        "topic", (Synonym("log.message.downconversion.enable"),)),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), MEDIUM, CLUSTER_WIDE,
        "The broker compacts a log when at least this fraction of its bytes is not compacted yet.",
        "topic", (Synonym("log.cleaner.min.cleanable.ratio"),)),
    ConfigKey("min.compaction.lag.ms", LONG, 0, Range(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time in ms that a record stays in the log before it can be compacted.",
        "topic", (Synonym("log.cleaner.min.compaction.lag.ms"),)),
    ConfigKey("min.insync.replicas", INT, 1, Range(1), MEDIUM, CLUSTER_WIDE,
        "The number of in-sync replicas, including the leader, that a write with acks=all requires. With fewer, the "
        "broker refuses the write with NOT_ENOUGH_REPLICAS. A partition that has fewer replicas than this number "
        "requires all of them, as in Kafka since 3.7: with one replica, acks=all waits for the leader only.",
        "topic", (Synonym("min.insync.replicas"),)),
    ConfigKey("odradek.retention.exact", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether retention.ms also applies to single records. true: every check (log.retention.check.interval.ms) "
        "moves the log start offset to the first record that is not older than retention.ms; files are still deleted "
        "as whole segments. false: a record can be read as long as its segment exists. Odradek's own key.",
        "topic", (Synonym("odradek.retention.exact"),)),
    ConfigKey("retention.bytes", LONG, -1, None, MEDIUM, CLUSTER_WIDE,
        "The size in bytes of a partition above which the broker deletes its oldest segments; at least this many bytes "
        "remain. -1 and other negative numbers: no limit.",
        "topic", (Synonym("log.retention.bytes"),)),
    ConfigKey("retention.ms", LONG, 604_800_000, Range(-1), MEDIUM, CLUSTER_WIDE,
        "The time in ms that records are kept if cleanup.policy contains delete. -1: no limit.",
        "topic", (Synonym("log.retention.ms"), Synonym("log.retention.minutes", 60_000),
            Synonym("log.retention.hours", 3_600_000))),
    ConfigKey("segment.bytes", INT, 1_073_741_824, Range(14), MEDIUM, CLUSTER_WIDE,
        "The maximum size in bytes of a segment. An append that would exceed it rolls the log to a new segment.",
        "topic", (Synonym("log.segment.bytes"),)),
    ConfigKey("segment.index.bytes", INT, 10_485_760, Range(4), MEDIUM, CLUSTER_WIDE,
        "The maximum size in bytes of an index file. A full index rolls the log to a new segment.",
        "topic", (Synonym("log.index.size.max.bytes"),)),
    ConfigKey("segment.jitter.ms", LONG, 0, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum random time in ms that is subtracted from segment.ms, so that not all logs roll at once.",
        "topic", (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", 3_600_000))),
    ConfigKey("segment.ms", LONG, 604_800_000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The age in ms at which the log rolls to a new segment, even if the active segment is not full.",
        "topic", (Synonym("log.roll.ms"), Synonym("log.roll.hours", 3_600_000))),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether a replica that is not in sync can become the leader if no in-sync replica is alive. Records may be "
        "lost.",
        "topic", (Synonym("unclean.leader.election.enable"),)),
)
