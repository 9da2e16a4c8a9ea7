"""Offsets that groups keep in the metadata tree, as clients of Kafka 0.8 do. Functions over a `Cluster`.

OffsetFetch and OffsetCommit of version 0 read and write the offsets of one group. Only Odradek's private API ListTreeOffsets
lists the groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError, code_of
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

GROUPS_AT_ONCE = 1000
"""Groups in one request: a broker closes the connection for requests with too many elements."""


def groups(cluster: Cluster) -> list[str]:
    """Ids of the groups in the tree, sorted; none if the broker does not serve ListTreeOffsets.

    Raises RefusedError, ClientError.
    """
    response = _list(cluster, None)
    return sorted(group.group_id for group in response.groups) if response is not None else []


def of_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """All offsets of these groups in the tree; groups without offsets are omitted. Raises RefusedError, ClientError."""
    offsets = {}
    for first in range(0, len(group_ids), GROUPS_AT_ONCE):
        response = _list(cluster, group_ids[first : first + GROUPS_AT_ONCE])
        for group in response.groups if response is not None else ():
            offsets[group.group_id] = {
                (topic.name, part.partition_index): part.committed_offset
                for topic in group.topics
                for part in topic.partitions
            }
    return offsets


def may_have_offsets(cluster: Cluster, group_id: str) -> bool:
    """Whether the metadata tree has offsets of the group; True also if that cannot be found out."""
    try:
        return bool(of_groups(cluster, [group_id]).get(group_id))
    except ClientError:
        return True


def _list(cluster: Cluster, group_ids: Sequence[str] | None) -> Any:
    from odradek.protocol.schemas import list_tree_offsets as api

    request = api.Request(group_ids=None if group_ids is None else list(group_ids))
    try:
        response = cluster.ask_controller(api.SCHEMA, request, lambda response: [response.error_code])
    except UnsupportedError:
        return None
    if response.error_code:
        what = "cannot list the groups in the metadata tree"
        if group_ids:
            first = f"'{group_ids[0]}'"
            what = f"group {first}" if len(group_ids) == 1 else f"one of {len(group_ids)} groups ({first}, ...)"
        raise RefusedError(response.error_code, response.error_message, what)
    return response


def fetch(cluster: Cluster, group_id: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets of a group in the metadata tree (OffsetFetch version 0). Raises UnsupportedError, ClientError."""
    from odradek.protocol.schemas import offset_fetch as api

    make = api.Request
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    request = make(
        group_id=group_id,
        topics=[make.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
    )
    response = _call(lambda: cluster.ask(api.SCHEMA, request, newest=0))
    offsets = {}
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise RefusedError(
                    part.error_code,
                    what=f"cannot read the offset of {topic.name}-{part.partition_index} in the metadata tree",
                )
            if not part.error_code and part.committed_offset >= 0:
                offsets[topic.name, part.partition_index] = part.committed_offset
    return offsets


def commit(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
    """Write offsets of a group into the metadata tree; return the errors of failed partitions.

    Raises UnsupportedError, ClientError.
    """
    from odradek.protocol.schemas import offset_commit as api

    make = api.Request
    topics: dict[str, list[Any]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            make.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        )
    request = make(
        group_id=group_id,
        topics=[make.OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    response = _call(lambda: cluster.ask(api.SCHEMA, request, newest=0))
    return {
        (topic.name, part.partition_index): code_of(part.error_code)
        for topic in response.topics
        for part in topic.partitions
        if part.error_code
    }


def _call(ask: Any) -> Any:
    try:
        return ask()
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error}: a broker without a metadata tree (Kafka 4.0 and later) stores offsets only in __consumer_offsets"
        ) from None
