"""Quotas: the windows in which use is measured, and limits of replication.

Rows of the table of keys: type, default and range as in Kafka 4.3, or 3.9 for what 4.x dropped.
"""

from odradek.config.key import (
    CLASS,
    CLUSTER_WIDE,
    INT,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    NONE_YET,
    READ_ONLY,
    ConfigKey,
    OnlyDefault,
    Range,
)

TITLE = "Quotas: the windows in which use is measured, and limits of replication."

# fmt: off
KEYS = (
    ConfigKey("quota.window.num", INT, 11, Range(1), LOW, READ_ONLY, NONE_YET,
        "Windows over which client quotas are measured."),
    ConfigKey("quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY, NONE_YET,
        "The length of such a window."),
    ConfigKey("controller.quota.window.num", INT, 11, Range(1), LOW, READ_ONLY, NONE_YET,
        "Windows over which changes of topics are measured."),
    ConfigKey("controller.quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY, NONE_YET,
        "The length of such a window."),
    ConfigKey("replication.quota.window.num", INT, 11, Range(1), LOW, READ_ONLY, NONE_YET,
        "Windows over which replication is measured."),
    ConfigKey("replication.quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY, NONE_YET,
        "The length of such a window."),
    ConfigKey("alter.log.dirs.replication.quota.window.num", INT, 11, Range(1), LOW, READ_ONLY, NONE_YET,
        "Windows over which moves between directories are measured."),
    ConfigKey("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, Range(1), LOW, READ_ONLY, NONE_YET,
        "The length of such a window."),
    ConfigKey("leader.replication.throttled.rate", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE, NONE_YET,
        "Bytes a second that leaders send to throttled replicas."),
    ConfigKey("follower.replication.throttled.rate", LONG, MAX_LONG, Range(0), MEDIUM, CLUSTER_WIDE, NONE_YET,
        "Bytes a second that throttled replicas fetch."),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", LONG, MAX_LONG,
        Range(0), MEDIUM, CLUSTER_WIDE, NONE_YET,
        "Bytes a second that moves between directories may use."),
    ConfigKey("client.quota.callback.class", CLASS, None, OnlyDefault(None), LOW, READ_ONLY, NONE_YET,
        "A Java class that decides on quotas: cannot be loaded here."),
)
