"""Following other brokers, and the in-sync set.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    NONE,
    NONE_YET,
    READ_ONLY,
    STRING,
    ConfigKey,
    OnlyDefault,
    Range,
)

TITLE = "Following other brokers, and the in-sync set."

# fmt: off
KEYS = (
    ConfigKey("num.replica.fetchers", INT, 1, Range(1), HIGH, CLUSTER_WIDE, NONE_YET,
        "Connections on which this broker follows each other broker."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1000, Range(0), MEDIUM, READ_ONLY, NONE_YET,
        "The pause of a follower after a failed fetch."),
    ConfigKey("replica.fetch.max.bytes", INT, 1_048_576, Range(0), MEDIUM, READ_ONLY, NONE_YET,
        "Bytes that a follower asks for, a partition."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, Range(0), HIGH, READ_ONLY, NONE_YET,
        "Bytes that must be there before a follower is answered."),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0), MEDIUM, READ_ONLY, NONE_YET,
        "Bytes that a follower asks for, a request."),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, Range(0), HIGH, READ_ONLY, NONE_YET,
        "How long a follower's fetch waits for records."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How often the high watermarks are written to their checkpoint file. No effect yet: the broker writes them together "
        "with the recovery points."),
    ConfigKey("replica.lag.time.max.ms", LONG, 30000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "A follower that has not caught up for so long leaves the in-sync set."),
    ConfigKey("replica.selector.class", STRING, None, OnlyDefault(None), MEDIUM, READ_ONLY, NONE_YET,
        "A Java class that picks the replica a consumer reads from: cannot be loaded here."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, 65536, Range(1, None, -1), HIGH, READ_ONLY, NONE_YET,
        "SO_RCVBUF of a follower's connections; -1 leaves it to the system."),
    ConfigKey("replica.socket.timeout.ms", INT, 30000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "How long a follower waits for an answer."),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE, NONE,
        "Whether a new follower begins at the end of remote storage."),
)
