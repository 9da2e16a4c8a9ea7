"""The number of members and the lag of many groups, with few requests: each coordinator is asked for many groups at once, and
each leader once for the ends of all partitions. Functions over a `Cluster`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, UnsupportedError
from odradek.clients.groups import GroupListing
from odradek.clients.wire import Connection
from odradek.topic_partition import TopicPartition

Value = TypeVar("Value")
GROUPS_AT_ONCE = 100
"""Groups in one request: each may have offsets of many partitions."""


def members(cluster: Cluster, listed: Iterable[GroupListing]) -> dict[str, int]:
    """The number of members by group; groups that the coordinator does not describe are omitted. Raises ClientError."""
    from odradek.protocol.schemas import consumer_group_describe, describe_groups

    def described(connection: Connection, part: Sequence[GroupListing]) -> dict[str, int]:
        classic = [group.group_id for group in part if group.type != "Consumer"]
        consumer = [group.group_id for group in part if group.type == "Consumer"]
        answers: list[Any] = []
        if classic:
            answers += connection.ask(describe_groups.SCHEMA, describe_groups.Request(groups=classic)).groups
        if consumer:
            request = consumer_group_describe.Request(group_ids=consumer)
            answers += connection.ask(consumer_group_describe.SCHEMA, request).groups
        return {group.group_id: len(group.members) for group in answers if not group.error_code}

    shared = [group for group in listed if group.type in ("", "Classic", "Consumer")]
    return _of_coordinators(cluster, shared, described)


def committed(cluster: Cluster, listed: Iterable[GroupListing]) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets by group; groups whose offsets the coordinator does not return are omitted. Raises ClientError."""
    from odradek.protocol.schemas import offset_fetch as api

    def fetched(connection: Connection, part: Sequence[GroupListing]) -> dict[str, dict[TopicPartition, int]]:
        make = api.Request
        named = [make.OffsetFetchRequestGroup(group_id=group.group_id, topics=None) for group in part]
        try:
            version = connection.version_of(api.SCHEMA, oldest=groups.FIRST_WITH_GROUPS, newest=groups.NEWEST_BY_NAME)
        except UnsupportedError:
            answers = [
                (
                    name.group_id,
                    connection.ask(api.SCHEMA, make(group_id=name.group_id, topics=None), oldest=2, newest=7),
                )
                for name in named
            ]
        else:
            response = connection.ask(api.SCHEMA, make(groups=named), oldest=version, newest=version)
            answers = [(group.group_id, group) for group in response.groups]
        return {
            group_id: {place: committed.offset for place, committed in groups.committed_in(answer).items()}
            for group_id, answer in answers
            if not answer.error_code
        }

    return _of_coordinators(cluster, listed, fetched)


def lags(cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, int | None]:
    """The records that each group has not read; None if no committed offset is of a partition with a leader.

    Raises ClientError.

    :param offsets: the committed offsets by group. They must be read before this reads the ends, so that no lag is negative.
    """
    places = {place for of_group in offsets.values() for place in of_group}
    infos = cluster.metadata({name for name, _ in places}).topics.values()
    partitions = [part for info in infos for part in info.partitions if (part.topic, part.number) in places]
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    known = {place: end.offset for place, end in ends.items() if not end.error}

    def total(of_group: Mapping[TopicPartition, int]) -> int | None:
        behind = [max(0, known[place] - offset) for place, offset in of_group.items() if place in known]
        return sum(behind) if behind else None

    return {group_id: total(of_group) for group_id, of_group in offsets.items()}


def _of_coordinators(
    cluster: Cluster,
    listed: Iterable[GroupListing],
    ask: Callable[[Connection, Sequence[GroupListing]], dict[str, Value]],
) -> dict[str, Value]:
    """The merged results of `ask` for all groups, at most `GROUPS_AT_ONCE` at a time, at all coordinators at the same time."""
    coordinated: dict[int, list[GroupListing]] = {}
    for group in listed:
        coordinated.setdefault(group.coordinator, []).append(group)

    def parts(node_id: int) -> Iterator[Sequence[GroupListing]]:
        of_node = coordinated[node_id]
        return (of_node[first : first + GROUPS_AT_ONCE] for first in range(0, len(of_node), GROUPS_AT_ONCE))

    results: dict[str, Value] = {}
    answers = cluster.of_each(
        coordinated, lambda node_id, connection: [ask(connection, part) for part in parts(node_id)]
    )
    for answer in answers.values():
        if isinstance(answer, ClientError):
            raise answer
        for part in answer:
            results |= part
    return results
