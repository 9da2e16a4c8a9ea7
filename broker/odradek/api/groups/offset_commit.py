"""OffsetCommit (8): stores offsets of a group. Executed by the coordinator, in its loop.

Version 0 writes to the metadata tree, without checks of the group; versions 1 and later write to `__consumer_offsets`.
"""

import logging
from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

from odradek._ext.api.offset_commits import CommittedOffset, OffsetCommit, read
from odradek._ext.shm.metering import count_failed_request
from odradek.api.api import Api, Place
from odradek.api.elements import Elements
from odradek.api.groups.denied import verdict_of_rest
from odradek.api.groups.group_call import GroupCall, GroupView, PlainRequest, client_of, may_read, result_of
from odradek.api.guarding import (
    Asked,
    VerdictInSteps,
    refused_elements,
    refused_whole,
    taken_out,
)
from odradek.controller.store_errors import code_of
from odradek.groups.commits import Commit
from odradek.groups.offsets import NO_EXPIRY
from odradek.metadata.group_offsets import may_be_in_tree
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_commit
from odradek.security.acl import Operation
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    each,
)
from odradek.stepwise import Pace, Steps, waited
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.groups")

PARTITIONS_A_STEP = 500
FIRST_WITH_EPOCHS = 9
FIRST_BY_ID = 10
DEFAULT_TIME = -1
LATEST_MS = (1 << 63) - 1
ELEMENTS = Elements(offset_commit.SCHEMA, "topics.partitions", "topics.partitions")
API = Api(
    offset_commit.SCHEMA,
    versions=(0, 10),
    place=Place.GROUPS,
    rights=each(
        (Operation.READ, GROUP), (Operation.READ, TOPIC), refused=f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition"
    ),
    per_partition=2,
    refused=ELEMENTS,
    pipelined_from=1,
)


def guard(asked: Asked) -> VerdictInSteps:
    """READ on the group and on the topics."""
    request, by_id = asked.request, asked.version >= FIRST_BY_ID
    if not asked.permits.group(Operation.READ, request.group_id):
        return (yield from refused_whole(API.key, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    refused = yield from taken_out(
        asked,
        Operation.READ,
        refused_elements(ELEMENTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        lambda topic: asked.name_of(bytes(topic.topic_id)) if by_id else topic.name,
        nameless=refused_elements(ELEMENTS, ErrorCode.UNKNOWN_TOPIC_ID),
    )
    return verdict_of_rest(request, offset_commit.Response, refused)


def at_once(request: PlainRequest, view: GroupView) -> bool:
    """Serve a request without decoding it to objects. Returns False for requests that need `handle`."""
    groups = view.groups
    max_metadata_bytes = groups.shards.settings.offset_metadata_max_bytes
    max_elements = view.limits[offset_commit.API_KEY]
    commit = read(request.payload, view.topics, max_metadata_bytes, groups.wall_ms(), max_elements)
    if commit is None or not may_read(request, view, offset_commit.API_KEY, commit.group_id, commit.topics):
        return False
    groups.commit(commit, partial(_answer, request, commit), client_of(request.context))
    return True


def _answer(request: PlainRequest, commit: OffsetCommit, outcome: ErrorCode) -> None:
    response = commit.response(outcome)
    if commit.failed:  # no error leads the response, so the worker does not see it
        count_failed_request(request.context, offset_commit.API_KEY)
    request.answer(response)


def handle(request: offset_commit.Request, call: GroupCall) -> Steps:
    """Check each partition independently, then store the offsets of all valid partitions together."""
    errors: dict[tuple[int, int], ErrorCode] = {}
    places: dict[tuple[int, int], TopicPartition] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    now_ms = call.view.groups.wall_ms()
    pace = Pace(PARTITIONS_A_STEP)
    for t, topic in enumerate(request.topics):
        known = call.topic_by_id(topic.topic_id) if call.version >= FIRST_BY_ID else call.topic(topic.name)
        for p, partition in enumerate(topic.partitions):
            if pace.over():
                yield
            error = _refusal(partition, known, call)
            if error is not ErrorCode.NONE:
                errors[t, p] = error
                continue
            assert known is not None
            place = (known.name, partition.partition_index)
            places[t, p] = place
            offsets[place] = _committed(partition, request, now_ms)
    if call.version == 0 and not may_be_in_tree(request.group_id):
        outcome = ErrorCode.INVALID_GROUP_ID
    elif call.version == 0:
        outcome, missing = yield from _write_to_tree(request.group_id, offsets, call)
        errors |= {at: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for at, place in places.items() if place[0] in missing}
    else:
        commit = Commit(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            offsets,
            call.version >= FIRST_WITH_EPOCHS,
        )
        outcome = yield from waited(lambda then: call.view.groups.commit(commit, then, call.client))
    make = offset_commit.Response
    response = make()
    for t, topic in enumerate(request.topics):
        results = [
            make.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=errors.get((t, p), outcome)
            )
            for p, partition in enumerate(topic.partitions)
        ]
        response.topics.append(
            make.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
        )
        if pace.over(1 + len(results)):
            yield
    return response


def _write_to_tree(
    group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], call: GroupCall
) -> Generator[Any, None, tuple[ErrorCode, set[str]]]:
    """Store offsets in the metadata tree. Returns the outcome, and the topics that do not exist any more."""
    try:
        written = call.view.tree.write(group_id, {at: entry.offset for at, entry in offsets.items()})
        return ErrorCode.NONE, (yield from result_of(written))
    except StoreError as error:
        log.warning("cannot commit the offsets of group %s in the metadata tree: %s", group_id, error)
        return code_of(error), set()


def _refusal(partition: Any, known: Any, call: GroupCall) -> ErrorCode:
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if call.version >= FIRST_BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not known.exists(partition.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > call.view.groups.shards.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _committed(partition: Any, request: offset_commit.Request, now_ms: int) -> CommittedOffset:
    time_ms = partition.commit_timestamp if partition.commit_timestamp != DEFAULT_TIME else now_ms
    kept_ms = request.retention_time_ms
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        time_ms,
        min(now_ms + kept_ms, LATEST_MS) if kept_ms >= 0 else NO_EXPIRY,
    )
