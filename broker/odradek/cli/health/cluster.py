"""Checks of `odradek doctor` on a cluster's brokers, partitions and replicas, over Kafka's protocol. Works with any Kafka."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from odradek.cli.framework.output import abbreviate, count
from odradek.cli.health.finding import Finding
from odradek.cli.health.groups import examine_groups
from odradek.cli.health.security import judge_certificate
from odradek.cli.health.transactions import examine_transactions
from odradek.clients import configs
from odradek.clients.cluster import Cluster, Partition, View
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError
from odradek.clients.wire import Connection

INTERNAL_OFFSETS = "__consumer_offsets"
MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
DEFAULT_REPLICAS = "default.replication.factor"


def examine_cluster(cluster: Cluster) -> list[Finding]:
    """All findings. Raises ClientError if the cluster does not return its metadata."""
    view = cluster.metadata()
    of_outage = _Outage(view)
    findings = [
        *_brokers(cluster, view),
        *_certificates(cluster, view),
        *of_outage.sort(_leaderless, [part for part in _all_partitions(view) if part.leader < 0]),
        *of_outage.sort(_under_replicated, _lacking(view)),
        *_offsets_topic(view),
    ]
    defaults = _default_replicas(cluster, view)
    if of_outage.explains_default(defaults):
        of_outage.consequences += _more_than_alive(view, defaults)
    else:
        findings += _more_than_alive(view, defaults)
    try:
        minimums = _minimums(cluster, view)
        refusing = [part for part in _lacking(view) if len(part.in_sync) < minimums.get(part.topic, 1)]
        findings += of_outage.sort(_below_minimum, refusing)
        findings += _settings(cluster, view, minimums)
    except ClientError as error:
        if isinstance(error, RefusedError) and error.denied:
            findings.append(
                _denied("settings", f"the settings of topics were not checked: {error}", "DESCRIBE_CONFIGS on topics")
            )
        else:
            findings.append(_unreadable_settings(error))
    try:
        findings += examine_groups(cluster, view)
    except ClientError as error:
        findings.append(
            Finding(
                "error",
                "groups",
                f"the groups cannot be listed: {error}",
                "consumers in groups cannot join or commit",
                "look at the coordinator's log; `odradek status` shows whether the coordinator process was restarted",
            )
        )
    return [*brokers_that_are_down(view, of_outage.consequences), *findings, *_transactions(cluster, view)]


class _Outage:
    """Separates the problems that end when the brokers that are down are back from the others.

    :ivar consequences: these problems.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._down = _replicas_of_down(view).keys()
        self.consequences: list[Finding] = []

    def sort(
        self, judge: Callable[[View, list[Partition]], Iterator[Finding]], partitions: Iterable[Partition]
    ) -> Iterator[Finding]:
        """Yield the findings of `judge` on the partitions that have another cause. Add the findings on the other partitions to
        `consequences`."""
        of_cause: dict[bool, list[Partition]] = {True: [], False: []}
        for part in partitions:
            of_cause[self._explains(part)].append(part)
        self.consequences += judge(self._view, of_cause[True])
        return judge(self._view, of_cause[False])

    def _explains(self, part: Partition) -> bool:
        """Whether the replicas that the partition needs, to be led or to be in sync, are on brokers that are down."""
        if part.leader < 0:
            return bool(part.in_sync or part.replicas) and set(part.in_sync or part.replicas) <= self._down
        return set(part.replicas) - set(part.in_sync) <= self._down

    def explains_default(self, defaults: Mapping[int, int]) -> bool:
        """Whether there are enough brokers for these values of default.replication.factor if no broker is down."""
        return max(defaults.values(), default=0) <= len(self._view.brokers) + len(self._down)


def _denied(subject: str, what: str, right: str) -> Finding:
    """A check that the user of the command may not make."""
    return Finding(
        "warning",
        subject,
        what,
        "the result of this check is unknown",
        f"run the command as a super user, or add an ACL that allows {right} (`odradek acl add`)",
    )


def _unreadable_settings(error: ClientError) -> Finding:
    return Finding(
        "error",
        "settings",
        f"the settings of topics cannot be read: {error}",
        "while the metadata store is not available, topics, settings and leaders cannot change",
        "check that ZooKeeper runs, has a quorum, and can be reached from the brokers; with an embedded store, look at "
        "the broker's log",
    )


def _transactions(cluster: Cluster, view: View) -> list[Finding]:
    """The findings on transactions; none if the brokers are older than the requests for them."""
    try:
        return examine_transactions(cluster, view)
    except UnsupportedError:
        return []
    except ClientError as error:
        return [
            Finding(
                "warning",
                "transactions",
                f"the transactions were not checked: {error}",
                "a transaction that never ends blocks consumers with isolation level read_committed",
                "check that all brokers run; `odradek transaction hanging` repeats the check",
            )
        ]


def _replicas_of_down(view: View) -> dict[int, list[Partition]]:
    """The partitions of each broker that has replicas, and is not registered."""
    replicas: dict[int, list[Partition]] = {}
    for part in _all_partitions(view):
        for node_id in sorted(set(part.replicas) - view.brokers.keys()):
            replicas.setdefault(node_id, []).append(part)
    return dict(sorted(replicas.items()))


def brokers_that_are_down(view: View, consequences: Iterable[Finding] = ()) -> Iterator[Finding]:
    """One finding on all brokers that have replicas, and are not registered. :param consequences: of that."""
    down = _replicas_of_down(view)
    if not down:
        return
    one, places = len(down) == 1, [part for parts in down.values() for part in parts]
    replicas = f"{count(len(places), 'replica')} ({_names(list(dict.fromkeys(places)))})"
    off = " ".join(f"--off {node_id}" for node_id in down)
    yield Finding(
        "error",
        abbreviate(f"broker {node_id}" for node_id in down),
        f"the broker is down: it is not registered, and has {replicas}"
        if one
        else f"the brokers are down: they are not registered, and have {replicas}",
        "these partitions lack replicas; without another in-sync replica, a partition cannot be read or written",
        f"start {'the broker' if one else 'the brokers'}; if {'it' if one else 'they'} will not come back, `odradek partition "
        f"move {off}` moves the replicas",
        tuple(finding.as_consequence for finding in consequences),
    )


def _brokers(cluster: Cluster, view: View) -> Iterator[Finding]:
    for node_id, failure in cluster.of_each(view.brokers, lambda *_: None).items():
        if failure is not None:
            address = view.brokers[node_id]
            yield Finding(
                "error",
                f"broker {node_id}",
                f"the broker cannot be reached at its advertised address: {failure}",
                "every broker directs clients to this address, and their connections to it fail",
                "check that the broker runs, and that its advertised.listeners "
                f"({address.host}:{address.port}) can be reached from here",
            )
    if view.controller_id < 0:
        yield Finding(
            "error",
            "controller",
            "the cluster has no controller",
            "topics cannot be created or changed, and partitions of failed brokers get no new leader",
            "start the brokers that are down; look in their logs for a lost connection to the metadata store",
        )


def _certificates(cluster: Cluster, view: View) -> Iterator[Finding]:
    """The findings on the certificates of the listeners to which the command connects."""
    for node_id, ends in cluster.of_each(view.brokers, lambda _, connection: connection.certificate_ends).items():
        if isinstance(ends, float):
            yield from judge_certificate(f"broker {node_id}", ends, time.time())


def _leaderless(view: View, leaderless: list[Partition]) -> Iterator[Finding]:
    """:param leaderless: partitions without a leader."""
    if leaderless:
        yield Finding(
            "error",
            _names(leaderless),
            f"{len(leaderless)} of {len(_all_partitions(view))} partitions have no leader",
            "clients can neither read nor write these partitions",
            f"start the brokers of their replicas ({_replicas(leaderless)}); if a log directory failed there, repair or "
            "replace its disk",
        )


def _under_replicated(_: View, under_replicated: list[Partition]) -> Iterator[Finding]:
    """:param under_replicated: partitions with a leader, and with fewer in-sync replicas than replicas."""
    if under_replicated:
        missing = sorted({node for part in under_replicated for node in set(part.replicas) - set(part.in_sync)})
        yield Finding(
            "warning",
            _names(under_replicated),
            f"{count(len(under_replicated), 'partition')} with fewer in-sync replicas than replicas",
            "the loss of one more broker may make these partitions unavailable, or lose acknowledged records",
            "check whether the following brokers run, keep up, and can log in to the others (ERROR lines of odradek.security "
            f"in their logs): {', '.join(map(str, missing))}",
        )


def _minimums(cluster: Cluster, view: View) -> dict[str, int]:
    """min.insync.replicas by topic. Raises ClientError."""
    return {
        name: int(entry.value or 1) for name, entry in configs.of_topics(cluster, [*view.topics], MIN_IN_SYNC).items()
    }


def _settings(cluster: Cluster, view: View, minimums: Mapping[str, int]) -> Iterator[Finding]:
    """The findings on settings of topics. Raises ClientError. :param minimums: min.insync.replicas by topic."""
    yield from _too_few_replicas(view, minimums)
    yield from _no_spare_replica(view, minimums)
    yield from _unclean_elections(cluster, view)


def _all_partitions(view: View) -> list[Partition]:
    return [part for info in view.topics.values() for part in info.partitions]


def _lacking(view: View) -> list[Partition]:
    """The partitions that have a leader, and lack in-sync replicas."""
    return [part for part in _all_partitions(view) if part.leader >= 0 and len(part.in_sync) < len(part.replicas)]


def _below_minimum(_: View, refusing: list[Partition]) -> Iterator[Finding]:
    """:param refusing: partitions with fewer in-sync replicas than min.insync.replicas."""
    if refusing:
        yield Finding(
            "error",
            _names(refusing),
            f"{count(len(refusing), 'partition')} with fewer in-sync replicas than {MIN_IN_SYNC}",
            "writes with acks=all are refused (NOT_ENOUGH_REPLICAS)",
            f"start the brokers of their replicas ({_replicas(refusing)}), or lower {MIN_IN_SYNC} of the topics",
        )


def _too_few_replicas(view: View, minimums: Mapping[str, int]) -> Iterator[Finding]:
    """Topics with fewer replicas than min.insync.replicas, so that acks=all never means that many replicas.

    :param minimums: min.insync.replicas by topic.
    """
    topics = sorted(
        name
        for name, minimum in minimums.items()
        if any(len(part.replicas) < minimum for part in view.topics[name].partitions)
    )
    if topics:
        replicas = min(len(part.replicas) for part in view.topics[topics[0]].partitions)
        yield Finding(
            "warning",
            abbreviate(topics),
            f"{count(len(topics), 'topic')} with fewer replicas than {MIN_IN_SYNC}",
            "a write with acks=all is acknowledged by the replicas that exist, so the loss of one disk may lose "
            "acknowledged records (Kafka before 3.7 refuses such writes)",
            f"add replicas if the cluster has enough brokers; otherwise lower {MIN_IN_SYNC} of each topic to its number of "
            f"replicas, e.g. `odradek config set --topic {topics[0]} {MIN_IN_SYNC}={replicas}`",
        )


def _no_spare_replica(view: View, minimums: Mapping[str, int]) -> Iterator[Finding]:
    """Topics with several replicas of which none may fail. :param minimums: min.insync.replicas by topic."""
    topics = sorted(
        name
        for name, minimum in minimums.items()
        if any(1 < len(part.replicas) == minimum for part in view.topics[name].partitions)
    )
    if topics:
        lower = max(1, minimums[topics[0]] - 1)
        yield Finding(
            "warning",
            abbreviate(topics),
            f"{count(len(topics), 'topic')} whose {MIN_IN_SYNC} is the number of replicas",
            "writes with acks=all are refused as soon as one broker fails or restarts",
            f"lower {MIN_IN_SYNC}, e.g. `odradek config set --topic {topics[0]} {MIN_IN_SYNC}={lower}`, or add replicas",
        )


def _unclean_elections(cluster: Cluster, view: View) -> Iterator[Finding]:
    """Topics with several replicas that permit the election of a replica that is not in sync."""
    replicated = [name for name, info in view.topics.items() if any(len(part.replicas) > 1 for part in info.partitions)]
    entries = configs.of_topics(cluster, replicated, UNCLEAN) if replicated else {}
    topics = sorted(name for name, entry in entries.items() if entry.value == "true")
    if topics:
        yield Finding(
            "warning",
            abbreviate(topics),
            f"{count(len(topics), 'topic')} with {UNCLEAN}=true",
            "if all in-sync replicas fail, another replica becomes leader, and acknowledged records are lost without an error",
            f"`odradek config set --topic {topics[0]} {UNCLEAN}=false`, or set it to false for all brokers, unless it matters "
            "more that these topics can be written than that they keep their records",
        )


def _default_replicas(cluster: Cluster, view: View) -> dict[int, int]:
    """default.replication.factor of the brokers that give new topics more replicas than there are brokers.

    A broker that cannot be reached is left out: it has another finding.
    """

    def default(node_id: int, _: Connection) -> int:
        entry = configs.describe(cluster, configs.Resource("broker", str(node_id)), [DEFAULT_REPLICAS])
        return int(entry[DEFAULT_REPLICAS].value or 0) if DEFAULT_REPLICAS in entry else 0

    answers = cluster.of_each(view.brokers, default)
    return {
        node_id: value for node_id, value in answers.items() if isinstance(value, int) and value > len(view.brokers)
    }


def _more_than_alive(view: View, refusing: Mapping[int, int]) -> Iterator[Finding]:
    """:param refusing: see `_default_replicas`."""
    if refusing:
        yield Finding(
            "error",
            abbreviate(f"broker {node_id}" for node_id in refusing),
            f"{DEFAULT_REPLICAS} is {max(refusing.values())}, but {count(len(view.brokers), 'broker')} of the cluster "
            f"{'is' if len(view.brokers) == 1 else 'are'} alive",
            "topics that clients create without a number of replicas are refused (INVALID_REPLICATION_FACTOR)",
            f"start the brokers that are down, or lower {DEFAULT_REPLICAS} and restart the brokers",
        )


def _offsets_topic(view: View) -> Iterator[Finding]:
    info = view.topics.get(INTERNAL_OFFSETS)
    if info is not None and len(view.brokers) > 1 and any(len(part.replicas) < 2 for part in info.partitions):
        yield Finding(
            "warning",
            INTERNAL_OFFSETS,
            f"the topic has partitions with one replica in a cluster of {len(view.brokers)} brokers",
            "the loss of one broker loses the committed offsets of the groups that it coordinates",
            "add replicas with a reassignment of the topic's partitions",
        )


def _names(partitions: Sequence[Partition]) -> str:
    return abbreviate(f"{part.topic}-{part.number}" for part in partitions)


def _replicas(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, sorted({node for part in partitions for node in part.replicas})))
