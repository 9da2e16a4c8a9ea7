"""ListOffsets (2): returns the offset for a timestamp, or the start or end of the log. Executed by an off-loop thread of the
worker, because it reads indexes.

Negative timestamps: -1 is the end that the reader may see, -2 the log start, -3 the record with the largest timestamp, -4 the
start on local disk (equal to the log start, because there is no tiered storage); -5 and -6 concern tiered storage.

After an election, the high watermark may be below the offset at which the leader epoch began: until the in-sync replicas have
fetched so far, the leader does not know which records are committed. A consumer then receives OFFSET_NOT_AVAILABLE for the end,
and for a timestamp without a committed record (KIP-207). A request with the replica id of debugging clients reads like a
replica, also from a follower.

The response of version 0 contains a list of offsets, newest first: the log end, and the base offsets of the segments that were
last written before the timestamp.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.protocol.arrays import new_array
from odradek._ext.storage.segment_list import SegmentList
from odradek.api.api import Api, Place
from odradek.api.call import Call
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
    refused_elements,
    taken_out,
)
from odradek.api.records.partition_lookup import leader_state
from odradek.clock import now_ms
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_offsets
from odradek.security.acl import Operation
from odradek.security.needs import (
    OF_PARTITIONS,
    TOPIC,
    need,
)
from odradek.stepwise import Pace, Steps
from odradek.storage.file_names import partition_directory_name
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, last_timestamp
from odradek.storage.lookup import find_timestamp
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.requests")

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FIRST_VERSION = {LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
FIRST_WITH_EPOCH = 4
FIRST_WITH_NOT_AVAILABLE = 5
WITHOUT_LOOK_UP = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
STEP = 50
COUNTED_A_STEP = 1000
CONSUMER, DEBUGGING_CONSUMER = -1, -2

Result = TypeVar("Result")
ELEMENTS = Elements(list_offsets.SCHEMA, "topics.partitions", "topics.partitions")
API = Api(
    list_offsets.SCHEMA,
    versions=(0, 11),
    place=Place.WORKER_THREAD,
    rights=need(Operation.DESCRIBE, TOPIC, OF_PARTITIONS),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the topics."""
    refused = yield from taken_out(
        asked, Operation.DESCRIBE, refused_elements(ELEMENTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )
    return Merged(appended("topics", refused)) if refused else None


def handle(request: list_offsets.Request, call: Call) -> Steps:
    """Handle each partition independently. A partition that is named more than once is refused, with one result. A step is one
    look-up by time, or a few partitions that need no look-up.
    """
    counts: Counter[TopicPartition] = Counter()
    counting = Pace(COUNTED_A_STEP)
    for topic in request.topics:
        if counting.over():
            yield
        for partition in topic.partitions:
            counts[topic.name, partition.partition_index] += 1
            if counting.over():
                yield
    topics = new_array()
    pace = Pace(STEP)
    for topic in request.topics:
        partitions = new_array()
        if pace.over():
            yield
        seen: set[int] = set()
        for partition in topic.partitions:
            if counting.over():
                yield
            if partition.partition_index in seen:
                continue
            seen.add(partition.partition_index)
            if pace.over(1 if partition.timestamp in WITHOUT_LOOK_UP and call.version > 0 else STEP):
                yield
            partitions.append(
                _refused(partition)
                if counts[topic.name, partition.partition_index] > 1
                else _partition(request, topic.name, partition, call)
            )
        topics.append(list_offsets.Response.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return list_offsets.Response(topics=topics)


def _partition(request: list_offsets.Request, name: str, partition: Any, call: Call) -> Any:
    answer = list_offsets.Response.ListOffsetsPartitionResponse(partition_index=partition.partition_index)
    _fill(answer, request, name, partition, call)
    if call.version < FIRST_WITH_EPOCH:
        answer.leader_epoch = -1
    return answer


def _refused(partition: Any) -> Any:
    return list_offsets.Response.ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, error_code=ErrorCode.INVALID_REQUEST
    )


def _fill(answer: Any, request: list_offsets.Request, name: str, partition: Any, call: Call) -> None:
    timestamp = partition.timestamp
    error, slot, state = leader_state(
        call,
        name,
        partition.partition_index,
        partition.current_leader_epoch,
        or_follower=request.replica_id == DEBUGGING_CONSUMER,
    )
    if not error and (timestamp < EARLIEST_PENDING_UPLOAD or call.version < FIRST_VERSION.get(timestamp, 0)):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error or state is None:
        answer.error_code = error
        return
    end = state.high_watermark
    if request.replica_id != CONSUMER:
        end = state.log_end_offset
    elif call.version >= 2 and request.isolation_level == READ_COMMITTED:
        end = min(state.last_stable_offset, state.high_watermark)
    if call.version == 0:
        _fill_with_segments(answer, request, name, partition, call, slot, state)
    elif timestamp == LATEST:
        if _end_unknown(request, state, call):
            answer.error_code = _not_available(call)
        else:
            answer.offset, answer.leader_epoch = end, state.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = state.log_start_offset
        answer.leader_epoch = _epoch_at(state, answer.offset)
    elif timestamp >= 0 or timestamp == LARGEST_TIMESTAMP:
        try:
            record = _with_retries(lambda present: _by_time(call, present, timestamp, end), slot, state)
        except (OSError, ValueError) as problem:
            log.error("cannot look up an offset by time in %s-%d: %s", name, partition.partition_index, problem)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return
        if record is not None:
            answer.offset, answer.timestamp, answer.leader_epoch = record
        elif _end_unknown(request, state, call):
            answer.error_code = _not_available(call)


def _end_unknown(request: list_offsets.Request, state: SlotFacts, call: Call) -> bool:
    """Whether a consumer asks a leader whose high watermark has not reached the start of its epoch, in a cluster."""
    if call.view.brokers is None or request.replica_id != CONSUMER:
        return False
    return bool(state.leader_epoch_start > state.high_watermark)


def _not_available(call: Call) -> ErrorCode:
    if call.version >= FIRST_WITH_NOT_AVAILABLE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _fill_with_segments(
    answer: Any, request: list_offsets.Request, name: str, partition: Any, call: Call, slot: int, state: SlotFacts
) -> None:
    """At most `max_num_offsets` offsets, descending: the base offsets of segments last modified at or before the timestamp,
    and the log end. For a consumer, offsets above the high watermark are replaced by the high watermark."""
    try:
        times = _with_retries(lambda present: _segment_times(call, present), slot, state) or []
    except OSError as problem:
        log.error("cannot list the segments of %s-%d: %s", name, partition.partition_index, problem)
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    if partition.timestamp == EARLIEST:
        times = times[:1]
    elif partition.timestamp != LATEST:
        while times and times[-1][1] > partition.timestamp:
            times.pop()
    offsets = sorted((offset for offset, _ in times[::-1][: max(partition.max_num_offsets, 0)]), reverse=True)
    if request.replica_id == CONSUMER and offsets and offsets[0] > state.high_watermark:
        offsets = [state.high_watermark, *(offset for offset in offsets if offset <= state.high_watermark)]
    answer.old_style_offsets = offsets


def _segment_times(call: Call, state: SlotFacts) -> list[tuple[int, int]]:
    """(first offset, modification time in ms) of every segment, then (log end offset, present time) unless the active segment
    is empty."""
    segments = _segments(call, state)
    try:
        times = []
        for base in _bases(segments, state):
            segment = segments.open(base)
            changed = os.fstat(segment.log_fd).st_mtime_ns // 1_000_000
            times.append((max(base, state.log_start_offset), changed))
    finally:
        segments.close()
    if state.size > 0:
        times.append((state.log_end_offset, now_ms()))
    return times


def _epoch_at(state: SlotFacts, offset: int) -> int:
    """The leader epoch of an offset; -1 if it is older than the epochs in the slot."""
    return max((epoch for epoch, start in state.epochs if start <= offset), default=-1)


def _segments(call: Call, state: SlotFacts) -> SegmentList:
    """A new list of the partition's segments: this code runs outside of the loop, which has separate lists."""
    path = f"{call.view.log_dirs[state.log_dir]}/{partition_directory_name(state.topic, state.partition)}"
    segments = SegmentList(path, call.view.segments)
    segments.see(state.generation)
    return segments


def _bases(segments: SegmentList, state: SlotFacts) -> list[int]:
    """The base offsets of the segments that contain the log."""
    bases = [base for base in segments.base_offsets() if base <= state.segment_base]
    # Segments that end at or before the log start offset are waiting for their removal.
    while len(bases) > 1 and bases[1] <= state.log_start_offset:
        del bases[0]
    return bases


def _with_retries(look: Callable[[SlotFacts], Result], slot: int, state: SlotFacts) -> Result | None:
    """The result of `look(state)`, which is repeated with the new state if segments were removed or swapped meanwhile. The
    loop ends, because each repetition requires another change of the log."""
    while True:
        if slot_upkeep.swap_under_way(slot):
            slot_upkeep.settle_swap(slot)
            state = slot_facts.describe(slot)
        problem = None
        try:
            result = look(state)
        except FileNotFoundError as error:
            problem, result = error, None
        newer = slot_facts.describe(slot)
        if newer.incarnation == state.incarnation and newer.generation != state.generation:
            state = newer
            continue
        if problem is not None:
            raise problem
        return result


def _by_time(call: Call, state: SlotFacts, timestamp: int, end: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record at or after a timestamp, or of the record with the largest
    timestamp; None if there is no such record below `end`."""
    segments = _segments(call, state)
    try:
        bases = _bases(segments, state)
        if timestamp == LARGEST_TIMESTAMP:
            largest = [_Segment(segments, base, state).largest_timestamp() for base in bases]
            timestamp = max(largest, default=-1)
            if timestamp < 0:
                return None
            bases = bases[largest.index(timestamp) :]
        for base in bases:
            segment = _Segment(segments, base, state)
            if segment.largest_timestamp() < timestamp:
                continue
            record = segment.find(timestamp, state.log_start_offset)
            if record is not None:
                return record if record[0] < end else None
        return None
    finally:
        segments.close()


class _Segment:
    """An open segment with its readable part: the committed part of the active segment, or all of a closed one.

    The reference to the OpenSegment keeps its descriptors open: when later segments are opened, the cache closes those that
    nothing refers to. So a segment is opened, searched and released before the next one, and descriptor numbers are not
    stored.
    """

    def __init__(self, segments: SegmentList, base: int, state: SlotFacts) -> None:
        self._open = segments.open(base)
        self._state = state if base == state.segment_base else None

    def largest_timestamp(self) -> int:
        """The largest timestamp in ms; -1 if the segment has none."""
        if self._state:
            return int(self._state.max_timestamp)
        return last_timestamp(self._open.time_index_descriptor())

    def find(self, timestamp: int, from_offset: int) -> tuple[int, int, int] | None:
        """See `find_timestamp`."""
        state = self._state
        log_fd, index_fd = self._open.log_fd, self._open.index_descriptor()
        return find_timestamp(
            log_fd,
            index_fd,
            state.index_entries if state else os.fstat(index_fd).st_size // OFFSET_ENTRY.size,
            self._open.time_index_descriptor(),
            self._time_entries(),
            self._open.base_offset,
            state.size if state else os.fstat(log_fd).st_size,
            timestamp,
            from_offset,
        )

    def _time_entries(self) -> int:
        if self._state:
            return int(self._state.timeindex_entries)
        return os.fstat(self._open.time_index_descriptor()).st_size // TIME_ENTRY.size
