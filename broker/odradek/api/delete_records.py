"""DeleteRecords (21): raises the log start offset, which deletes older records. Executed by the coordinator, which may wait.

Offset -1 means the high watermark. The response is sent when the new log start offsets are durable; the next retention
pass removes the files. The low watermark of a partition is its log start offset, because it has one replica. Version 2 only
adds the flexible encoding.
"""

from collections.abc import Sequence
from typing import Any

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.layout import SlotState
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Steps
from odradek.controller.topic_names import INTERNAL
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_records
from odradek.shm import log_starts
from odradek.shm.log_starts import Deletion

NO_LOW_WATERMARK = -1
STEP = 1000
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


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Delete the records of each partition independently, a few partitions per step. If a partition is named more than once,
    the last offset counts, as in Kafka.
    """
    make = delete_records.Response
    offsets = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    of_topic: dict[str, list[Any]] = {name: [] for name, _ in offsets}
    places = list(offsets.items())
    for first in range(0, len(places), STEP):
        if first:
            yield
        for (name, partition), (code, low_watermark) in _delete(places[first : first + STEP], request, call).items():
            of_topic[name].append(
                make.DeleteRecordsPartitionResult(
                    partition_index=partition, low_watermark=low_watermark, error_code=code
                )
            )
    return make(
        topics=[
            make.DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in of_topic.items()
        ]
    )


def _delete(
    places: Sequence[tuple[tuple[str, int], int]], request: Any, call: CoordinatorCall
) -> dict[tuple[str, int], Answer]:
    """Delete records of these partitions. Returns their results; new log start offsets are durable then."""
    answers: dict[tuple[str, int], Answer] = {}
    deletions: dict[tuple[str, int], Deletion] = {}
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
