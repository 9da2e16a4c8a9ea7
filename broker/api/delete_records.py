"""DeleteRecords (21): raise the log start offset, so that older records are gone. Executed by the coordinator, which may wait.

Offset -1 is the high watermark. The answer comes once the new log start offsets are durable; the files go with the next pass of
retention. The low watermark of a partition is its log start offset while it has one replica. Version 2 is flexible, no more.
"""

from collections import Counter
from typing import Any

import broker._ext.log_start as native
import broker._ext.slots as slots
from broker._ext.shared import SlotState
from broker.api.coordinator_call import CoordinatorCall
from broker.controller.topic_names import INTERNAL
from broker.protocol import delete_records
from broker.protocol.errors import ErrorCode
from broker.shm import log_starts
from broker.shm.log_starts import Wish

NO_LOW_WATERMARK = -1
CODES = {
    "ok": ErrorCode.NONE,
    "busy": ErrorCode.REQUEST_TIMED_OUT,
    "stale": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "not leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "fenced epoch": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "offline": ErrorCode.KAFKA_STORAGE_ERROR,
    "out of range": ErrorCode.OFFSET_OUT_OF_RANGE,
    log_starts.NOT_DURABLE: ErrorCode.KAFKA_STORAGE_ERROR,
}


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Each partition succeeds or fails for itself; of one that is named more than once the last wish counts, as in Kafka."""
    make = delete_records.Response
    offsets = {(topic.name, one.partition_index): one.offset for topic in request.topics for one in topic.partitions}
    answers: dict[tuple[str, int], tuple[ErrorCode, int]] = {}
    wishes: dict[tuple[str, int], Wish] = {}
    for (name, partition), offset in offsets.items():
        wish = _wish(name, partition, offset, call)
        if isinstance(wish, Wish):
            wishes[name, partition] = wish
        else:
            answers[name, partition] = wish, NO_LOW_WATERMARK
    outcomes = log_starts.delete_records(
        call.view.table.shm, call.view.table.log_dirs, list(wishes.values()), request.timeout_ms
    )
    for key, (why, log_start) in zip(wishes, outcomes, strict=True):
        answers[key] = CODES[why], log_start if why == "ok" else NO_LOW_WATERMARK
    names = Counter(name for name, _ in offsets)
    return make(
        topics=[
            make.DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    make.DeleteRecordsPartitionResult(
                        partition_index=partition, low_watermark=low_watermark, error_code=code
                    )
                    for (topic, partition), (code, low_watermark) in answers.items()
                    if topic == name
                ],
            )
            for name in names
        ]
    )


def _wish(name: str, partition: int, offset: int, call: CoordinatorCall) -> Wish | ErrorCode:
    """What is to be done with the slot, or why nothing is."""
    slot = call.view.table.find(name, partition)
    if slot < 0:
        known = call.view.controller.image.topics.get(name)
        elsewhere = known is not None and partition in known.assignment.partitions
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in INTERNAL:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    facts = native.facts(slot)
    if facts is None:
        offline = slots.state_of(slot) == SlotState.SLOT_OFFLINE
        return ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if facts["compact"] and not facts["delete"]:
        return ErrorCode.POLICY_VIOLATION
    return Wish(slot, facts["incarnation"], offset)
