"""DeleteRecords (21): raises the log start offset, which deletes older records. Executed by the coordinator, which may wait.

Offset -1 means the high watermark. The response is sent when the new log start offsets are durable; the next retention
pass removes the files. Version 2 only adds the flexible encoding.

The low watermark of a partition is the smallest log start offset of its live replicas. In a cluster, the response is sent when
it has reached the requested offset, or with REQUEST_TIMED_OUT after the timeout of the request. The leader's records are
deleted in both cases.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import odradek._ext.partition.followers as followers
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.slot import SlotState
from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    each_in_steps,
    made_in_steps,
)
from odradek.api.permits import NAMES_A_STEP
from odradek.controller.topic_names import INTERNAL
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_records
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    OF_PARTITIONS,
    TOPIC,
    need,
)
from odradek.shm import log_starts
from odradek.shm.log_starts import HIGH_WATERMARK, Deletion
from odradek.stepwise import Pace, Steps
from odradek.topic_partition import TopicPartition

NO_LOW_WATERMARK = -1
STEP = 1000
READ_A_STEP = 1000
Answer = tuple[ErrorCode, int]
"""Error code and low watermark."""
CODES = {
    AppendResult.APPEND_OK: ErrorCode.NONE,
    AppendResult.APPEND_BUSY: ErrorCode.REQUEST_TIMED_OUT,
    AppendResult.APPEND_STALE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    AppendResult.APPEND_NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    AppendResult.APPEND_FENCED_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    AppendResult.APPEND_OFFLINE: ErrorCode.KAFKA_STORAGE_ERROR,
    AppendResult.APPEND_IO_ERROR: ErrorCode.KAFKA_STORAGE_ERROR,
    AppendResult.APPEND_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
}


class Awaited(NamedTuple):
    """A partition whose followers have not deleted the records yet. ``required``: the low watermark that ends the wait. A new
    leader epoch in which this broker leads on does not end it."""

    incarnation: int
    leader_epoch: int
    required: int
    result: Any


class Deleted:
    """A response whose partitions wait for their followers. Used in the coordinator's loop.

    :ivar response: the response; a partition has the error REQUEST_TIMED_OUT while it waits.
    """

    def __init__(self, response: Any, timeout_s: float, awaited: dict[int, Awaited]) -> None:
        self.response = response
        self.timeout_s = timeout_s
        self._awaited = awaited
        for place in awaited.values():
            place.result.error_code = ErrorCode.REQUEST_TIMED_OUT

    @property
    def slots(self) -> set[int]:
        """The slots of the partitions that wait."""
        return set(self._awaited)

    def look(self, slot: int) -> None:
        """End the wait of a partition if its low watermark has reached the offset, or this broker does not lead it any more."""
        place = self._awaited[slot]
        low_watermark = followers.low_watermark(slot, place.incarnation, place.leader_epoch)
        if low_watermark is None:
            place.result.error_code, place.result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LOW_WATERMARK
        elif low_watermark >= place.required:
            place.result.error_code, place.result.low_watermark = ErrorCode.NONE, low_watermark
        else:
            return
        del self._awaited[slot]


API = Api(
    delete_records.SCHEMA,
    versions=(0, 2),
    place=Place.COORDINATOR,
    rights=need(Operation.DELETE, TOPIC, OF_PARTITIONS),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """DELETE on the topics."""
    request = asked.request
    names = (topic.name for topic in request.topics)
    denied = yield from asked.permits.denied_in_steps(Operation.DELETE, ResourceType.TOPIC, names)
    if not denied:
        return None
    make = delete_records.Response
    partitions: dict[str, dict[int, None]] = {}
    pace = Pace(NAMES_A_STEP)
    for name in sorted(denied):
        partitions[name] = {}
        if pace.over():
            yield
    kept: list[Any] = []
    for topic in request.topics:
        if pace.over():
            yield
        if topic.name not in denied:
            kept.append(topic)
            continue
        of_topic = partitions[topic.name]
        for partition in topic.partitions:
            of_topic[partition.partition_index] = None
            if pace.over():
                yield

    def refuse(name: str) -> Steps:
        results = yield from made_in_steps(
            partitions[name],
            lambda index: make.DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ),
        )
        return make.DeleteRecordsTopicResult(name=name, partitions=results)

    refused = yield from each_in_steps(partitions, refuse)
    request.topics = kept

    def merge(response: Any) -> Any:
        # If the deletion waits for followers, `response` is a `Deleted`, which contains the response.
        getattr(response, "response", response).topics.extend(refused)
        return response

    return Merged(merge)


def handle(request: delete_records.Request, call: CoordinatorCall) -> Steps:
    """Delete the records of each partition independently, a few partitions per step. If a partition is named more than once,
    the last offset counts, as in Kafka. In a cluster, returns a `Deleted` instead of the response if followers must delete
    records.
    """
    make = delete_records.Response
    offsets: dict[TopicPartition, int] = {}
    pace = Pace(READ_A_STEP)
    of_topic: dict[str, list[Any]] = {}
    for topic in request.topics:
        if pace.over():
            yield
        if topic.partitions:
            of_topic.setdefault(topic.name, [])
        for partition in topic.partitions:
            offsets[topic.name, partition.partition_index] = partition.offset
            if pace.over():
                yield
    awaited: dict[int, Awaited] = {}
    places = list(offsets.items())
    for first in range(0, len(places), STEP):
        if first:
            yield
        for (name, index), (code, low_watermark) in _delete(places[first : first + STEP], request, call).items():
            result = make.DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=low_watermark, error_code=code
            )
            of_topic[name].append(result)
            if call.view.config.clustered and code == ErrorCode.NONE:
                _await_followers(name, result, offsets[name, index], awaited, call)
    response = make()
    for name, partitions in of_topic.items():
        response.topics.append(make.DeleteRecordsTopicResult(name=name, partitions=partitions))
        if pace.over():
            yield
    return Deleted(response, max(request.timeout_ms, 0) / 1000, awaited) if awaited else response


def _await_followers(name: str, result: Any, offset: int, awaited: dict[int, Awaited], call: CoordinatorCall) -> None:
    """Set the low watermark of a partition whose leader has deleted the records; add it to `awaited` if followers have not."""
    log_start = result.low_watermark
    required = log_start if offset == HIGH_WATERMARK else min(offset, log_start)
    slot = call.view.table.find(name, result.partition_index)
    facts = slot_facts.describe(slot)
    low_watermark = followers.low_watermark(slot, facts.incarnation, facts.leader_epoch)
    if low_watermark is None or facts.topic != name:
        result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_LOW_WATERMARK
        return
    result.low_watermark = low_watermark
    if low_watermark < required:
        awaited[slot] = Awaited(facts.incarnation, facts.leader_epoch, required, result)


def _delete(
    places: Sequence[tuple[TopicPartition, int]], request: delete_records.Request, call: CoordinatorCall
) -> dict[TopicPartition, Answer]:
    """Delete records of these partitions. Returns their results; new log start offsets are durable then."""
    answers: dict[TopicPartition, Answer] = {}
    deletions: dict[TopicPartition, Deletion] = {}
    for (name, partition), offset in places:
        deletion = _deletion(name, partition, offset, call)
        if isinstance(deletion, Deletion):
            deletions[name, partition] = deletion
        else:
            answers[name, partition] = deletion, NO_LOW_WATERMARK
    outcomes = log_starts.delete_records(
        call.view.table.shm, call.view.table.log_dirs, list(deletions.values()), request.timeout_ms
    )
    for key, (result, log_start) in zip(deletions, outcomes, strict=True):
        answers[key] = CODES[result], log_start if result == AppendResult.APPEND_OK else NO_LOW_WATERMARK
    return answers


def _deletion(name: str, partition: int, offset: int, call: CoordinatorCall) -> Deletion | ErrorCode:
    """The deletion for a partition's slot, or the error code if the partition is refused."""
    slot = call.view.table.find(name, partition)
    if slot < 0:
        if call.view.config.clustered:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # partitions of other brokers have slots, too
        known = call.view.controller.image.topics.get(name)
        elsewhere = known is not None and partition in known.assignment.partitions
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in INTERNAL:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    facts = slot_facts.of_open_log(slot)
    if facts is None:
        offline = slots.state_of(slot) == SlotState.SLOT_OFFLINE
        return ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if facts.compact and not facts.delete:
        return ErrorCode.POLICY_VIOLATION
    return Deletion(slot, facts.incarnation, offset)
