"""Whether a cluster is ready: all brokers are registered and respond, and all replicas are in sync. Functions over a `Cluster`.

The metadata of a single broker can be out of date: a broker that was killed stays registered, and its replicas stay in sync,
until its session ends. Therefore a cluster counts as ready only if each registered broker responds at its advertised address,
knows that it is registered itself, and shows the same result. A state that is out of date can delay the result, not falsify it.

Metadata hide topics that the user may not describe. Therefore each broker is also asked which logs it has.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.clients import moves
from odradek.clients.cluster import Address, Cluster
from odradek.clients.errors import ClientError, UnsupportedError, describe_code
from odradek.clients.wire import Connection
from odradek.protocol.schemas import metadata
from odradek.topic_partition import TopicPartition

NO_LEADER = -1
METADATA_LOG = "__cluster_metadata"  # of Kafka in KRaft mode; no client sees it as a topic
TOPICS_SHOWN = 5


class Wanted(NamedTuple):
    """What to wait for. :param ids: brokers that must be registered. :param number: how many must be registered, at least.

    :param in_sync: whether every partition must have a leader and all its replicas in sync.
    """

    ids: frozenset[int] = frozenset()
    number: int = 0
    in_sync: bool = False


class Unready(NamedTuple):
    """A partition that is not ready, or a topic (`number` -1) with an error. :param missing: replicas that are not in sync."""

    topic: str
    number: int
    leader: int
    missing: tuple[int, ...]
    problem: str | None = None

    def __str__(self) -> str:
        if self.number < 0:
            return f"topic {self.topic}: {self.problem}"
        name = f"{self.topic}-{self.number}"
        if self.problem is not None:
            return f"{name}: {self.problem}"
        leader = "no leader" if self.leader < 0 else f"leader {self.leader}"
        absent = f"; replicas not in sync: {_ids(self.missing)}" if self.missing else ""
        return f"{name}: {leader}{absent}"


@dataclass
class Readiness:
    """The result of a look. The cluster is ready if nothing is missing.

    :ivar brokers: ids of the registered brokers. :ivar unregistered: the wanted ids that are not registered.
    :ivar short: how many more brokers must be registered, or must respond.
    :ivar silent: registered brokers that did not respond, with the reason. :ivar stale: brokers whose metadata is out of date,
        with what is different. :ivar hidden: brokers that have logs of other topics than the metadata show, with the reason.
    :ivar partitions: the partitions that were checked. :ivar unready: those that are not ready.
    """

    brokers: Mapping[int, Address]
    unregistered: Sequence[int] = ()
    short: int = 0
    silent: Mapping[int, str] = field(default_factory=dict)
    stale: Mapping[int, str] = field(default_factory=dict)
    hidden: Mapping[int, str] = field(default_factory=dict)
    partitions: int = 0
    unready: Sequence[Unready] = ()

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not (self.unregistered or self.short > 0 or self.silent or self.stale or self.hidden or self.unready)

    def lines(self, wanted: Wanted, shown: int) -> list[str]:
        """What is missing, one line each. :param shown: the maximum number of partitions that are named."""
        found = [f"broker {broker_id} is not registered" for broker_id in self.unregistered]
        if self.short > 0:
            found.append(
                f"{max(wanted.number - self.short, 0)} of {wanted.number} brokers are ready; registered: {_ids(self.brokers)}"
            )
        found += [
            f"broker {broker_id} is registered, but {reason}" for broker_id, reason in sorted(self.silent.items())
        ]
        found += [f"broker {broker_id}: {reason}" for broker_id, reason in sorted(self.stale.items())]
        found += [f"broker {broker_id} {reason}" for broker_id, reason in sorted(self.hidden.items())]
        absent = {broker_id for partition in self.unready for broker_id in partition.missing} - self.brokers.keys()
        found += [
            f"broker {broker_id} is not registered, and has replicas of partitions"
            for broker_id in sorted(absent.difference(self.unregistered))
        ]
        found += map(str, self.unready[:shown])
        if len(self.unready) > shown:
            found.append(f"and {len(self.unready) - shown} more partitions that are not ready")
        return found


class _Answer(NamedTuple):
    """What one broker shows."""

    brokers: Mapping[int, Address]
    topics: frozenset[str]
    partitions: int
    unready: list[Unready]


def look(cluster: Cluster, wanted: Wanted) -> Readiness:
    """Look once. Raises ClientError if no bootstrap server responds.

    First one broker is asked. If it shows that nothing is missing, the registered brokers are asked.
    """
    first = _ask(cluster.any_broker(), wanted.in_sync)
    seen = Readiness(first.brokers, partitions=first.partitions, unready=first.unready)
    seen.unregistered = sorted(wanted.ids - first.brokers.keys())
    seen.short = max(wanted.number - len(first.brokers), 0)
    if not seen.ready:
        return seen
    cluster.view(fresh=True)  # for the addresses of brokers that have just been registered
    asked = wanted.ids if wanted.ids and not wanted.in_sync and not wanted.number else frozenset(first.brokers)
    answers = cluster.of_each(asked, lambda _, connection: _ask(connection, wanted.in_sync))
    seen = _confirmed(seen, wanted, answers)
    if seen.ready and wanted.in_sync:
        seen.hidden = _hidden(moves.stored(cluster, seen.brokers.keys()), first.topics)
    return seen


def _hidden(stored: Mapping[int, Sequence[TopicPartition] | ClientError], shown: frozenset[str]) -> dict[int, str]:
    """The brokers that have logs of topics that were not checked, with the reason. Kafka before 1.0 cannot be asked."""
    found = {}
    for broker_id, logs in stored.items():
        if isinstance(logs, UnsupportedError):
            continue
        if isinstance(logs, ClientError):
            found[broker_id] = f"does not say which logs it has, so there may be topics that were not checked: {logs}"
        elif topics := sorted({topic for topic, _ in logs} - shown - {METADATA_LOG}):
            more = f" and {len(topics) - TOPICS_SHOWN} more" if len(topics) > TOPICS_SHOWN else ""
            found[broker_id] = (
                f"has logs of {', '.join(topics[:TOPICS_SHOWN])}{more}: this user may not describe these topics, or they are "
                "being deleted"
            )
    return found


def _confirmed(seen: Readiness, wanted: Wanted, answers: Mapping[int, _Answer | ClientError]) -> Readiness:
    """The result after the brokers of `answers` were asked."""
    silent: dict[int, str] = {}
    stale: dict[int, str] = {}
    unready: dict[TopicPartition, Unready] = {}
    for broker_id, answer in answers.items():
        if isinstance(answer, ClientError):
            silent[broker_id] = f"does not respond: {answer}"
            continue
        unknown = sorted(({broker_id} | wanted.ids) - answer.brokers.keys())
        if wanted.in_sync:
            unknown = sorted(seen.brokers.keys() - answer.brokers.keys())
        if unknown:
            stale[broker_id] = f"its metadata does not contain broker {_ids(unknown)} yet"
        for partition in answer.unready:
            unready.setdefault((partition.topic, partition.number), partition)
    seen.stale, seen.unready = stale, [unready[place] for place in sorted(unready)]
    if wanted.number and not wanted.in_sync:  # further brokers may be away
        seen.short = max(wanted.number - (len(answers) - len(silent)), 0)
        seen.silent = {
            broker_id: reason for broker_id, reason in silent.items() if seen.short or broker_id in wanted.ids
        }
    else:
        seen.silent = silent
    return seen


def _ask(connection: Connection, with_topics: bool) -> _Answer:
    request = metadata.Request(topics=None if with_topics else [], allow_auto_topic_creation=False)
    response = connection.ask(metadata.SCHEMA, request, oldest=1)
    return _Answer(
        {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers},
        frozenset(topic.name for topic in response.topics),
        sum(len(topic.partitions) for topic in response.topics),
        [found for topic in response.topics for found in _unready(topic)],
    )


def _unready(topic: Any) -> list[Unready]:
    """What is missing in a topic of a Metadata response."""
    if topic.error_code:
        return [Unready(topic.name, -1, NO_LEADER, (), describe_code(topic.error_code))]
    numbers = {partition.partition_index for partition in topic.partitions}
    unknown = sorted(set(range(max(numbers, default=0) + 1)) - numbers)
    found = [Unready(topic.name, number, NO_LEADER, (), "the broker does not know its state yet") for number in unknown]
    for partition in topic.partitions:
        missing = tuple(broker_id for broker_id in partition.replica_nodes if broker_id not in partition.isr_nodes)
        if partition.leader_id < 0 or missing:
            found.append(Unready(topic.name, partition.partition_index, partition.leader_id, missing))
    return found


def _ids(broker_ids: Collection[int]) -> str:
    return ", ".join(map(str, sorted(broker_ids))) or "none"
