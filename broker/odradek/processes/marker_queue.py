"""Writes the end markers of transactions to the partitions that this broker leads.

The markers of one turn of the loop for one partition go out in one write. A marker is acknowledged as a record with acks=all: when
the high watermark has passed it. Used only in the coordinator's event loop: for the transactions of this broker's coordinator, and
for the markers that other brokers send (WriteTxnMarkers).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

import odradek._ext.partition.slots as slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.topics import TopicDirectory
from odradek.processes.coordinator_log import LOCK_RETRY_S, AppendTurn
from odradek.protocol.errors import ErrorCode
from odradek.shm.partition_names import partition_name

log = logging.getLogger("odradek.transactions")

NONE = ErrorCode.NONE
LOCK_PATIENCE_S = 15.0
"""The time in seconds after which a marker is refused because another process holds the partition's lock: longer than the
supervisor lets such a process stand still."""
ERROR_OF_REFUSAL = {
    AppendResult.APPEND_STALE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    AppendResult.APPEND_NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    AppendResult.APPEND_FENCED_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    AppendResult.APPEND_OFFLINE: ErrorCode.KAFKA_STORAGE_ERROR,
    AppendResult.APPEND_IO_ERROR: ErrorCode.KAFKA_STORAGE_ERROR,
}
"""The error of a marker if the slot refuses the write."""
BY_NUMBER = {int(code): code for code in ErrorCode}

Then = Callable[[ErrorCode], None]


class EndMarker(NamedTuple):
    """The marker of one transaction, for any partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    transaction_version: int


class _Queue:
    """The markers of one slot that are not written yet. :ivar since: when its lock was first found taken; None: it was not."""

    def __init__(self) -> None:
        self.markers: list[EndMarker] = []
        self.callbacks: list[Then] = []
        self.since: float | None = None


class _Written(NamedTuple):
    end: int
    incarnation: int
    leader_epoch: int
    then: Then


class MarkerQueue:
    """See the module."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turn: AppendTurn, topics: TopicDirectory, flusher: Flusher
    ) -> None:
        self._loop = loop
        self._turn = turn
        self._topics = topics
        self._flusher = flusher
        self._queues: dict[int, _Queue] = {}
        self._due = False
        self._written: dict[int, deque[_Written]] = {}

    def slot_of(self, topic: str, partition: int) -> int:
        """The slot of a partition; -1 if it does not exist."""
        known = self._topics.get(topic)
        return -1 if known is None or not 0 <= partition < known.count else int(known.slot(partition))

    def put(self, topic: str, partition: int, marker: EndMarker, then: Then) -> None:
        """Write a marker in this turn. `then` is called once, possibly within this turn, with NONE or the error."""
        slot = self.slot_of(topic, partition)
        if slot < 0:
            then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        queue = self._queues.get(slot)
        if queue is None:
            queue = self._queues[slot] = _Queue()
        queue.markers.append(marker)
        queue.callbacks.append(then)
        if not self._due:
            self._due = True
            self._turn.add(self)

    def write(self) -> None:
        """Write the queued markers; called by the turn."""
        self._due = False
        queues, self._queues = self._queues, {}
        for slot, queue in queues.items():
            self._write(slot, queue)

    def _write(self, slot: int, queue: _Queue) -> None:
        leadership = slots.leadership(slot)
        if leadership is None:
            _answer_all(queue.callbacks, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not slots.has_min_in_sync(slot):
            _answer_all(queue.callbacks, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        incarnation, leader_epoch = leadership
        try:
            results = slots.append_markers(slot, incarnation, leader_epoch, queue.markers)
        except slots.SlotChanged as refusal:
            if refusal.result == AppendResult.APPEND_BUSY and self._patient(queue):
                self._again(slot, queue)
                return
            log.warning("cannot write %d transaction markers to %s: %s", len(queue.markers), partition_name(slot), refusal)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            if refusal.result is not None:
                code = ERROR_OF_REFUSAL.get(refusal.result, code)
            _answer_all(queue.callbacks, code)
            return
        except Exception:  # an internal error: the markers of other partitions must still be written
            log.exception("cannot write transaction markers to %s: internal error", partition_name(slot))
            _answer_all(queue.callbacks, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        waiting = deque[_Written]()
        high_watermark = slots.high_watermark(slot)
        for (error, offset), then in zip(results, queue.callbacks, strict=True):
            if error or offset < high_watermark:
                _answer_all([then], BY_NUMBER.get(error, ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                waiting.append(_Written(offset + 1, incarnation, leader_epoch, then))
        if waiting:
            self._written.setdefault(slot, deque()).extend(waiting)
            self._look_at(slot)

    def _patient(self, queue: _Queue) -> bool:
        now = self._loop.time()
        if queue.since is None:
            queue.since = now
        return now < queue.since + LOCK_PATIENCE_S

    def _again(self, slot: int, queue: _Queue) -> None:
        """Another process holds the partition's lock: write these markers a moment later, before those that came since."""
        later = self._queues.get(slot)
        if later is not None:
            queue.markers += later.markers
            queue.callbacks += later.callbacks
        self._queues[slot] = queue
        if not self._due:
            self._due = True
            self._loop.call_later(LOCK_RETRY_S, self.write_now)

    def write_now(self) -> None:
        """Write the queued markers, and what their callbacks append, outside of a turn."""
        self._turn.add(self)
        self._turn.run()

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def look(self, moved: Collection[int]) -> None:
        """Acknowledge the markers in those slots of `moved` whose high watermark has passed them."""
        for slot in [slot for slot in self._written if slot in moved]:
            self._look_at(slot)

    def look_at_all(self) -> None:
        """Acknowledge all markers that can be acknowledged."""
        for slot in list(self._written):
            self._look_at(slot)

    def _look_at(self, slot: int) -> None:
        self._acknowledge(slot)
        if slot in self._written:
            slots.await_committed(slot)
            self._acknowledge(slot)
        if slot in self._written and slots.awaits_flush(slot):
            self._flusher.ask(slot)

    def _acknowledge(self, slot: int) -> None:
        waiting = self._written.get(slot)
        if waiting is None:
            return
        high_watermark = slots.high_watermark(slot)
        enough = slots.has_min_in_sync(slot, maximal=True)
        done: list[tuple[Then, ErrorCode]] = []
        while waiting:
            first = waiting[0]
            if not slots.leads(slot, first.incarnation, first.leader_epoch):
                done.append((waiting.popleft().then, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif first.end <= high_watermark:
                done.append((waiting.popleft().then, NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
            else:
                break
        if not waiting:
            del self._written[slot]
        for then, code in done:
            _answer_all([then], code)


def _answer_all(callbacks: list[Then], code: ErrorCode) -> None:
    """Call each callback, even if others raise."""
    for then in callbacks:
        try:
            then(code)
        except Exception:
            log.exception("the callback of a transaction marker failed")
