"""Consumer groups and their offsets.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek import codecs
from odradek.config.key import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    MAX_INT,
    MEDIUM,
    READ_ONLY,
    SHORT,
    STRING,
    ConfigKey,
    OneOf,
    Range,
)

TITLE = "Consumer groups and their offsets."

# fmt: off
KEYS = (
    ConfigKey("odradek.groups.max", INT, 100_000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum number of consumer groups that a broker coordinates. A request that would create another one receives "
        "POLICY_VIOLATION, but a client (a principal; without a login one address, of IPv6 one /64 network) that has created "
        "fewer than 100 of them may create more, up to twice this number in all. Existing groups above the limit are loaded "
        "and served. Odradek's own key."),
    ConfigKey("odradek.groups.max.per.client", INT, 10_000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The maximum number of existing consumer groups that one client (a principal; without a login one address, of IPv6 "
        "one /64 network) has created at a broker since its coordinator process started. A request that would create another "
        "one receives POLICY_VIOLATION. Odradek's own key."),
    ConfigKey("odradek.group.offset.metadata.max.bytes", INT, 16_777_216, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum size, in characters, of all metadata that clients have committed with the offsets of one group. A commit "
        "that would exceed it receives OFFSET_METADATA_TOO_LARGE. offset.metadata.max.bytes limits the metadata of one offset. "
        "Odradek's own key."),
    ConfigKey("odradek.group.offset.metadata.max.bytes.per.client", INT, 67_108_864, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum size, in characters, of all metadata that clients have committed with the offsets of those groups that "
        "one client (a principal; without a login one address, of IPv6 one /64 network) has created since the coordinator "
        "process of the broker started. A commit of this client that would exceed it receives OFFSET_METADATA_TOO_LARGE. "
        "Odradek's own key."),
    ConfigKey("odradek.id.max.length", INT, 1000, Range(249, 32_767), MEDIUM, CLUSTER_WIDE,
        "The maximum number of characters of the id of a new consumer group (a longer one receives INVALID_GROUP_ID), "
        "of a new transactional id, and of the member id, group.instance.id, rack and protocol type of a new member of a group "
        "(a longer one receives INVALID_REQUEST). Existing ids of any length are served. The client id of a member is cut. "
        "Odradek's own key."),
    ConfigKey("group.initial.rebalance.delay.ms", INT, 3000, Range(0), MEDIUM, READ_ONLY,
        "The time in ms that the first rebalance of an empty classic group waits for more members."),
    ConfigKey("group.max.session.timeout.ms", INT, 1_800_000, Range(1), MEDIUM, READ_ONLY,
        "The maximum session timeout in ms that a member of a classic group may request."),
    ConfigKey("group.min.session.timeout.ms", INT, 6000, Range(1), MEDIUM, READ_ONLY,
        "The minimum session timeout in ms that a member of a classic group may request."),
    ConfigKey("group.max.size", INT, MAX_INT, Range(1), MEDIUM, READ_ONLY,
        "The maximum number of members of a classic group. Further members receive GROUP_MAX_SIZE_REACHED."),
    ConfigKey("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
        OneOf(("classic", "consumer", "share", "streams")), MEDIUM, READ_ONLY,
        "The protocols that groups may use. The list must contain classic. Without consumer, the broker refuses "
        "members of the consumer protocol (KIP-848) with UNSUPPORTED_VERSION. In a cluster with ZooKeeper the default is "
        "classic, because a Kafka 3.9 broker ignores the records of groups of the consumer protocol: set classic,consumer at "
        "every broker if all of them are Odradek brokers. streams and share have no effect: this broker has no streams "
        "groups and share groups."),
    ConfigKey("group.consumer.assignment.interval.ms", INT, 1000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time in ms between two assignments of a group of the consumer protocol (KIP-848)."),
    ConfigKey("group.consumer.min.assignment.interval.ms", INT, 0, Range(0), MEDIUM, READ_ONLY,
        "The minimum value in ms of consumer.assignment.interval.ms, which can be set for one group."),
    ConfigKey("group.consumer.max.assignment.interval.ms", INT, 15000, Range(0), MEDIUM, READ_ONLY,
        "The maximum value in ms of consumer.assignment.interval.ms, which can be set for one group."),
    ConfigKey("group.consumer.assignors", LIST, ("uniform", "range"), None, MEDIUM, READ_ONLY,
        "The server-side assignors that members of the consumer protocol (KIP-848) can choose. The first one is the "
        "default."),
    ConfigKey("group.consumer.heartbeat.interval.ms", INT, 5000, Range(1), MEDIUM, READ_ONLY,
        "The time in ms between two heartbeats of a member of the consumer protocol (KIP-848). The broker sends it to "
        "the members."),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", INT, 5000, Range(1), MEDIUM, READ_ONLY,
        "The minimum value in ms of consumer.heartbeat.interval.ms, which can be set for one group."),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", INT, 15000, Range(1), MEDIUM, READ_ONLY,
        "The maximum value in ms of consumer.heartbeat.interval.ms, which can be set for one group."),
    ConfigKey("group.consumer.session.timeout.ms", INT, 45000, Range(1), MEDIUM, READ_ONLY,
        "The time in ms without a heartbeat after which the broker removes a member of the consumer protocol (KIP-848) "
        "from its group."),
    ConfigKey("group.consumer.min.session.timeout.ms", INT, 45000, Range(1), MEDIUM, READ_ONLY,
        "The minimum value in ms of consumer.session.timeout.ms, which can be set for one group."),
    ConfigKey("group.consumer.max.session.timeout.ms", INT, 60000, Range(1), MEDIUM, READ_ONLY,
        "The maximum value in ms of consumer.session.timeout.ms, which can be set for one group."),
    ConfigKey("group.consumer.max.size", INT, MAX_INT, Range(1), MEDIUM, READ_ONLY,
        "The maximum number of members of a group of the consumer protocol (KIP-848). Further members receive "
        "GROUP_MAX_SIZE_REACHED."),
    ConfigKey("group.consumer.migration.policy", STRING, "bidirectional",
        OneOf(("disabled", "downgrade", "upgrade", "bidirectional"), any_case=True), MEDIUM, READ_ONLY,
        "Which changes between the classic and the consumer protocol a group with members can make. upgrade: classic "
        "to consumer. downgrade: consumer to classic. bidirectional: both. disabled: none."),
    ConfigKey("offset.metadata.max.bytes", INT, 4096, Range(0), HIGH, READ_ONLY,
        "The maximum length in bytes of the metadata that a client commits with an offset."),
    ConfigKey("offsets.commit.required.acks", SHORT, -1, Range(-1, 1), HIGH, READ_ONLY,
        "The acks of offset commits and of other records of groups. -1: all in-sync replicas, and at least "
        "min.insync.replicas of them. 0 or 1: only the coordinator's log. Removed in Kafka 4.0."),
    ConfigKey("offsets.commit.timeout.ms", INT, 5000, Range(1), HIGH, READ_ONLY,
        "The time in ms that the coordinator waits for the replication of a record that it writes for a client. After "
        "that time, the client receives COORDINATOR_NOT_AVAILABLE."),
    ConfigKey("offsets.retention.check.interval.ms", LONG, 600_000, Range(1), HIGH, READ_ONLY,
        "The time in ms between two checks for expired offsets."),
    ConfigKey("offsets.retention.minutes", INT, 10080, Range(1), HIGH, READ_ONLY,
        "The time in minutes that a committed offset is kept if no member of the group subscribes to its topic. The "
        "time starts at the commit, or when the group becomes empty if that is later."),
    ConfigKey("offsets.topic.compression.codec", INT, 0, Range(0, codecs.CODECS[-1].number), HIGH, READ_ONLY,
        f"The codec of the batches in __consumer_offsets: {codecs.NUMBERED}."),
    ConfigKey("offsets.topic.num.partitions", INT, 50, Range(1), HIGH, READ_ONLY,
        "The number of partitions of __consumer_offsets. Do not change it after the topic has been created."),
    ConfigKey("offsets.topic.replication.factor", SHORT, 3, Range(1), HIGH, READ_ONLY,
        "The number of replicas of __consumer_offsets. A single broker gives the topic one replica. A cluster creates the "
        "topic only when that many brokers are live; until then, clients get COORDINATOR_NOT_AVAILABLE and retry."),
    ConfigKey("offsets.topic.segment.bytes", INT, 104_857_600, Range(1), HIGH, READ_ONLY,
        "The maximum size in bytes of a segment of __consumer_offsets."),
)
