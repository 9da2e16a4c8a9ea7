"""Quotas: the time windows in which rates are measured, and limits of replication.

Rows of the key table. Types, defaults and ranges are those of Kafka 4.3, or of 3.9 for keys that Kafka 4.0 removed.
"""

from odradek.config.key import (
    CLUSTER_WIDE,
    INT,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    READ_ONLY,
    ConfigKey,
    Range,
)

TITLE = "Quotas: the time windows in which rates are measured, and limits of replication."

# fmt: off
KEYS = (
    ConfigKey("quota.window.num", INT, 11, Range(1), LOW, READ_ONLY,
        "The number of time windows over which the rates of client quotas are measured. More than 60 windows are merged "
        "into longer windows that cover the same time."),
    ConfigKey("quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY,
        "The length in seconds of a time window of client quotas."),
    ConfigKey("controller.quota.window.num", INT, 11, Range(1), LOW, READ_ONLY,
        "The number of time windows over which the rate of topic changes is measured."),
    ConfigKey("controller.quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY,
        "The length in seconds of a time window of the quota for topic changes."),
    ConfigKey("replication.quota.window.num", INT, 11, Range(1), LOW, READ_ONLY,
        "The number of time windows over which the rate of throttled replication is measured. More than 60 are merged into "
        "longer ones that cover the same time."),
    ConfigKey("replication.quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY,
        "The length in seconds of a time window over which the rate of throttled replication is measured."),
    ConfigKey("leader.replication.throttled.rate", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of bytes of records per second that this broker, as the leader of the partitions in "
        "leader.replication.throttled.replicas, sends to followers that are not in sync. The default means no limit."),
    ConfigKey("follower.replication.throttled.rate", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of bytes of records per second that this broker fetches, as a follower that is not in sync, for "
        "the partitions in follower.replication.throttled.replicas. The default means no limit."),
)
