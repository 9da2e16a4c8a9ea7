"""Writes one partition of an internal topic for its coordinator: `__consumer_offsets` or `__transaction_state`.

The appends of one turn of the loop, or of one read of requests, are written as one batch. They name the leader epoch in
which this broker began to lead the partition, so an append is refused if the leadership was interrupted since. The records
of a transaction are a separate batch. End markers that follow one another in the queue are written together. The order in
the log is the order of the queue. An append is acknowledged when the high watermark has passed it, unless this broker no
longer leads the partition; with flush.messages, this is when it is on the device. As with acks=all, appends are refused
while fewer than min.insync.replicas replicas are in sync. Used in the coordinator's loop; `log_replay.py` reads the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.api.offset_commits import in_steps, is_long, join
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.records.batch_builder import BatchBuilder
from odradek.clock import now_ms
from odradek.coordination.environment import (
    AppendCallback,
    EndMarker,
    LateCallback,
    OffsetCallback,
    Records,
)
from odradek.protocol.errors import ErrorCode, error_of
from odradek.shm.partition_names import partition_name
from odradek.storage import compression

log = logging.getLogger("odradek.coordination")

ACKS_ALL = -1
MAX_RECORDS = 5000
MAX_BYTES = 1 << 19
MAX_MARKERS = 1000
"""The largest number of end markers in one write."""
LOCK_RETRY_S = 0.0005
MAX_PLAIN_BYTES = 1 << 30
"""The largest size of records before their compression."""
END = object()
ROUNDS = 8
"""The number of rounds of a turn. Each round writes what the callbacks of the round before have appended; the rest waits
for the next turn."""
NONE = ErrorCode.NONE

ERROR_OF_REFUSAL = {
    AppendResult.APPEND_STALE: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_NOT_LEADER: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_FENCED_EPOCH: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_OFFLINE: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_IO_ERROR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error that clients receive if the slot refuses an append."""

ERROR_OF_BATCH = {
    int(ErrorCode.MESSAGE_TOO_LARGE): ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    int(ErrorCode.INVALID_PRODUCER_EPOCH): ErrorCode.INVALID_PRODUCER_EPOCH,
    int(ErrorCode.INVALID_TXN_STATE): ErrorCode.INVALID_TXN_STATE,
}
"""The error of appends whose batch is refused with this error; `not_written` for all others."""


class Writer(Protocol):
    """An object with something to write in this turn. :ivar name: for log lines."""

    @property
    def name(self) -> str: ...

    def write(self) -> None:
        """Write it."""


class AppendTurn:
    """Makes the logs of a coordinator write their queued appends: in the loop's next turn, or earlier, when `run` is called.

    If callbacks append more while the logs write, this is written in further rounds of the same turn, up to ROUNDS rounds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._logs: list[Writer] = []
        self._handle: asyncio.Handle | None = None
        self._running = False
        self.held = False  # while set, nothing is scheduled: the code that set it calls `run`

    def add(self, log: Writer) -> None:
        """Schedule a log that has something to write."""
        self._logs.append(log)
        if not self.held and not self._running:
            self._schedule()

    def _schedule(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_soon(self.run)

    def run(self) -> None:
        """Make all scheduled logs write. If one log fails, the others still write."""
        self.held = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._running = True
        try:
            for _ in range(ROUNDS):
                if not self._logs:
                    break
                self._write_once()
        finally:
            self._running = False
        if self._logs:
            self._schedule()

    def _write_once(self) -> None:
        logs, self._logs = self._logs, []
        for coordinator_log in logs:
            try:
                coordinator_log.write()
            except Exception:
                log.exception("cannot append to %s: internal error", coordinator_log.name)


class TransactionalAppend:
    """Queued records of a transaction, which are written as a separate batch.

    :ivar base_offset: of the batch; -1 until it is written.
    """

    __slots__ = ("_then", "base_offset", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, then: OffsetCallback) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_offset = -1
        self._then = then

    def appended(self, error: ErrorCode) -> None:
        """Report the outcome."""
        self._then(error, self.base_offset)


class MarkerAppend:
    """An end marker that is queued.

    :ivar error: the error of this marker only; other markers of the same write may succeed.
    :ivar offset: the offset of the marker; -1 if it is not in the log, or if an earlier marker has ended the transaction.
    """

    __slots__ = ("_then", "error", "marker", "offset")

    def __init__(self, marker: EndMarker, then: OffsetCallback) -> None:
        self.marker = marker
        self.error = NONE
        self.offset = -1
        self._then = then

    def appended(self, error: ErrorCode) -> None:
        """Report the outcome."""
        self._then(self.error if error is NONE else error, self.offset)


Special = TransactionalAppend | MarkerAppend | None
"""The kind of a queued append; None: plain records."""
Queued = tuple[Records, AppendCallback, LateCallback, Special]


@dataclass(slots=True)
class Unacknowledged:
    """A batch above the high watermark: not all in-sync replicas have it, or it is not on the device although flush.messages
    requires this.

    :param end: the high watermark that it waits for. :param late: callbacks for `deadline`, which is in the loop's time.
    :param alone: it waits only for the device of this broker, whatever the other replicas have.
    """

    end: int
    callbacks: list[AppendCallback]
    late: list[Callable[[], None]]
    deadline: float | None = None
    alone: bool = False


@dataclass(slots=True)
class LongBatch:
    """The batch of an append with very many records.

    :param packing: the compression of its records. :param complete: it is built; it waits if the partition's lock is not free.
    """

    builder: BatchBuilder
    steps: Iterator[None]
    packing: asyncio.Future[bytes] | None = None
    complete: bool = False


class CoordinatorLog:
    """The log of one partition that this coordinator leads; implements `GroupLog`.

    :param place: slot, incarnation and the leader epoch in which this broker began to lead the partition.
    :param max_bytes: the size of the largest batch that the partition accepts.
    :param timeout_ms: `offsets.commit.timeout.ms`: an append that is not acknowledged within this time is reported as late.
    :param acks: `offsets.commit.required.acks`: an append with 0 or 1 does not wait for other replicas.
    :param flusher: syncs the log if its topic has flush.messages.
    :param not_written: the error of an append whose records are certainly not in the log, unless a more precise error applies.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: AppendTurn,
        place: tuple[int, int, int],
        codec: int,
        max_bytes: int,
        timeout_ms: int,
        flusher: Flusher,
        acks: int = ACKS_ALL,
        not_written: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ) -> None:
        self.place = place
        self._not_written = not_written
        self._flusher = flusher
        self._waits = acks == ACKS_ALL
        self._loop = loop
        self._turn = turn
        self._codec = codec
        self._max_bytes = max_bytes
        # The largest size of the appends in one batch; it leaves room for the batch's overhead.
        self._joined_bytes = min(MAX_BYTES, max_bytes // 2)
        self._timeout_s = timeout_ms / 1000
        self._queue: list[Queued] = []
        self._special = 0  # the number of appends in the queue that are not plain
        self._front = 0  # the number of appends, from the front of the queue, that are being written
        self._long: LongBatch | None = None  # of the append at the front of the queue
        self._due = False
        self._busy_since: float | None = None
        self._unacknowledged: deque[Unacknowledged] = deque()
        self._confirming = False
        self._unconfirmed: list[AppendCallback] = []  # `confirm` for them begins when the present one has ended
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def append(self, records: Records, then: AppendCallback, late: LateCallback = None) -> None:
        """See `GroupLog`."""
        if self._closed:
            self._loop.call_soon(then, ErrorCode.NOT_COORDINATOR)
            return
        if not records and not self._queue:
            self._after_the_last(then, late)
            return
        self._enqueue((records, then, late, None))

    def append_transactional(
        self,
        records: Records,
        producer_id: int,
        producer_epoch: int,
        then: OffsetCallback,
        late: LateCallback = None,
    ) -> None:
        """See `OffsetsLog`."""
        if self._closed:
            self._loop.call_soon(then, ErrorCode.NOT_COORDINATOR, -1)
            return
        append = TransactionalAppend(producer_id, producer_epoch, then)
        self._special += 1
        self._enqueue((records, append.appended, late, append))

    def append_marker(self, marker: EndMarker, then: OffsetCallback) -> None:
        """See `OffsetsLog`."""
        if self._closed:
            self._loop.call_soon(then, ErrorCode.NOT_COORDINATOR, -1)
            return
        append = MarkerAppend(marker, then)
        self._special += 1
        self._enqueue(((), append.appended, None, append))

    def confirm(self, key: bytes, then: AppendCallback) -> None:
        """Call `then` with NONE once it is certain that this broker led the partition after this call; otherwise with an error.

        A deposed leader that has not learned of it does not know what its successor wrote. Followers acknowledge an append only
        to their present leader, so a tombstone is appended, one for all calls in the time of a round trip.

        :param key: of the tombstone; no other record may have it.
        """
        self._unconfirmed.append(then)
        if not self._confirming:
            self._confirm(key)

    def _confirm(self, key: bytes) -> None:
        callbacks, self._unconfirmed = self._unconfirmed, []
        self._confirming = True

        def confirmed(code: ErrorCode) -> None:
            nonlocal callbacks
            waiting, callbacks = callbacks, []
            if waiting:  # not late
                self._confirming = False
                call_all(waiting, code)
                if self._unconfirmed and not self._confirming:
                    self._confirm(key)

        self.append([(key, None)], confirmed, lambda: confirmed(ErrorCode.REQUEST_TIMED_OUT))

    def _enqueue(self, append: Queued) -> None:
        self._queue.append(append)
        if not self._due:
            self._due = True
            self._turn.add(self)

    def _after_the_last(self, then: AppendCallback, late: LateCallback) -> None:
        """Call `then` when everything written so far is acknowledged."""
        if not self._unacknowledged:
            then(NONE)
            return
        end = self._unacknowledged[-1].end
        self._unacknowledged.append(Unacknowledged(end, [then], [late] if late is not None else []))
        self._watch()

    @property
    def name(self) -> str:
        """Topic and partition, for log lines."""
        return partition_name(self.place[0])

    @property
    def closed(self) -> bool:
        """Whether the log refuses further appends."""
        return self._closed

    def close(self) -> None:
        """Fail all waiting and further appends with NOT_COORDINATOR."""
        self._closed = True
        waiting = [then for batch in self._unacknowledged for then in batch.callbacks]
        waiting += self._drop_queue()
        self._unacknowledged.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call_all(waiting, ErrorCode.NOT_COORDINATOR)

    def _drop_queue(self) -> list[AppendCallback]:
        """Empty the queue; return its callbacks."""
        waiting = [then for _, then, _, _ in self._queue]
        self._queue.clear()
        self._special = 0
        self._long = None
        return waiting

    def look(self) -> None:
        """Acknowledge the appends that the high watermark has passed.

        If appends are left, this process is woken when the high watermark moves, and the log is synced if flush.messages
        requires it.
        """
        self._acknowledge()
        if self._unacknowledged:
            slots.await_committed(self.place[0])
            self._acknowledge()
        if self._unacknowledged and slots.awaits_flush(self.place[0]):
            self._flusher.ask(self.place[0])

    def _acknowledge(self) -> None:
        if not self._unacknowledged:
            return
        slot, incarnation, leader_epoch = self.place
        high_watermark = slots.high_watermark(slot)
        enough = slots.has_min_in_sync(slot, maximal=True)
        if not slots.leads(slot, incarnation, leader_epoch):  # then the high watermark may be of another log
            waiting = [then for batch in self._unacknowledged for then in batch.callbacks]
            self._unacknowledged.clear()
            call_all(waiting, ErrorCode.NOT_COORDINATOR)
            return
        while self._unacknowledged and (self._unacknowledged[0].end <= high_watermark or self._is_on_device()):
            batch = self._unacknowledged.popleft()
            call_all(batch.callbacks, NONE if enough or batch.alone else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _is_on_device(self) -> bool:
        """Whether the oldest batch waits only for this broker's device, and is on it as flush.messages requires."""
        slot, batch = self.place[0], self._unacknowledged[0]
        return batch.alone and (slot_facts.describe(slot).flushed_offset >= batch.end or not slots.awaits_flush(slot))

    def when_committed(self, end: int, then: AppendCallback) -> None:
        """Call `then` once the high watermark has reached `end`. Must be called before the first append."""
        self._unacknowledged.append(Unacknowledged(end, [then], []))
        self.look()

    def write(self) -> None:
        """Write the queued appends."""
        self._due = False
        while self._queue:
            self._front = 1
            end = 0
            try:
                written = self._write_front()
                if written is None:
                    self._due = True
                    break
                outcome, end = written
            except slots.SlotChanged as refusal:
                if refusal.result == AppendResult.APPEND_BUSY:
                    self._wait_for_lock()
                    break  # the batches written before are acknowledged and watched below
                outcome = error_of_refusal(refusal, self.place[0])
            except Exception:  # an internal error: the appends after these must not wait forever
                log.exception("cannot append to %s: internal error", self.name)
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            done = self._queue[: self._front]
            del self._queue[: self._front]
            if done[0][3] is not None:
                self._special -= len(done)
            self._busy_since = self._long = None
            callbacks = [then for _, then, _, _ in done]
            alone = not self._waits and done[0][3] is None
            if outcome is NONE and alone and not slots.awaits_flush(self.place[0]):
                call_all(callbacks, NONE)
            elif outcome is NONE:
                late_callbacks = [late for _, _, late, _ in done if late is not None]
                self._unacknowledged.append(Unacknowledged(end, callbacks, late_callbacks, alone=alone))
            else:
                call_all(callbacks, outcome)
        self.look()
        if self._unacknowledged:
            self._watch()

    def _write_front(self) -> tuple[ErrorCode, int] | None:
        """Write appends from the front of the queue that can be written together, and set `_front` to their number.

        :returns: the outcome, and the high watermark that acknowledges them; None if the batch is still being built.
        :raises SlotChanged: the slot refuses the append.
        """
        special = self._queue[0][3]
        if isinstance(special, MarkerAppend):
            return self._write_markers()
        slot, incarnation, leader_epoch = self.place
        queue = self._queue
        if special is not None:
            queue = queue[:1]
        elif self._special:
            queue = list(takewhile(_is_plain, queue))
        if is_long(queue[0][0]):
            built = self._build_long(queue[0][0])
            if built is None:
                return None
            builder = built
        else:
            builder = BatchBuilder()
            self._front = join(queue, builder, MAX_RECORDS, self._joined_bytes, now_ms())
        if not builder.count:  # the appends have no records and wait for those written before
            return NONE, self._last_end()
        if (self._waits or special is not None) and not slots.has_min_in_sync(slot):
            return self._not_written, 0
        place = slot, builder, incarnation, leader_epoch, self._codec, compression.compress, self._max_bytes
        if special is None:
            error, base_offset = slots.append_built(*place)
        else:
            error, base_offset = slots.append_built(*place, special.producer_id, special.producer_epoch, True)
            special.base_offset = base_offset if not error else -1
        if error:
            return ERROR_OF_BATCH.get(error, self._not_written), 0
        return NONE, base_offset + builder.count

    def _build_long(self, records: Records) -> BatchBuilder | None:
        """Build the batch of a long append: a step in each turn of the loop, and its compression in a thread. The records are
        in one batch, so that all of them are stored, or none.

        :returns: the batch when it is complete; until then None, and `write` will be called again.
        """
        if self._long is None:
            builder = BatchBuilder()
            most_bytes = MAX_PLAIN_BYTES if self._codec else self._max_bytes
            self._long = LongBatch(builder, in_steps(records, builder, now_ms(), most_bytes))
        long = self._long
        if long.complete:
            return long.builder
        if next(long.steps, END) is not END:
            self._loop.call_soon(self.write)
            return None
        if self._codec and long.packing is None:
            long.packing = self._loop.run_in_executor(None, compression.compress, self._codec, long.builder.records)
            long.packing.add_done_callback(lambda _: self.write())
            return None
        if long.packing is not None:
            long.builder.put_packed(long.packing.result())
        long.complete = True
        return long.builder

    def _write_markers(self) -> tuple[ErrorCode, int]:
        """Write the end markers at the front of the queue, see `_write_front`."""
        appends: list[MarkerAppend] = []
        for _, _, _, special in self._queue[:MAX_MARKERS]:
            if not isinstance(special, MarkerAppend):
                break
            appends.append(special)
        self._front = len(appends)
        if not slots.has_min_in_sync(self.place[0]):
            return self._not_written, 0
        outcomes, end = write_markers(self.place, [append.marker for append in appends])
        for append, (error, offset) in zip(appends, outcomes, strict=True):
            append.error, append.offset = error, offset
        return NONE, max(end, self._last_end())

    def _last_end(self) -> int:
        """The high watermark that acknowledges everything written so far; 0 if everything is acknowledged."""
        return self._unacknowledged[-1].end if self._unacknowledged else 0

    def _wait_for_lock(self) -> None:
        """Another process holds the partition's lock: retry, and refuse the queued appends after `timeout_ms`."""
        now = self._loop.time()
        if self._busy_since is None:
            self._busy_since = now
        if now < self._busy_since + self._timeout_s:
            self._due = True
            self._loop.call_later(LOCK_RETRY_S, self.write)
            return
        log.warning(
            "refusing %d appends to %s: the partition's lock was not free for %g s",
            len(self._queue), self.name, self._timeout_s,
        )  # fmt: skip
        self._busy_since = None
        call_all(self._drop_queue(), self._not_written)

    def _watch(self) -> None:
        """Set the deadline of batches that have none, and the timer for the first deadline."""
        deadline = self._loop.time() + self._timeout_s
        for batch in reversed(self._unacknowledged):
            if batch.deadline is not None:
                break
            batch.deadline = deadline
        first = self._unacknowledged[0].deadline
        if self._timer is None and first is not None:
            self._timer = self._loop.call_at(first, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        for batch in list(self._unacknowledged):
            if batch.deadline is not None and batch.deadline > now:
                self._timer = self._loop.call_at(batch.deadline, self._overdue)
                return
            callbacks, batch.late = batch.late, []
            for report_late in callbacks:
                try:
                    report_late()
                except Exception:
                    log.exception("a callback of an append to %s failed while the append waits", self.name)


def error_of_refusal(refusal: slots.SlotChanged, slot: int) -> ErrorCode:
    """The error of appends that the slot refused; also logs the refusal."""
    log.warning("an append to %s was refused: %s", partition_name(slot), refusal)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error if refusal.result is None else ERROR_OF_REFUSAL.get(refusal.result, error)


def write_markers(place: tuple[int, int, int], markers: Sequence[EndMarker]) -> tuple[list[tuple[ErrorCode, int]], int]:
    """Append end markers in one write.

    :param place: slot, incarnation and leader epoch.
    :returns: error and offset of each marker, in order, and the high watermark that acknowledges all of them. The offset is -1
        if the marker was refused, or if an earlier marker has ended the transaction.
    :raises SlotChanged: nothing was appended.
    """
    outcomes = [(error_of(error), offset) for error, offset in slots.append_markers(*place, markers)]
    end = max(offset for _, offset in outcomes) + 1
    if (NONE, -1) in outcomes:
        # A repeated marker is not written again and waits for the first one, which may be above the high watermark: an
        # earlier leader, or a coordinator process that died, may have written it.
        end = max(end, slot_facts.describe(place[0]).log_end_offset)
    return outcomes, end


def _is_plain(append: Queued) -> bool:
    return append[3] is None


def call_all(callbacks: Iterable[AppendCallback], code: ErrorCode) -> None:
    """Call each callback, even if others raise."""
    for then in callbacks:
        try:
            then(code)
        except Exception:
            log.exception("a callback of an append to an internal topic failed")
