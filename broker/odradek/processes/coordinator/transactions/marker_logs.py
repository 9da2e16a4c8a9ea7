"""Writes the end markers of transactions to the partitions that this broker leads, except those of `__consumer_offsets`.

The markers of one turn of the loop for one partition are written together, and are acknowledged like records with acks=all.
If no other replica is in sync and no sync is needed, they are acknowledged at once. Otherwise, or if the slot's lock is not
free, the partition gets a `CoordinatorLog`, which waits; later markers are queued in it, so that they are written in order.

Used only in the coordinator's event loop: for the transactions of this broker's coordinator, and for the markers that other
brokers send (WriteTxnMarkers).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import odradek._ext.partition.slots as slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.topics import TopicDirectory
from odradek.coordination.environment import EndMarker
from odradek.processes.coordinator.internal_topics.coordinator_log import (
    MAX_MARKERS,
    AppendTurn,
    CoordinatorLog,
    error_of_refusal,
    write_markers,
)
from odradek.protocol.errors import ErrorCode
from odradek.shm.partition_names import partition_name

log = logging.getLogger("odradek.transactions")

NONE = ErrorCode.NONE
ERROR_OF_APPEND = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The error of a marker, by the error of the append. After each of these errors, the coordinator sends the marker again."""

Then = Callable[[ErrorCode], None]
MakeLog = Callable[[tuple[int, int, int]], CoordinatorLog]
Leadership = tuple[int, int]
"""Incarnation, and the leader epoch in which this broker began to lead."""
Queued = tuple[EndMarker, Then]


class MarkerLogs:
    """See the module.

    :param turn: that of all logs of the coordinator process.
    :param make_log: makes the log of a partition, given its slot, incarnation and the epoch in which this broker began to lead.
    """

    name = "the queue of transaction markers"

    def __init__(self, topics: TopicDirectory, turn: AppendTurn, make_log: MakeLog) -> None:
        self._topics = topics
        self._turn = turn
        self._make_log = make_log
        self._queued: dict[int, list[Queued]] = {}  # by slot: the markers that this turn writes
        self._logs: dict[int, CoordinatorLog] = {}
        self._waiting: dict[int, int] = {}  # by slot: the number of markers that are not acknowledged

    def slot_of(self, topic: str, partition: int) -> int:
        """The slot of a partition; -1 if it does not exist."""
        known = self._topics.get(topic)
        return -1 if known is None or not known.exists(partition) else int(known.slot(partition))

    def put(self, topic: str, partition: int, marker: EndMarker, then: Then) -> None:
        """Write a marker in this turn. `then` is called once, possibly within this turn, with NONE or the error."""
        slot = self.slot_of(topic, partition)
        if slot < 0:
            then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        queued = self._queued.get(slot)
        if queued is not None:
            queued.append((marker, then))
            return
        if not self._queued:
            self._turn.add(self)
        self._queued[slot] = [(marker, then)]

    def write(self) -> None:
        """Write the queued markers; called by the turn."""
        queued, self._queued = self._queued, {}
        for slot, markers in queued.items():
            for first in range(0, len(markers), MAX_MARKERS):
                some = markers[first : first + MAX_MARKERS]
                try:
                    self._write(slot, some)
                except Exception:  # none of them was handed to the partition's log: the log's methods only queue
                    log.exception("cannot write transaction markers to %s: internal error", partition_name(slot))
                    _answer(some, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _write(self, slot: int, queued: list[Queued]) -> None:
        """Write markers of one partition together."""
        leadership = slots.leadership(slot)
        if leadership is None:
            _answer(queued, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            if slot in self._waiting:
                self._write_behind(slot, leadership, queued)
                return
            if not slots.has_min_in_sync(slot):
                _answer(queued, ErrorCode.NOT_ENOUGH_REPLICAS)
                return
            outcomes, end = write_markers((slot, *leadership), [marker for marker, _ in queued])
        except slots.SlotChanged as refusal:
            if refusal.result == AppendResult.APPEND_BUSY:
                self._write_behind(slot, leadership, queued)
            else:
                error = error_of_refusal(refusal, slot)
                _answer(queued, ERROR_OF_APPEND.get(error, error))
            return
        codes = [error for error, _ in outcomes]
        committed = slots.high_watermark(slot) >= end and slots.has_min_in_sync(slot, maximal=True)
        if committed and slots.leads(slot, *leadership):
            _answer_each(queued, codes)
        else:
            self._wait(slot, leadership, queued, codes, end)

    def _write_behind(self, slot: int, leadership: Leadership, queued: Sequence[Queued]) -> None:
        """Queue markers in the partition's log, which writes them after those that wait already, when the lock is free."""
        partition_log = self._log_of(slot, leadership)
        for marker, then in queued:
            self._waiting[slot] = self._waiting.get(slot, 0) + 1

            def appended(error: ErrorCode, offset: int, then: Then = then) -> None:
                self._answered(slot, 1)
                then(ERROR_OF_APPEND.get(error, error))

            partition_log.append_marker(marker, appended)

    def _wait(self, slot: int, leadership: Leadership, queued: list[Queued], codes: list[ErrorCode], end: int) -> None:
        """Answer written markers when the high watermark has reached `end`."""
        partition_log = self._log_of(slot, leadership)
        self._waiting[slot] = len(queued)

        def committed(error: ErrorCode) -> None:
            self._answered(slot, len(queued))
            if error is NONE:
                _answer_each(queued, codes)
            else:
                _answer(queued, ERROR_OF_APPEND.get(error, error))

        try:
            partition_log.when_committed(end, committed)
        except Exception:  # the markers are in the log's queue, and `look_at_all` looks again
            log.exception("cannot look at the markers of %s: internal error", partition_name(slot))

    def _log_of(self, slot: int, leadership: Leadership) -> CoordinatorLog:
        place = (slot, *leadership)
        partition_log = self._logs.get(slot)
        if partition_log is None or partition_log.place != place or partition_log.closed:
            if partition_log is not None:
                partition_log.close()
            partition_log = self._logs[slot] = self._make_log(place)
        return partition_log

    def _answered(self, slot: int, count: int) -> None:
        self._waiting[slot] -= count
        if not self._waiting[slot]:
            del self._waiting[slot]

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge the markers in those slots of `moved` whose high watermark has passed them."""
        for slot in [slot for slot in self._waiting if slot in moved]:
            self._logs[slot].look()

    def look_at_all(self) -> None:
        """Acknowledge all markers that can be acknowledged, and forget the logs without unacknowledged markers."""
        for slot in list(self._waiting):
            self._logs[slot].look()
        for slot in [slot for slot in self._logs if slot not in self._waiting]:
            del self._logs[slot]

    def close(self) -> None:
        """Fail the markers that are not acknowledged."""
        queued, self._queued = self._queued, {}
        for markers in queued.values():
            _answer(markers, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for partition_log in list(self._logs.values()):
            partition_log.look()
            partition_log.close()


def _answer(queued: list[Queued], code: ErrorCode) -> None:
    _answer_each(queued, [code] * len(queued))


def _answer_each(queued: list[Queued], codes: list[ErrorCode]) -> None:
    """Call each callback, even if others raise."""
    for (_, then), code in zip(queued, codes, strict=True):
        try:
            then(code)
        except Exception:
            log.exception("a callback of a transaction marker failed")
