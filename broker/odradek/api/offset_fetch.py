"""OffsetFetch (9): returns the committed offsets of groups. Executed by the coordinator, in its loop.

Version 0 reads the metadata tree; versions 1 and later return the offsets in `__consumer_offsets`. Offsets of open transactions
are never returned; a client that requires stable offsets (from version 7 on) receives an error for their partitions. In a
cluster it also never receives the offsets of a coordinator that was deposed and has not learned of it: with them, it would
process again what a transaction has processed.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.group_call import GroupCall, Pause
from odradek.controller.store_errors import code_of
from odradek.groups.offsets import CommittedOffset, Offsets
from odradek.metadata.group_offsets import may_be_in_tree
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_fetch
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.groups")

FIRST_WITH_GROUPS = 8
FIRST_BY_ID = 10
FIRST_WITH_ERROR = 2
NOTHING = CommittedOffset(-1)

Response = offset_fetch.Response


async def handle(request: Any, call: GroupCall) -> Any:
    """Return the offsets; -1 for partitions without a committed offset."""
    pause = Pause()
    if call.version >= FIRST_WITH_GROUPS:
        # A group is answered once: the response may be a thousand times as large as its request.
        groups: dict[str, Any] = {}
        async for group in pause.between(request.groups):
            groups.setdefault(group.group_id, group)
        stable = request.require_stable
        answered = new_array()
        async for group in pause.between(groups.values()):
            answered.append(await _group(group, stable, call, pause))
        return Response(groups=answered)
    if call.version == 0:
        return Response(topics=await _from_tree(request, call, pause))
    error = await _confirmed(request.group_id, request.require_stable, call)
    offsets = Offsets()
    if error is ErrorCode.NONE:
        error, offsets = call.view.groups.fetch(request.group_id)
    unstable = _unstable(request.group_id, request.require_stable, call)
    requested = _requested(request.topics, offsets)
    # Before version 2, the response has no error code of its own: each partition contains it.
    partition_error = error if call.version < FIRST_WITH_ERROR else ErrorCode.NONE
    if error is not ErrorCode.NONE and not partition_error:
        return Response(error_code=error)
    response = Response()
    make = Response.OffsetFetchResponsePartition
    async for name, partitions in pause.between(requested):
        rows = new_array()
        async for p in pause.between(partitions):
            rows.append(_partition(make, p, offsets.get(name, p), partition_error, (name, p) in unstable))
        response.topics.append(Response.OffsetFetchResponseTopic(name=name, partitions=rows))
    return response


def _unstable(group_id: str, required: bool, call: GroupCall) -> Collection[TopicPartition]:
    """The places whose offsets open transactions may change, if the client requires stable offsets."""
    return call.view.groups.unstable_places(group_id) if required else ()


async def _confirmed(group_id: str, required: bool, call: GroupCall) -> ErrorCode:
    """NONE once it is certain that this broker coordinates the group, if the client requires stable offsets."""
    return await call.view.confirm(group_id) if required else ErrorCode.NONE


def _partition(
    make: Any,
    partition: int,
    committed: CommittedOffset | None,
    error: ErrorCode = ErrorCode.NONE,
    unstable: bool = False,
) -> Any:
    if unstable and not error:
        committed, error = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
    offset = committed or NOTHING
    return make(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        error_code=error,
    )


def _requested(topics: Any, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> Iterable[tuple[str, list[int]]]:
    """The requested topics and partitions; all with a committed offset if none are named."""
    if topics is not None:
        return ((topic.name, topic.partition_indexes) for topic in topics)
    everything: dict[str, list[int]] = {}
    for topic, partition, _ in offsets:
        everything.setdefault(topic, []).append(partition)
    return everything.items()


async def _group(group: Any, require_stable: bool, call: GroupCall, pause: Pause) -> Any:
    make = Response.OffsetFetchResponseGroup
    error = await _confirmed(group.group_id, require_stable, call)
    if error is not ErrorCode.NONE:
        return make(group_id=group.group_id, error_code=error)
    error, offsets = call.view.groups.fetch(group.group_id, group.member_id, group.member_epoch)
    if error is not ErrorCode.NONE:
        return make(group_id=group.group_id, error_code=error)
    unstable = _unstable(group.group_id, require_stable, call)
    response = make(group_id=group.group_id)
    partition = Response.OffsetFetchResponsePartitions
    if call.version < FIRST_BY_ID or group.topics is None:
        async for name, partitions in pause.between(_requested(group.topics, offsets)):
            topic = call.topic(name)
            if call.version >= FIRST_BY_ID and topic is None:
                continue  # a deleted topic has no id any more
            response.topics.append(
                Response.OffsetFetchResponseTopics(
                    name=name,
                    topic_id=topic.topic_id if topic is not None else bytes(16),
                    partitions=[
                        _partition(partition, p, offsets.get(name, p), unstable=(name, p) in unstable)
                        async for p in pause.between(partitions)
                    ],
                )
            )
        return response
    async for requested in pause.between(group.topics):
        topic = call.topic_by_id(requested.topic_id)
        rows = new_array()
        async for p in pause.between(requested.partition_indexes):
            if topic is None:
                rows.append(_partition(partition, p, None, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                place = topic.name, p
                rows.append(_partition(partition, p, offsets.get(*place), unstable=place in unstable))
        response.topics.append(Response.OffsetFetchResponseTopics(topic_id=requested.topic_id, partitions=rows))
    return response


async def _from_tree(request: Any, call: GroupCall, pause: Pause) -> list[Any]:
    places: list[TopicPartition] = []
    async for topic in pause.between(request.topics):
        places += [(topic.name, p) async for p in pause.between(topic.partition_indexes)]
    offsets: dict[TopicPartition, int] = {}
    failure = ErrorCode.NONE
    if may_be_in_tree(request.group_id):
        try:
            offsets = await call.view.tree.read(request.group_id, places)
        except StoreError as error:
            log.warning("cannot read the offsets of group %s in the metadata tree: %s", request.group_id, error)
            failure = code_of(error)
    make = Response.OffsetFetchResponseTopic
    topics = new_array()
    async for topic in pause.between(request.topics):
        rows = new_array()
        async for p in pause.between(topic.partition_indexes):
            known = call.topic(topic.name)
            exists = known is not None and known.exists(p)
            offset = offsets.get((topic.name, p))
            code = ErrorCode.NONE if exists and offset is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            committed = None if offset is None else CommittedOffset(offset)
            rows.append(_partition(Response.OffsetFetchResponsePartition, p, committed, failure or code))
        topics.append(make(name=topic.name, partitions=rows))
    return topics
