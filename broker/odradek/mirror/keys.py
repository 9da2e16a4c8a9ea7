"""The table of the keys in a mirror's file: names, types, defaults and descriptions; and MirrorMaker 2's keys without
effect.

Constants. Names, meanings and most defaults are those of MirrorMaker 2 of Kafka 4.3; keys that begin with `odradek.`
are of this project. docs/operate/mirror.md has the same table, and a test compares both.
"""

import re
from dataclasses import dataclass

BOOL, INT, TEXT, PATTERNS, CHOICE = "boolean", "int", "string", "list of patterns", "one of"

Value = bool | int | str | tuple[str, ...]


@dataclass(frozen=True)
class MirrorKey:
    """One key. :param kind: BOOL, INT, TEXT, PATTERNS or CHOICE. :param low: and `high`: the range of an INT,
    inclusive.

    :param choices: the values of a CHOICE. :param per_flow: whether `a->b.NAME` may set the key for one flow.
    """

    name: str
    kind: str
    default: Value
    text: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    per_flow: bool = True


def _bool(name: str, default: bool, text: str) -> MirrorKey:
    return MirrorKey(name, BOOL, default, text)


def _int(name: str, default: int, low: int, high: int, text: str) -> MirrorKey:
    return MirrorKey(name, INT, default, text, low, high)


def _patterns(name: str, default: str, text: str) -> MirrorKey:
    return MirrorKey(name, PATTERNS, split_patterns(default), text)


def split_patterns(text: str) -> tuple[str, ...]:
    """The items of a list that commas separate, without empty ones."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


DAY_S = 86_400
POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")
JAVA_PACKAGE = "org.apache.kafka.connect.mirror."
ANYTHING = ".*"
INTERNAL_SETTINGS = (
    "follower.replication.throttled.replicas, leader.replication.throttled.replicas, message.timestamp.difference.max.ms, "
    "log.message.timestamp.before.max.ms, log.message.timestamp.after.max.ms, message.timestamp.type, "
    "unclean.leader.election.enable, min.insync.replicas"
)

_ROWS = (
    _bool("enabled", False, "Whether the flow exists. Set it as `a->b.enabled = true`."),
    _patterns("topics", ANYTHING, "Names of the topics to mirror: regular expressions, each for the whole name."),
    _patterns(
        "topics.exclude",
        r"mm2.*\.internal, .*\.replica, __.*",
        "Names of the topics that are not mirrored although `topics` selects them: regular expressions.",
    ),
    MirrorKey(
        "replication.policy.class",
        CHOICE,
        POLICIES[0],
        "How topics are named in the target. DefaultReplicationPolicy: alias of the source, separator, name. "
        "IdentityReplicationPolicy: the same name.",
        choices=POLICIES,
    ),
    MirrorKey(
        "replication.policy.separator",
        TEXT,
        ".",
        "The text between the alias of the source and the topic's name in names of the target.",
    ),
    _bool(
        "replication.policy.internal.topic.separator.enabled",
        True,
        "Whether the names of MirrorMaker 2's internal topics use `replication.policy.separator`; false: a dot.",
    ),
    _int(
        "replication.factor",
        -1,
        -1,
        32_767,
        "Replication factor of topics that the mirror creates in the target; -1: the target's default. MirrorMaker 2's "
        "default is 2.",
    ),
    _bool(
        "refresh.topics.enabled",
        True,
        "Whether the mirror looks for new topics and partitions of the source while it runs.",
    ),
    _int(
        "refresh.topics.interval.seconds",
        30,
        1,
        DAY_S,
        "Seconds between two searches for new topics and partitions of the source. MirrorMaker 2's default is 600.",
    ),
    _bool(
        "sync.topic.configs.enabled",
        True,
        "Whether settings of topics are copied, also when they change.",
    ),
    _int(
        "sync.topic.configs.interval.seconds", 600, 1, DAY_S, "Seconds between two comparisons of the topics' settings."
    ),
    _patterns("config.properties.exclude", INTERNAL_SETTINGS, "Settings of topics that are not copied."),
    MirrorKey(
        "use.defaults.from",
        CHOICE,
        "target",
        "target: a setting with its default in the source is reset to the target's default. source: the source's default "
        "value is set in the target.",
        choices=("target", "source"),
    ),
    _bool(
        "sync.topic.acls.enabled",
        True,
        "Whether ACLs with the name of a mirrored topic are copied, except permissions to write.",
    ),
    _int("sync.topic.acls.interval.seconds", 600, 1, DAY_S, "Seconds between two comparisons of the topics' ACLs."),
    _bool(
        "heartbeats.replication.enabled",
        True,
        "Whether the topic `heartbeats` is mirrored although `topics` does not select it.",
    ),
    _patterns(
        "groups",
        ANYTHING,
        "Ids of the consumer groups whose offsets are translated: regular expressions, each for the whole id.",
    ),
    _patterns(
        "groups.exclude",
        r"console-consumer-.*, connect-.*, __.*, odradek-mirror\..*",
        "Ids of the consumer groups whose offsets are not translated although `groups` selects them.",
    ),
    _bool("refresh.groups.enabled", True, "Whether the mirror looks for new consumer groups while it runs."),
    _int("refresh.groups.interval.seconds", 600, 1, DAY_S, "Seconds between two searches for new consumer groups."),
    _bool(
        "emit.offset-syncs.enabled",
        True,
        "Whether offset syncs, pairs of a source offset and its target offset, are written for MirrorMaker 2's clients and "
        "`odradek mirror switch`.",
    ),
    MirrorKey(
        "offset-syncs.topic.location",
        CHOICE,
        "source",
        "The cluster that has the topic of offset syncs.",
        choices=("source", "target"),
    ),
    _int(
        "offset-syncs.topic.replication.factor",
        -1,
        -1,
        32_767,
        "Replication factor of the topic of offset syncs; -1: the cluster's default.",
    ),
    _bool(
        "emit.checkpoints.enabled",
        True,
        "Whether translated offsets of groups are written to the topic of checkpoints.",
    ),
    _int("emit.checkpoints.interval.seconds", 60, 1, DAY_S, "Seconds between two checkpoints of a group."),
    _int(
        "checkpoints.topic.replication.factor",
        -1,
        -1,
        32_767,
        "Replication factor of the topic of checkpoints; -1: the target's default.",
    ),
    _bool(
        "sync.group.offsets.enabled",
        False,
        "Whether translated offsets are committed in the target, for groups that have no members there.",
    ),
    _int(
        "sync.group.offsets.interval.seconds",
        60,
        1,
        DAY_S,
        "Seconds between two commits of translated offsets in the target.",
    ),
    _bool(
        "emit.heartbeats.enabled", True, "Whether heartbeats are written to the topic `heartbeats` of both clusters."
    ),
    _int("emit.heartbeats.interval.seconds", 1, 1, DAY_S, "Seconds between two heartbeats."),
    _int(
        "heartbeats.topic.replication.factor",
        -1,
        -1,
        32_767,
        "Replication factor of the topic of heartbeats; -1: the cluster's default.",
    ),
    _bool(
        "odradek.mirror.exactly.once",
        True,
        "Records and positions are written in one transaction of the target. false: positions are committed after the records, "
        "so that a failure may repeat records; for targets without transactions.",
    ),
    MirrorKey(
        "odradek.mirror.start",
        CHOICE,
        "earliest",
        "Where the mirror begins in a partition that was never mirrored: earliest, at its first record; latest, at its end.",
        choices=("earliest", "latest"),
    ),
    MirrorKey(
        "odradek.mirror.copies.with.records",
        CHOICE,
        "refuse",
        "What happens with `odradek.mirror.start=earliest` to a partition of a copy that has records, but no position. "
        "refuse: it stops, because its records could be copied a second time. append: all records of the source are "
        "appended to them.",
        choices=("refuse", "append"),
    ),
    MirrorKey(
        "odradek.mirror.source.truncation",
        CHOICE,
        "stop",
        "What happens to a partition when the source has lost records that were copied, for example because of an unclean "
        "leader election. stop: the partition stops. continue: the copy keeps these records, and the mirror continues "
        "at the offset at which the source was truncated.",
        choices=("stop", "continue"),
    ),
    _int(
        "odradek.mirror.lanes",
        8,
        1,
        1000,
        "Number of lanes over which the partitions of a flow are spread. A lane is a thread of one worker. All workers of a "
        "flow need the same number; stop all of them to change it.",
    ),
    _int(
        "odradek.mirror.commit.interval.ms",
        100,
        1,
        60_000,
        "Time in ms for which a lane sends batches into a transaction before it waits for their acknowledgements and commits. "
        "If the last commit took longer, the lane sends for as long as that commit took; it never sends for more than a "
        "quarter of odradek.mirror.transaction.timeout.ms.",
    ),
    _int(
        "odradek.mirror.commit.bytes",
        16 << 20,
        1 << 16,
        1 << 30,
        "Bytes of batches after which a transaction is committed.",
    ),
    _int(
        "odradek.mirror.fetch.max.bytes",
        16 << 20,
        1 << 10,
        1 << 30,
        "The most bytes of one Fetch response of a source broker.",
    ),
    _int(
        "odradek.mirror.partition.fetch.bytes",
        4 << 20,
        1 << 10,
        1 << 30,
        "The most bytes of one partition in a Fetch response.",
    ),
    _int(
        "odradek.mirror.fetch.memory.bytes",
        256 << 20,
        4 << 20,
        1 << 29,
        "The most bytes of Fetch responses that a lane holds. The leaders of its partitions share half of them; the other half "
        "is for one large batch. A larger batch stops its partition.",
    ),
    _int(
        "odradek.mirror.fetch.wait.ms",
        500,
        0,
        60_000,
        "How long in ms a source broker may wait for data before it responds.",
    ),
    _int(
        "odradek.mirror.transaction.timeout.ms",
        60_000,
        1000,
        900_000,
        "After this time in ms the target aborts a transaction that a lane has not ended.",
    ),
    _int("odradek.mirror.request.timeout.ms", 30_000, 100, 600_000, "How long in ms a broker may take for a response."),
    _int(
        "odradek.mirror.session.timeout.ms",
        6000,
        1000,
        600_000,
        "After this time in ms without a heartbeat the lanes of a worker are given to other workers. The target's "
        "group.min.session.timeout.ms, 6000 by default, is the smallest value that the target accepts.",
    ),
    _int(
        "odradek.mirror.retry.stopped.seconds",
        60,
        1,
        DAY_S,
        "Seconds after which the mirror retries a stopped partition, if the reason can end without a restart of the worker.",
    ),
    MirrorKey(
        "odradek.mirror.metrics.listener",
        TEXT,
        "127.0.0.1:9405",
        "Address of the worker's HTTP server with /metrics, /healthz and /readyz, as HOST:PORT; empty: none.",
        per_flow=False,
    ),
    MirrorKey(
        "odradek.mirror.worker",
        TEXT,
        "",
        "Name of this worker in `odradek mirror status` and among the members of the group; empty: host name and process id.",
        per_flow=False,
    ),
)

KEYS = {row.name: row for row in _ROWS}

STRUCTURE = frozenset(("clusters", "config.providers"))
"""Keys that exist only at the top of the file, beside `KEYS`."""

WITHOUT_EFFECT = frozenset((
    "offset.lag.max",
    "admin.timeout.ms", "consumer.poll.timeout.ms", "tasks.max", "name", "connector.class", "key.converter", "value.converter",
    "header.converter", "add.source.alias.to.metrics", "metric.names.formats", "use.incremental.alter.configs",
    "dedicated.mode.enable.internal.rest", "exactly.once.source.support", "topic.creation.enable", "group.id", "listeners",
    "rest.advertised.host.name", "rest.advertised.port", "rest.port", "rest.host.name", "metrics.recording.level",
    "metric.reporters", "metrics.num.samples", "metrics.sample.window.ms", "plugin.path", "offset.flush.interval.ms",
    "offset.flush.timeout.ms", "errors.tolerance", "errors.log.enable", "errors.retry.timeout", "forwarding.admin.class",
    "scheduled.rebalance.max.delay.ms", "session.timeout.ms", "heartbeat.interval.ms", "rebalance.timeout.ms", "client.id",
    "request.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms", "retries", "reconnect.backoff.ms",
    "reconnect.backoff.max.ms", "connections.max.idle.ms", "metadata.max.age.ms", "receive.buffer.bytes",
    "send.buffer.bytes", "client.dns.lookup",
    "auto.include.jmx.reporter", "enable.metrics.push",
))  # fmt: skip
"""Keys of MirrorMaker 2 and Kafka Connect that are accepted, with a note, and change nothing."""

WITHOUT_EFFECT_PREFIXES = (
    "consumer.", "producer.", "admin.", "source.", "target.", "offset.storage.", "config.storage.", "status.storage.",
    "transforms", "predicates", "internal.", "rest.", "listeners.", "metrics.context.", "topic.creation.",
)  # fmt: skip

FILTERS = {
    "topic.filter.class": JAVA_PACKAGE + "DefaultTopicFilter",
    "group.filter.class": JAVA_PACKAGE + "DefaultGroupFilter",
    "config.property.filter.class": JAVA_PACKAGE + "DefaultConfigPropertyFilter",
}
"""Keys that name Java classes, with the only class that is supported."""

GROUP_PREFIX = "odradek-mirror."
"""Begins the ids of the groups and transactional ids of mirrors. Offsets of these groups are positions in another cluster."""

ALIAS = re.compile(r"[a-zA-Z0-9._-]+")
"""Characters of an alias: they become a part of topics' names."""
