"""Begins, lists and cancels reassignments of partitions, and shows their progress. Functions over a `Cluster`.

The controller executes reassignments, also when the client has ended. A plan is `odradek.clients.move_plan`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError
from odradek.clients.move_plan import Assigned, Move
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition_reassignments, list_partition_reassignments
from odradek.topic_partition import TopicPartition

AT_A_TIME = 200
"""The maximum number of partitions in one request."""
WITH_FACTOR_CHANGE = 1
"""The first version of AlterPartitionReassignments that can forbid another number of replicas."""

Item = TypeVar("Item")


class Ongoing(NamedTuple):
    """A reassignment in progress. :param replicas: all present replicas, also those that it adds or removes."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def place(self) -> TopicPartition:
        """The topic and the number."""
        return self.topic, self.number

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at its end."""
        return tuple(broker_id for broker_id in self.replicas if broker_id not in self.removing)


class Copied(NamedTuple):
    """The progress of a replica. :param bytes_: in its log. :param lag: offsets that it lacks; None: unknown."""

    bytes_: int
    lag: int | None


def ongoing(cluster: Cluster) -> list[Ongoing]:
    """The reassignments in progress, by topic and partition. Raises RefusedError, ClientError."""
    api = list_partition_reassignments
    request = api.Request(timeout_ms=_milliseconds(cluster))
    try:
        response = cluster.ask_controller(api.SCHEMA, request, lambda response: [response.error_code])
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}: moves of partitions need Odradek, or Kafka 2.4 or newer") from None
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message, "the reassignments in progress")
    return sorted(
        Ongoing(
            topic.name,
            partition.partition_index,
            tuple(partition.replicas),
            tuple(partition.adding_replicas),
            tuple(partition.removing_replicas),
        )
        for topic in response.topics
        for partition in topic.partitions
    )


def assigned(view: View, in_progress: Iterable[Ongoing]) -> list[Assigned]:
    """All partitions of a view as `move_plan` needs them. :param in_progress: the reassignments in progress."""
    targets = {each.place: each.target for each in in_progress}
    return [
        Assigned(
            partition.topic,
            partition.number,
            partition.leader,
            targets.get((partition.topic, partition.number), partition.replicas),
            partition.replicas,
            partition.in_sync,
        )
        for topic in view.topics.values()
        for partition in topic.partitions
    ]


def begin(
    cluster: Cluster, moves: Sequence[Move], begun: Callable[[int], object] = lambda number: None
) -> dict[TopicPartition, str]:
    """Begin reassignments, or replace those in progress. Returns the errors of those that were refused. Raises ClientError.

    The metadata of a broker can still show all replicas of a reassignment that has ended. A plan from them would change the
    replication factor, so the controller is asked to refuse that, if it supports this.

    :param begun: called with the number of partitions of each request that got its response.
    """
    failures: dict[TopicPartition, str] = {}
    idle = [move for move in moves if move.partition.replicas == move.partition.present]
    moving = [move for move in moves if move.partition.replicas != move.partition.present]
    for group, factor_may_change in ((idle, False), (moving, True)):
        for batch in _batches(group):
            failures |= _alter(cluster, {move.partition.place: move.target for move in batch}, factor_may_change)
            begun(len(batch))
    return failures


def cancel(
    cluster: Cluster, places: Sequence[TopicPartition], done: Callable[[int], object] = lambda number: None
) -> dict[TopicPartition, str]:
    """Cancel reassignments. One that has ended meanwhile is no error. Returns the errors. Raises ClientError.

    :param done: called with the number of partitions of each request that got its response.
    """
    failures: dict[TopicPartition, str] = {}
    for batch in _batches(places):
        failures |= _alter(cluster, dict.fromkeys(batch))
        done(len(batch))
    return failures


def _alter(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], factor_may_change: bool = True
) -> dict[TopicPartition, str]:
    """:param factor_may_change: False: let the controller refuse another number of replicas than a partition has."""
    api = alter_partition_reassignments
    make = api.Request
    topics: dict[str, Any] = {}
    for (name, number), replicas in targets.items():
        topic = topics.setdefault(name, make.ReassignableTopic(name=name))
        target = None if replicas is None else list(replicas)
        topic.partitions.append(make.ReassignablePartition(partition_index=number, replicas=target))
    request = make(
        timeout_ms=_milliseconds(cluster),
        allow_replication_factor_change=factor_may_change,
        topics=list(topics.values()),
    )

    def ask(oldest: int) -> Any:
        return cluster.ask_controller(
            api.SCHEMA,
            request,
            lambda response: [
                response.error_code,
                *(partition.error_code for topic in response.responses for partition in topic.partitions),
            ],
            oldest=oldest,
        )

    try:
        response = ask(0 if factor_may_change else WITH_FACTOR_CHANGE)
    except UnsupportedError:
        if factor_may_change:
            raise
        request.allow_replication_factor_change = True
        response = ask(0)
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message, "the reassignment")
    return {
        (topic.name, partition.partition_index): str(RefusedError(partition.error_code, partition.error_message))
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    }


def copies(
    cluster: Cluster, wanted: Mapping[int, Collection[TopicPartition]]
) -> tuple[dict[tuple[TopicPartition, int], Copied], dict[int, str]]:
    """The progress of replicas, by partition and broker; and the brokers that did not report it, with the reason.

    Raises ClientError.

    :param wanted: the partitions, by the broker of their replica.
    """
    known: dict[tuple[TopicPartition, int], Copied] = {}
    failures: dict[int, str] = {}
    registered = cluster.view(fresh=True).brokers
    asked = [broker_id for broker_id in wanted if broker_id in registered]
    answers = cluster.of_each(asked, lambda broker_id, connection: _described(connection, wanted[broker_id]))
    for broker_id in wanted:
        answer = answers.get(broker_id)
        if answer is None or isinstance(answer, ClientError):
            failures[broker_id] = "the broker is not registered" if answer is None else str(answer)
            continue
        for place, copied in answer.items():
            known[place, broker_id] = copied
    return known, failures


def stored(cluster: Cluster, broker_ids: Collection[int]) -> dict[int, list[TopicPartition] | ClientError]:
    """The partitions that have a log at these brokers, also of topics that this user may not describe; or why it is not known.

    Raises ClientError if no bootstrap server responds.
    """
    answers = cluster.of_each(broker_ids, lambda _, connection: _described(connection, None))
    return {
        broker_id: answer if isinstance(answer, ClientError) else sorted(answer)
        for broker_id, answer in answers.items()
    }


def _described(connection: Connection, places: Collection[TopicPartition] | None) -> dict[TopicPartition, Copied]:
    """What a broker has of these partitions, or of all (None)."""
    from odradek.protocol.schemas import describe_log_dirs as api

    make = api.Request
    topics: dict[str, Any] = {}
    for name, number in sorted(places or ()):
        topics.setdefault(name, make.DescribableLogDirTopic(topic=name)).partitions.append(number)
    response = connection.ask(api.SCHEMA, make(topics=None if places is None else list(topics.values())))
    if response.error_code:
        raise RefusedError(response.error_code)
    return {
        (topic.name, partition.partition_index): Copied(
            partition.partition_size, partition.offset_lag if partition.offset_lag >= 0 else None
        )
        for directory in response.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, AT_A_TIME)):
        yield batch


def _milliseconds(cluster: Cluster) -> int:
    return max(500, int(cluster.timeout_s * 1000) - 500)
