"""Logs, segments and indexes of a broker, and the defaults of its topics.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_DOUBLE,
    MAX_LONG,
    MEDIUM,
    READ_ONLY,
    STRING,
    ConfigKey,
    NonEmpty,
    OneOf,
    Range,
    Synonym,
)

TITLE = "Logs, segments and indexes of a broker, and the defaults of its topics."

# fmt: off
KEYS = (
    ConfigKey("log.dir", LIST, ("/tmp/kafka-logs",), NonEmpty(), HIGH, READ_ONLY,
        "The directory of the logs. Used if log.dirs is not set."),
    ConfigKey("log.dirs", LIST, None, NonEmpty(), HIGH, READ_ONLY,
        "The directories of the logs, comma-separated. Default: log.dir.", "broker", (Synonym("log.dir"),)),
    ConfigKey("odradek.log.dir.soft.free.bytes", LONG, 2_147_483_648, Range(0), MEDIUM, READ_ONLY,
        "The soft limit of free bytes on a disk. The limit is the smaller one of this value and "
        "odradek.log.dir.soft.free.percent. With less space free, the broker logs a warning and runs retention at "
        "once. Odradek's own key."),
    ConfigKey("odradek.log.dir.soft.free.percent", DOUBLE, 5.0, Range(0, 100), MEDIUM, READ_ONLY,
        "The soft limit of free space, in percent of the disk. The limit is the smaller one of this value and "
        "odradek.log.dir.soft.free.bytes. With less space free, the broker logs a warning and runs retention at once. "
        "Odradek's own key."),
    ConfigKey("odradek.log.dir.hard.free.bytes", LONG, 268_435_456, Range(0), MEDIUM, READ_ONLY,
        "The hard limit of free bytes on a disk. The limit is the smaller one of this value and "
        "odradek.log.dir.hard.free.percent. With less space free, the broker refuses producers with a retriable error "
        "until 1.25 times the limit is free. Odradek's own key."),
    ConfigKey("odradek.log.dir.hard.free.percent", DOUBLE, 1.0, Range(0, 100), MEDIUM, READ_ONLY,
        "The hard limit of free space, in percent of the disk. The limit is the smaller one of this value and "
        "odradek.log.dir.hard.free.bytes. With less space free, the broker refuses producers with a retriable error "
        "until 1.25 times the limit is free. Odradek's own key."),
    ConfigKey("odradek.log.dir.reserve.bytes", LONG, 16_777_216, Range(0), MEDIUM, READ_ONLY,
        "The size in bytes of a file in each log directory that reserves space. The broker deletes the file when the "
        "disk is full, so that commits and deletions can still be written. The file is never larger than the hard "
        "limit of free space. Odradek's own key."),
    ConfigKey("num.recovery.threads.per.data.dir", INT, 2, Range(1), HIGH, CLUSTER_WIDE,
        "The number of processes per log directory that open and recover logs when the broker starts; at most 16 in "
        "all. A change takes effect at the next start."),
    ConfigKey("log.segment.bytes", INT, 1_073_741_824, Range(14), HIGH, CLUSTER_WIDE,
        "The maximum size in bytes of a segment. An append that would exceed it rolls the log to a new segment."),
    ConfigKey("log.roll.ms", LONG, None, Range(1), HIGH, CLUSTER_WIDE,
        "The age in ms at which the log rolls to a new segment, even if the active segment is not full. Default: "
        "log.roll.hours.",
        "broker", (Synonym("log.roll.hours", 3_600_000),)),
    ConfigKey("log.roll.hours", INT, 168, Range(1), HIGH, READ_ONLY,
        "The age in hours at which the log rolls to a new segment, even if the active segment is not full. Used if "
        "log.roll.ms is not set."),
    ConfigKey("log.roll.jitter.ms", LONG, None, Range(0), HIGH, CLUSTER_WIDE,
        "The maximum random time in ms that is subtracted from log.roll.ms, so that not all logs roll at once. "
        "Default: log.roll.jitter.hours.",
        "broker", (Synonym("log.roll.jitter.hours", 3_600_000),)),
    ConfigKey("log.roll.jitter.hours", INT, 0, Range(0), HIGH, READ_ONLY,
        "The maximum random time in hours that is subtracted from the roll time of a log, so that not all logs roll at "
        "once. Used if log.roll.jitter.ms is not set."),
    ConfigKey("log.retention.ms", LONG, None, Range(1, None, -1), HIGH, CLUSTER_WIDE,
        "The time in ms that records are kept in topics with cleanup.policy=delete. -1: no limit. Default: "
        "log.retention.minutes, else log.retention.hours.",
        "broker", (Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000))),
    ConfigKey("log.retention.minutes", INT, None, Range(1, None, -1), HIGH, READ_ONLY,
        "The time in minutes that records are kept in topics with cleanup.policy=delete. -1: no limit. Used if "
        "log.retention.ms is not set. Default: log.retention.hours.",
        "broker", (Synonym("log.retention.hours", 60),)),
    ConfigKey("log.retention.hours", INT, 168, Range(1, None, -1), HIGH, READ_ONLY,
        "The time in hours that records are kept in topics with cleanup.policy=delete. -1: no limit. Used if neither "
        "log.retention.ms nor log.retention.minutes is set."),
    ConfigKey("log.retention.bytes", LONG, -1, None, HIGH, CLUSTER_WIDE,
        "The size in bytes of a partition above which the broker deletes its oldest segments; at least this many bytes "
        "remain. -1 and other negative numbers: no limit."),
    ConfigKey("odradek.retention.exact", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE,
        "Whether retention.ms also applies to single records. true: every retention check moves the log start offset "
        "to the first record that is not older than the retention time; files are still deleted as whole segments. "
        "false: a record can be read as long as its segment exists. Odradek's own key."),
    ConfigKey("odradek.segment.deletion.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "A Python class, as package.module:Class, that chooses segments to delete in addition to retention by time and "
        "size. See docs/operate/policies.md. Odradek's own key."),
    ConfigKey("log.retention.check.interval.ms", LONG, 300_000, Range(1), MEDIUM, READ_ONLY,
        "The time in ms between two checks for segments that retention deletes."),
    ConfigKey("log.initial.task.delay.ms", LONG, 30000, Range(0), LOW, READ_ONLY,
        "The time in ms from the start of the broker to the first retention check, the first checkpoint and the first "
        "removal of deleted logs. If the key is not set, a task with a shorter interval starts after its interval."),
    ConfigKey("log.segment.delete.delay.ms", LONG, 60000, Range(0), HIGH, CLUSTER_WIDE,
        "The time in ms from the removal of a segment or a partition from the logs to the deletion of its files. Until "
        "then the files exist under another name (*.deleted, *-delete)."),
    ConfigKey("log.cleanup.policy", LIST, ("delete",), OneOf(("compact", "delete")), MEDIUM, CLUSTER_WIDE,
        "How the broker limits the size of logs. delete: it deletes old segments. compact: it keeps the last record of "
        "each key. Both can be combined."),
    ConfigKey("log.index.interval.bytes", INT, 4096, Range(0), MEDIUM, CLUSTER_WIDE,
        "The number of bytes of records between two entries of the offset index."),
    ConfigKey("log.index.size.max.bytes", INT, 10_485_760, Range(4), MEDIUM, CLUSTER_WIDE,
        "The maximum size in bytes of an index file. A full index rolls the log to a new segment."),
    ConfigKey("log.flush.interval.messages", LONG, MAX_LONG, Range(1), HIGH, CLUSTER_WIDE,
        "When a partition has this number of records that are not synced to the disk, the broker syncs them before it "
        "acknowledges the write. 1: every acknowledged record is on the disk. Producers share syncs."),
    ConfigKey("log.flush.interval.ms", LONG, None, Range(0), HIGH, CLUSTER_WIDE,
        "The maximum time in ms that records stay unsynced. The broker then syncs the log; no request waits for it. "
        "Default: log.flush.scheduler.interval.ms.",
        "broker", (Synonym("log.flush.scheduler.interval.ms"),)),
    ConfigKey("log.flush.scheduler.interval.ms", LONG, MAX_LONG, Range(1), HIGH, READ_ONLY,
        "The time in ms between two checks for logs to sync because of their age (log.flush.interval.ms, flush.ms). "
        "The broker checks at least every second."),
    ConfigKey("log.flush.offset.checkpoint.interval.ms", INT, 60000, Range(0), HIGH, READ_ONLY,
        "The time in ms between two checkpoints: the broker syncs closed segments and writes the recovery points to "
        "their checkpoint file."),
    ConfigKey("log.message.timestamp.type", STRING, "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")), MEDIUM, CLUSTER_WIDE,
        "The timestamp of a stored record. CreateTime: the producer's. LogAppendTime: the broker's time of the append."),
    ConfigKey("log.message.timestamp.before.max.ms", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms by which the producer's timestamp of a record may be earlier than the broker's clock. "
        "The broker refuses the batch with INVALID_TIMESTAMP."),
    ConfigKey("log.message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms by which the producer's timestamp of a record may be later than the broker's clock. "
        "The broker refuses the batch with INVALID_TIMESTAMP."),
    ConfigKey("log.message.timestamp.difference.max.ms", LONG, MAX_LONG, Range(0), MEDIUM, READ_ONLY,
        "The maximum time in ms by which the producer's timestamp of a record may be earlier or later than the "
        "broker's clock. Removed in Kafka 4.0."),
    ConfigKey("log.message.downconversion.enable", BOOLEAN, True, None, LOW, READ_ONLY,
        "Whether the broker converts records to the older formats that old consumers need. Removed in Kafka 4.0."),
    ConfigKey("log.cleaner.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Whether the broker compacts topics with cleanup.policy=compact."),
    ConfigKey("log.cleaner.threads", INT, 1, Range(0), MEDIUM, CLUSTER_WIDE,
        "The number of threads that compact logs. 0: no compaction."),
    ConfigKey("log.cleaner.backoff.ms", LONG, 15000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The time in ms that a compaction thread waits when no log needs compaction."),
    ConfigKey("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None, MEDIUM, CLUSTER_WIDE,
        "The memory in bytes, of all compaction threads together, for the keys of the records that are compacted."),
    ConfigKey("log.cleaner.io.buffer.size", INT, 524_288, Range(0), MEDIUM, CLUSTER_WIDE,
        "The memory in bytes, of all compaction threads together, for reading and writing records."),
    ConfigKey("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, Range(0, 1), MEDIUM, CLUSTER_WIDE,
        "The fraction of log.cleaner.dedupe.buffer.size that compaction may fill with keys."),
    ConfigKey("log.cleaner.io.max.bytes.per.second", DOUBLE, MAX_DOUBLE, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of bytes per second that compaction reads and writes, all threads together."),
    ConfigKey("log.cleaner.delete.retention.ms", LONG, 86_400_000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The time in ms that a tombstone stays in a log after its compaction, so that consumers can read it."),
    ConfigKey("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, Range(0, 1), MEDIUM, CLUSTER_WIDE,
        "The broker compacts a log when at least this fraction of its bytes is not compacted yet."),
    ConfigKey("log.cleaner.min.compaction.lag.ms", LONG, 0, Range(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time in ms that a record stays in a log before it can be compacted."),
    ConfigKey("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum time in ms that a record of a compacted topic stays uncompacted. The log rolls its active segment "
        "after this time, even if no records are appended."),
)
