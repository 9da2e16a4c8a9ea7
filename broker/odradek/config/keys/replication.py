"""Replication from other brokers, and the in-sync replicas.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
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
    NOW,
    READ_ONLY,
    STRING,
    ConfigKey,
    OneOf,
    Range,
)

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = (RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")
"""The supported values of replica.selector.class: Kafka's own classes."""

TITLE = "Replication from other brokers, and the in-sync replicas."

# fmt: off
KEYS = (
    ConfigKey("num.replica.fetchers", INT, 1, Range(1), HIGH, CLUSTER_WIDE, NOW,
        "The number of connections that this broker uses to replicate from each other broker."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1000, Range(0), MEDIUM, READ_ONLY, NOW,
        "The time in ms that a follower waits after a failed fetch. After errors that are usual for a short time, such as a "
        "leader that does not know yet that it leads, the first waits are shorter."),
    ConfigKey("replica.fetch.max.bytes", INT, 1_048_576, Range(0), MEDIUM, READ_ONLY, NOW,
        "The maximum number of bytes per partition that a follower requests."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, Range(0), HIGH, READ_ONLY, NOW,
        "The number of bytes that the leader waits for before it responds to a follower's fetch."),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0), MEDIUM, READ_ONLY, NOW,
        "The maximum number of bytes that a follower requests in one fetch, all partitions together."),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, Range(0), HIGH, READ_ONLY, NOW,
        "The maximum time in ms that a follower's fetch waits for records."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, Range(1), HIGH, READ_ONLY, NONE_YET,
        "The time in ms between two writes of the high watermarks to their checkpoint file. Not used yet: the broker "
        "writes them together with the recovery points."),
    ConfigKey("replica.lag.time.max.ms", LONG, 30000, Range(1), HIGH, READ_ONLY, NOW,
        "The time in ms without catching up with the leader after which a follower leaves the in-sync replicas."),
    ConfigKey("replica.selector.class", STRING, None, OneOf(SELECTORS), MEDIUM, READ_ONLY, NOW,
        "Chooses the replica from which a consumer reads. Unset or LeaderSelector: the leader. RackAwareReplicaSelector: an "
        "in-sync replica in the consumer's rack (client.rack, broker.rack) if there is one. Other classes are not supported."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, 65536, Range(1, None, -1), HIGH, READ_ONLY, NOW,
        "The receive buffer (SO_RCVBUF) of a follower's connections, in bytes. -1: the operating system decides."),
    ConfigKey("replica.socket.timeout.ms", INT, 30000, Range(1), HIGH, READ_ONLY, NOW,
        "The time in ms that a follower waits for a response, and for each further 16 KiB of it."),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, MEDIUM, CLUSTER_WIDE, NONE,
        "Whether a new follower starts at the end of the data in remote storage."),
)
