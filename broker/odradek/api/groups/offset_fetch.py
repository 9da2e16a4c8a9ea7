"""OffsetFetch (9): returns the committed offsets of groups. Executed by the coordinator, in its loop.

Version 0 reads the metadata tree; versions 1 and later return the offsets in `__consumer_offsets`. Offsets of open transactions
are never returned; a client that requires stable offsets (from version 7 on) receives an error for their partitions. In a
cluster it also never receives the offsets of a coordinator that was deposed and has not learned of it: with them, it would
process again what a transaction has processed.
"""

import logging
from collections.abc import Collection, Generator, Iterable
from typing import Any

from odradek._ext.api.offset_commits import CommittedOffset
from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.elements import Elements
from odradek.api.groups.group_call import GroupCall, result_of
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    made_in_steps,
    refused_whole,
    shown_in_steps,
    taken_out,
)
from odradek.api.permits import NAMES_A_STEP
from odradek.controller.store_errors import code_of
from odradek.groups.offsets import Offsets
from odradek.metadata.group_offsets import may_be_in_tree
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import offset_fetch
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    each,
)
from odradek.stepwise import Pace, Steps
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.groups")

ELEMENTS_A_STEP = 500
FIRST_WITH_GROUPS = 8
FIRST_BY_ID = 10
FIRST_WITH_ERROR = 2
NOTHING = CommittedOffset(-1)

Response = offset_fetch.Response
BY_PARTITION = Elements(
    offset_fetch.SCHEMA,
    "topics.partition_indexes",
    "topics.partitions",
    values={"committed_offset": -1, "metadata": ""},
)
API = Api(
    offset_fetch.SCHEMA,
    versions=(0, 10),
    place=Place.GROUPS,
    rights=each(
        (Operation.DESCRIBE, GROUP),
        (Operation.DESCRIBE, TOPIC),
        refused=f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition",
        note="of all offsets of a group, those of hidden topics are left out",
    ),
    per_partition=2,
    refused={0: BY_PARTITION, FIRST_WITH_ERROR: None},
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups and on the topics. Of all offsets of a group, those of denied topics are left out."""
    if asked.version >= FIRST_WITH_GROUPS:
        return (yield from _of_groups(asked))
    request, permits = asked.request, asked.permits
    if not permits.group(Operation.DESCRIBE, request.group_id):
        return (yield from refused_whole(offset_fetch.API_KEY, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    make = offset_fetch.Response
    refused: list[Any] = []
    everything = request.topics is None
    if not everything:

        def refuse(topic: Any) -> Any:
            partitions = yield from made_in_steps(
                topic.partition_indexes,
                lambda partition: make.OffsetFetchResponsePartition(
                    partition_index=partition,
                    committed_offset=-1,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ),
            )
            return make.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)

        refused = yield from taken_out(asked, Operation.DESCRIBE, refuse)
        if not refused:
            return None

    def merge(response: Any) -> Steps:
        if response.error_code == ErrorCode.NONE:
            if everything:
                response.topics = yield from shown_in_steps(
                    response.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.name, quiet=True)
                )
            response.topics.extend(refused)
        return response

    return Merged(merge)


def _of_groups(asked: Asked) -> VerdictInSteps:
    """OffsetFetch from version 8 on, which names several groups."""
    request, permits = asked.request, asked.permits
    by_id = asked.version >= FIRST_BY_ID
    make = offset_fetch.Response
    groups: dict[str, Any] = {}
    pace = Pace(NAMES_A_STEP)
    for group in request.groups:
        groups.setdefault(group.group_id, group)
        if pace.over():
            yield
    denied_groups = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, groups)
    refused: dict[str, list[Any]] = {}
    everything: set[str] = set()
    allowed = new_array()
    for group_id, group in groups.items():
        if pace.over():
            yield
        if group_id in denied_groups:
            continue
        if group.topics is None:
            everything.add(group_id)
            allowed.append(group)
            continue
        kept = new_array()
        for topic in group.topics:
            name = asked.name_of(bytes(topic.topic_id)) if by_id else topic.name
            if name is not None and permits.topic(Operation.DESCRIBE, name):
                kept.append(topic)
            else:
                # The handler does not get an id without a topic either: the topic may exist when the handler looks for it.
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.setdefault(group_id, []).append((yield from _refused_topic(topic, code)))
            if pace.over():
                yield
        allowed.append(
            offset_fetch.Request.OffsetFetchRequestGroup(
                group_id=group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=kept
            )
        )
    if not (denied_groups or refused or everything):
        return None
    request.groups = allowed

    def visible(topic: Any) -> bool:
        name = asked.name_of(bytes(topic.topic_id)) if topic.topic_id != ZERO_UUID else topic.name
        return name is not None and permits.topic(Operation.DESCRIBE, name, quiet=True)

    def merge(response: Any) -> Steps:
        answered = {}
        for group in response.groups:
            answered[group.group_id] = group
            if group.error_code == ErrorCode.NONE:
                if group.group_id in everything:
                    group.topics = yield from shown_in_steps(group.topics, visible)
                group.topics.extend(refused.get(group.group_id, ()))
            if pace.over():
                yield
        results = new_array()
        for group_id in groups:
            if group_id in denied_groups:
                results.append(
                    make.OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
                )
            elif group_id in answered:
                results.append(answered[group_id])
            if pace.over():
                yield
        response.groups = results
        return response

    return Merged(merge)


def _refused_topic(topic: Any, code: ErrorCode) -> Generator[None, None, Any]:
    make = offset_fetch.Response
    partitions = yield from made_in_steps(
        topic.partition_indexes,
        lambda partition: make.OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, metadata="", error_code=code
        ),
    )
    return make.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def handle(request: offset_fetch.Request, call: GroupCall) -> Steps:
    """Return the offsets; -1 for partitions without a committed offset."""
    pace = Pace(ELEMENTS_A_STEP)
    if call.version >= FIRST_WITH_GROUPS:
        # A group is answered once: the response may be a thousand times as large as its request.
        groups: dict[str, Any] = {}
        for group in request.groups:
            if pace.over():
                yield
            groups.setdefault(group.group_id, group)
        stable = request.require_stable
        answered = new_array()
        for group in groups.values():
            if pace.over():
                yield
            answered.append((yield from _group(group, stable, call, pace)))
        return Response(groups=answered)
    if call.version == 0:
        return Response(topics=(yield from _from_tree(request, call, pace)))
    error = yield from _confirmed(request.group_id, request.require_stable, call)
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
    for name, partitions in requested:
        if pace.over():
            yield
        rows = new_array()
        for p in partitions:
            if pace.over():
                yield
            rows.append(_partition(make, p, offsets.get(name, p), partition_error, (name, p) in unstable))
        response.topics.append(Response.OffsetFetchResponseTopic(name=name, partitions=rows))
    return response


def _unstable(group_id: str, required: bool, call: GroupCall) -> Collection[TopicPartition]:
    """The places whose offsets open transactions may change, if the client requires stable offsets."""
    return call.view.groups.unstable_places(group_id) if required else ()


def _confirmed(group_id: str, required: bool, call: GroupCall) -> Generator[Any, None, ErrorCode]:
    """NONE once it is certain that this broker coordinates the group, if the client requires stable offsets."""
    return (yield from call.view.confirm(group_id)) if required else ErrorCode.NONE


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


def _group(group: Any, require_stable: bool, call: GroupCall, pace: Pace) -> Steps:
    make = Response.OffsetFetchResponseGroup
    error = yield from _confirmed(group.group_id, require_stable, call)
    if error is not ErrorCode.NONE:
        return make(group_id=group.group_id, error_code=error)
    error, offsets = call.view.groups.fetch(group.group_id, group.member_id, group.member_epoch)
    if error is not ErrorCode.NONE:
        return make(group_id=group.group_id, error_code=error)
    unstable = _unstable(group.group_id, require_stable, call)
    response = make(group_id=group.group_id)
    partition = Response.OffsetFetchResponsePartitions
    if call.version < FIRST_BY_ID or group.topics is None:
        for name, partitions in _requested(group.topics, offsets):
            if pace.over():
                yield
            topic = call.topic(name)
            if call.version >= FIRST_BY_ID and topic is None:
                continue  # a deleted topic has no id any more
            rows = new_array()
            for p in partitions:
                if pace.over():
                    yield
                rows.append(_partition(partition, p, offsets.get(name, p), unstable=(name, p) in unstable))
            response.topics.append(
                Response.OffsetFetchResponseTopics(
                    name=name,
                    topic_id=topic.topic_id if topic is not None else bytes(16),
                    partitions=rows,
                )
            )
        return response
    for requested in group.topics or ():
        if pace.over():
            yield
        topic = call.topic_by_id(requested.topic_id)
        rows = new_array()
        for p in requested.partition_indexes:
            if pace.over():
                yield
            if topic is None:
                rows.append(_partition(partition, p, None, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                place = topic.name, p
                rows.append(_partition(partition, p, offsets.get(*place), unstable=place in unstable))
        response.topics.append(Response.OffsetFetchResponseTopics(topic_id=requested.topic_id, partitions=rows))
    return response


def _from_tree(request: offset_fetch.Request, call: GroupCall, pace: Pace) -> Generator[Any, None, list[Any]]:
    places: list[TopicPartition] = []
    for topic in request.topics or ():
        for p in topic.partition_indexes:
            if pace.over():
                yield
            places.append((topic.name, p))
    offsets: dict[TopicPartition, int] = {}
    failure = ErrorCode.NONE
    if may_be_in_tree(request.group_id):
        try:
            offsets = yield from result_of(call.view.tree.read(request.group_id, places))
        except StoreError as error:
            log.warning("cannot read the offsets of group %s in the metadata tree: %s", request.group_id, error)
            failure = code_of(error)
    make = Response.OffsetFetchResponseTopic
    topics = new_array()
    for topic in request.topics or ():
        if pace.over():
            yield
        rows = new_array()
        for p in topic.partition_indexes:
            if pace.over():
                yield
            known = call.topic(topic.name)
            exists = known is not None and known.exists(p)
            offset = offsets.get((topic.name, p))
            code = ErrorCode.NONE if exists and offset is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            committed = None if offset is None else CommittedOffset(offset)
            rows.append(_partition(Response.OffsetFetchResponsePartition, p, committed, failure or code))
        topics.append(make(name=topic.name, partitions=rows))
    return topics
