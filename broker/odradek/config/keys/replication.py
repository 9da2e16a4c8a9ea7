"""Replication from other brokers, and the in-sync replicas.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    MEDIUM,
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
    ConfigKey("num.replica.fetchers", INT, 1, Range(1), HIGH, CLUSTER_WIDE,
        "The number of connections that this broker uses to replicate from each other broker."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1000, Range(0), MEDIUM, READ_ONLY,
        "The time in ms that a follower waits after a failed fetch. After errors that are usual for a short time, such as a "
        "leader that does not know yet that it leads, the first waits are shorter."),
    ConfigKey("replica.fetch.max.bytes", INT, 1_048_576, Range(0), MEDIUM, READ_ONLY,
        "The maximum number of bytes per partition that a follower requests."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, Range(0), HIGH, READ_ONLY,
        "The number of bytes that the leader waits for before it responds to a follower's fetch."),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0), MEDIUM, READ_ONLY,
        "The maximum number of bytes that a follower requests in one fetch, all partitions together."),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, Range(0), HIGH, READ_ONLY,
        "The maximum time in ms that a follower's fetch waits for records."),
    ConfigKey("replica.lag.time.max.ms", LONG, 30000, Range(1), HIGH, READ_ONLY,
        "The time in ms without catching up with the leader after which a follower leaves the in-sync replicas."),
    ConfigKey("replica.selector.class", STRING, None, OneOf(SELECTORS), MEDIUM, READ_ONLY,
        "Chooses the replica from which a consumer reads. Unset or LeaderSelector: the leader. RackAwareReplicaSelector: an "
        "in-sync replica in the consumer's rack (client.rack, broker.rack) if there is one. Other classes are not supported."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, 65536, Range(1, None, -1), HIGH, READ_ONLY,
        "The receive buffer (SO_RCVBUF) of a follower's connections, in bytes. -1: the operating system decides."),
    ConfigKey("replica.socket.timeout.ms", INT, 30000, Range(1), HIGH, READ_ONLY,
        "The time in ms that a follower waits for a response, and for each further 16 KiB of it."),
)
