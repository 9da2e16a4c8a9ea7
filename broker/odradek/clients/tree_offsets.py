"""Offsets that groups keep in the metadata tree, as clients of Kafka 0.8 do. Functions over a `Cluster`.

OffsetFetch and OffsetCommit of version 0 read and write the offsets of a given group. Only ListTreeOffsets, an API of Odradek's
own, lists the groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.clients.cluster import Cluster
from odradek.clients.errors import Refused, Unsupported, code_of
from odradek.protocol.errors import ErrorCode

Place = tuple[str, int]

GROUPS_AT_ONCE = 1000
"""In one request: a broker closes the connection for requests with too many elements."""


def groups(cluster: Cluster) -> list[str]:
    """The groups in the tree, by name; none if the broker does not serve ListTreeOffsets. Raises Refused, ClientError."""
    answer = _listed(cluster, None)
    return sorted(one.group_id for one in answer.groups) if answer is not None else []


def of_groups(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, dict[Place, int]]:
    """All offsets that these groups have in the tree; without groups that have none. Raises Refused, ClientError."""
    found = {}
    for first in range(0, len(group_ids), GROUPS_AT_ONCE):
        answer = _listed(cluster, group_ids[first : first + GROUPS_AT_ONCE])
        for one in answer.groups if answer is not None else ():
            found[one.group_id] = {
                (topic.name, part.partition_index): part.committed_offset
                for topic in one.topics
                for part in topic.partitions
            }
    return found


def _listed(cluster: Cluster, group_ids: Sequence[str] | None) -> Any:
    from odradek.protocol.schemas import list_tree_offsets as api

    request = api.Request(group_ids=None if group_ids is None else list(group_ids))
    try:
        answer = cluster.ask_controller(api.SCHEMA, request, lambda answer: [answer.error_code])
    except Unsupported:
        return None
    if answer.error_code:
        raise Refused(answer.error_code, answer.error_message, "the groups in the metadata tree")
    return answer


def fetch(cluster: Cluster, group_id: str, places: Sequence[Place]) -> dict[Place, int]:
    """Those offsets of a group that the metadata tree holds (OffsetFetch of version 0). Raises Unsupported, ClientError."""
    from odradek.protocol.schemas import offset_fetch as api

    make = api.Request
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    request = make(
        group_id=group_id,
        topics=[make.OffsetFetchRequestTopic(name=name, partition_indexes=ones) for name, ones in topics.items()],
    )
    answer = _of_tree(lambda: cluster.ask(api.SCHEMA, request, newest=0))
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise Refused(part.error_code, what=f"the offset of {topic.name}-{part.partition_index} in the tree")
            if not part.error_code and part.committed_offset >= 0:
                found[topic.name, part.partition_index] = part.committed_offset
    return found


def commit(cluster: Cluster, group_id: str, offsets: Mapping[Place, int]) -> dict[Place, ErrorCode]:
    """Write offsets of a group into the metadata tree: the places that were refused. Raises Unsupported, ClientError."""
    from odradek.protocol.schemas import offset_commit as api

    make = api.Request
    topics: dict[str, list[Any]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            make.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        )
    request = make(
        group_id=group_id,
        topics=[make.OffsetCommitRequestTopic(name=name, partitions=ones) for name, ones in topics.items()],
    )
    answer = _of_tree(lambda: cluster.ask(api.SCHEMA, request, newest=0))
    return {
        (topic.name, part.partition_index): code_of(part.error_code)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code
    }


def _of_tree(ask: Any) -> Any:
    try:
        return ask()
    except Unsupported as error:
        raise Unsupported(
            f"{error}: a broker without a metadata tree (Kafka from 4.0 on) keeps offsets in __consumer_offsets alone"
        ) from None
