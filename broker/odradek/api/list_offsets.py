"""ListOffsets (2): the offset of a time, or an end of the log. Executed by an off-loop thread of the worker: it reads indexes.

Times below zero: -1 the end that the reader may see, -2 the start, -3 the record with the largest timestamp, -4 the start on
local disk (the start: nothing is tiered), -5 and -6 concern tiered storage, which there is none of.

Version 0 is answered with a list, newest first: the end, and the starts of the segments that were last written before the
time.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.partition.slots as slots
from odradek._ext.storage.segment_list import SegmentList
from odradek.api.call import Call
from odradek.api.partition_lookup import leader_state
from odradek.api.stepwise import Pace, Steps
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_offsets
from odradek.storage.lookup import find_timestamp

log = logging.getLogger("odradek.requests")

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
FIRST_VERSION = {LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
INDEX_ENTRY_BYTES, TIME_ENTRY_BYTES = 8, 12
READ_COMMITTED = 1
FIRST_WITH_EPOCH = 4
WITHOUT_LOOK_UP = frozenset({LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
STEP = 50
CONSUMER = -1

Found = TypeVar("Found")


def handle(request: Any, call: Call) -> Steps:
    """Answer every partition on its own; one that is asked for twice is refused, once. A look-up by time, or a few
    partitions for which none is needed, are a step.
    """
    asked = Counter((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    topics = []
    pace = Pace(STEP)
    for topic in request.topics:
        partitions = []
        for one in {one.partition_index: one for one in topic.partitions}.values():
            if pace.over(1 if one.timestamp in WITHOUT_LOOK_UP and call.version > 0 else STEP):
                yield
            partitions.append(
                _refused(one)
                if asked[topic.name, one.partition_index] > 1
                else _partition(request, topic.name, one, call)
            )
        topics.append(list_offsets.Response.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return list_offsets.Response(topics=topics)


def _partition(request: Any, name: str, one: Any, call: Call) -> Any:
    answer = list_offsets.Response.ListOffsetsPartitionResponse(partition_index=one.partition_index)
    _fill(answer, request, name, one, call)
    if call.version < FIRST_WITH_EPOCH:
        answer.leader_epoch = -1
    return answer


def _refused(one: Any) -> Any:
    return list_offsets.Response.ListOffsetsPartitionResponse(
        partition_index=one.partition_index, error_code=ErrorCode.INVALID_REQUEST
    )


def _fill(answer: Any, request: Any, name: str, one: Any, call: Call) -> None:
    error, slot, state = leader_state(call, name, one.partition_index, one.current_leader_epoch)
    if not error and (one.timestamp < EARLIEST_PENDING_UPLOAD or call.version < FIRST_VERSION.get(one.timestamp, 0)):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error:
        answer.error_code = error
        return
    end = state["high_watermark"]
    if request.replica_id != CONSUMER:
        end = state["log_end_offset"]
    elif call.version >= 2 and request.isolation_level == READ_COMMITTED:
        end = state["last_stable_offset"]
    if call.version == 0:
        _fill_with_segments(answer, request, name, one, call, slot, state)
    elif one.timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, state["leader_epoch"]
    elif one.timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = state["log_start_offset"]
        answer.leader_epoch = _epoch_at(state, answer.offset)
    elif one.timestamp >= 0 or one.timestamp == LARGEST_TIMESTAMP:
        try:
            found = _again(lambda now: _by_time(call, now, one.timestamp, end), slot, state)
        except (OSError, ValueError) as problem:
            log.error("cannot look up an offset by time in %s-%d: %s", name, one.partition_index, problem)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return
        if found is not None:
            answer.offset, answer.timestamp, answer.leader_epoch = found


def _fill_with_segments(
    answer: Any, request: Any, name: str, one: Any, call: Call, slot: int, state: dict[str, Any]
) -> None:
    """At most `max_num_offsets` offsets, descending: those of segments last modified at or before the time, and the log's
    end. A consumer sees the high watermark in place of what lies behind it."""
    try:
        found = _again(lambda now: _segment_times(call, now), slot, state) or []
    except OSError as problem:
        log.error("cannot list the segments of %s-%d: %s", name, one.partition_index, problem)
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    if one.timestamp == EARLIEST:
        found = found[:1]
    elif one.timestamp != LATEST:
        while found and found[-1][1] > one.timestamp:
            found.pop()
    offsets = sorted((offset for offset, _ in found[::-1][: max(one.max_num_offsets, 0)]), reverse=True)
    if request.replica_id == CONSUMER and offsets and offsets[0] > state["high_watermark"]:
        offsets = [state["high_watermark"], *(each for each in offsets if each <= state["high_watermark"])]
    answer.old_style_offsets = offsets


def _segment_times(call: Call, state: dict[str, Any]) -> list[tuple[int, int]]:
    """(first offset, time of the last change in ms) of every segment, and of the log's end, which is now."""
    segments = _segments(call, state)
    try:
        found = []
        for base in _bases(segments, state):
            segment = segments.open(base)
            changed = os.fstat(segment.log_fd).st_mtime_ns // 1_000_000
            found.append((max(base, state["log_start_offset"]), changed))
    finally:
        segments.close()
    if state["size"] > 0:
        found.append((state["log_end_offset"], time.time_ns() // 1_000_000))
    return found


def _epoch_at(state: dict[str, Any], offset: int) -> int:
    """The leader epoch of an offset, as far as the slot knows its epochs; -1 if not."""
    return max((epoch for epoch, start in state["epochs"] if start <= offset), default=-1)


def _segments(call: Call, state: dict[str, Any]) -> SegmentList:
    """The partition's segments, listed anew: this runs beside the loop, whose lists are its own."""
    path = f"{call.view.log_dirs[state['log_dir']]}/{state['topic']}-{state['partition']}"
    segments = SegmentList(path, call.view.segments)
    segments.see(state["generation"])
    return segments


def _bases(segments: SegmentList, state: dict[str, Any]) -> list[int]:
    """The base offsets of the segments that hold the log."""
    bases = [base for base in segments.base_offsets() if base <= state["segment_base"]]
    # Segments that end at the log start offset or before only wait for their removal.
    while len(bases) > 1 and bases[1] <= state["log_start_offset"]:
        del bases[0]
    return bases


def _again(look: Callable[[dict[str, Any]], Found], slot: int, state: dict[str, Any]) -> Found | None:
    """`look(state)`, once more where segments went or were swapped meanwhile: it ends because each time the log changed."""
    while True:
        if slot_upkeep.swap_under_way(slot):
            slot_upkeep.settle_swap(slot)
            state = slots.describe(slot)
        problem = None
        try:
            found = look(state)
        except FileNotFoundError as error:
            problem, found = error, None
        newer = slots.describe(slot)
        if newer["incarnation"] == state["incarnation"] and newer["generation"] != state["generation"]:
            state = newer
            continue
        if problem is not None:
            raise problem
        return found


def _by_time(call: Call, state: dict[str, Any], timestamp: int, end: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record at or after a time, or of the largest timestamp; None if none."""
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
            found = segment.find(timestamp, state["log_start_offset"])
            if found is not None:
                return found if found[0] < end else None
        return None
    finally:
        segments.close()


class _Segment:
    """An open segment, and how much of it may be seen: the committed part of the active segment, all of a closed one.

    The reference to the OpenSegment keeps its descriptors open: the cache closes a segment that nothing else refers to when
    later ones are opened. So a segment is opened, searched and released before the next one, and descriptor numbers are not
    stored.
    """

    def __init__(self, segments: SegmentList, base: int, state: dict[str, Any]) -> None:
        self._open = segments.open(base)
        self._state = state if base == state["segment_base"] else None

    def largest_timestamp(self) -> int:
        """In ms; -1 without any."""
        if self._state:
            return int(self._state["max_timestamp"])
        entries = self._time_entries()
        last = os.pread(self._open.time_index_descriptor(), 8, (entries - 1) * TIME_ENTRY_BYTES) if entries else b""
        return int.from_bytes(last, "big", signed=True) if len(last) == 8 else -1

    def find(self, timestamp: int, from_offset: int) -> tuple[int, int, int] | None:
        """As `find_timestamp`."""
        state = self._state
        log_fd, index_fd = self._open.log_fd, self._open.index_descriptor()
        return find_timestamp(
            log_fd,
            index_fd,
            state["index_entries"] if state else os.fstat(index_fd).st_size // INDEX_ENTRY_BYTES,
            self._open.time_index_descriptor(),
            self._time_entries(),
            self._open.base_offset,
            state["size"] if state else os.fstat(log_fd).st_size,
            timestamp,
            from_offset,
        )

    def _time_entries(self) -> int:
        if self._state:
            return int(self._state["timeindex_entries"])
        return os.fstat(self._open.time_index_descriptor()).st_size // TIME_ENTRY_BYTES
