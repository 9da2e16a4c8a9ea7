"""Writes and reads one partition of `__consumer_offsets` for the coordinator.

The appends of one turn of the loop, or of one read of requests, are written as one batch, in the leader epoch in which the
partition was taken over: the append of a deposed coordinator is refused. An append is acknowledged when the high watermark has
passed it, unless this broker ceased to be the leader meanwhile; with flush.messages, this is when it is on the device. As with
acks=all, appends are refused while fewer than min.insync.replicas replicas are in sync. Used in the coordinator's loop;
`read_records` in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.api.offset_commits import join
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.records.batch_builder import BatchBuilder
from odradek.clock import now_ms
from odradek.coordination.environment import NO_PRODUCER, AppendCallback, LateCallback, LogBatch, Records
from odradek.protocol.errors import ErrorCode
from odradek.shm.partition_names import partition_name
from odradek.storage import compression
from odradek.storage.batch import ABORT, COMMIT, END_TXN_KEY, read_batch
from odradek.storage.file_names import partition_directory_name
from odradek.storage.old_messages import MAGIC_AT, is_old, read_message

log = logging.getLogger("odradek.groups")

ACKS_ALL = -1
MAX_RECORDS = 5000
MAX_BYTES = 1 << 19
LOCK_RETRY_S = 0.0005
NONE = ErrorCode.NONE
PIECE_BYTES = 1 << 20
LENGTH_BYTES = 12
HEAD_BYTES = MAGIC_AT + 1
"""The bytes of a batch or an old message that contain base offset, length, and format version."""

ERROR_OF_REFUSAL = {
    AppendResult.APPEND_STALE: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_NOT_LEADER: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_FENCED_EPOCH: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_OFFLINE: ErrorCode.NOT_COORDINATOR,
    AppendResult.APPEND_IO_ERROR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error that clients receive if the slot refuses an append."""

ERROR_OF_BATCH = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error that clients receive if the batch is refused with this error; COORDINATOR_NOT_AVAILABLE for all others."""


BY_NUMBER = {int(code): code for code in ErrorCode}


class LogMoved(Exception):
    """The log's files changed while they were read."""


class AppendTurn:
    """Lets the logs of a coordinator write their queued appends: in the loop's next turn, or earlier, when `run` is called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._logs: list[OffsetsLog] = []
        self._handle: asyncio.Handle | None = None
        self.held = False  # while set, nothing is scheduled: the code that set it calls `run`

    def add(self, log: OffsetsLog) -> None:
        """Schedule a log that has something to write."""
        self._logs.append(log)
        if self._handle is None and not self.held:
            self._handle = self._loop.call_soon(self.run)

    def run(self) -> None:
        """Let all scheduled logs write. The failure of one log does not affect the others."""
        self.held = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        logs, self._logs = self._logs, []
        for group_log in logs:
            try:
                group_log.write()
            except Exception:
                log.exception("cannot append to a partition of __consumer_offsets: internal error")


@dataclass(slots=True)
class Unacknowledged:
    """A batch above the high watermark: not all in-sync replicas have it, or it is not on the device as flush.messages
    requires.

    :param end: the high watermark that it waits for. :param late: callbacks for `deadline`, which is in the loop's time.
    """

    end: int
    callbacks: list[AppendCallback]
    late: list[Callable[[], None]]
    deadline: float | None = None


class OffsetsLog:
    """The log of one partition that this coordinator leads.

    :param place: slot, incarnation and leader epoch in which the partition is led.
    :param max_bytes: the size of the largest batch that the partition accepts.
    :param timeout_ms: `offsets.commit.timeout.ms`: an append that is not acknowledged within this time is reported as late.
    :param acks: `offsets.commit.required.acks`: an append with 0 or 1 does not wait for other replicas.
    :param flusher: syncs the log if its topic has flush.messages.
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
    ) -> None:
        self.place = place
        self._flusher = flusher
        self._waits = acks == ACKS_ALL
        self._loop = loop
        self._turn = turn
        self._codec = codec
        self._max_bytes = max_bytes
        # Largest size of the appends in one batch, which leaves room for the batch's overhead.
        self._joined_bytes = min(MAX_BYTES, max_bytes // 2)
        self._timeout_s = timeout_ms / 1000
        self._queue: list[tuple[Records, AppendCallback, LateCallback]] = []
        self._due = False
        self._busy_since: float | None = None
        self._unacknowledged: deque[Unacknowledged] = deque()
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
        self._queue.append((records, then, late))
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
    def closed(self) -> bool:
        """Whether the log refuses further appends."""
        return self._closed

    def close(self) -> None:
        """Fail all waiting and further appends with NOT_COORDINATOR."""
        self._closed = True
        waiting = [then for batch in self._unacknowledged for then in batch.callbacks]
        waiting += [then for _, then, _ in self._queue]
        self._queue.clear()
        self._unacknowledged.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call_all(waiting, ErrorCode.NOT_COORDINATOR)

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
        while self._unacknowledged and self._unacknowledged[0].end <= high_watermark:
            call_all(self._unacknowledged.popleft().callbacks, NONE if enough else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def when_committed(self, end: int, then: AppendCallback) -> None:
        """Call `then` once the high watermark has reached `end`. Must be called before the first append."""
        self._unacknowledged.append(Unacknowledged(end, [then], []))
        self.look()

    def write(self) -> None:
        """Write the queued appends."""
        slot, incarnation, leader_epoch = self.place
        self._due = False
        while self._queue:
            count = 1  # the number of appends, from the front of the queue, that this batch contains
            try:
                builder = BatchBuilder()
                count = join(self._queue, builder, MAX_RECORDS, self._joined_bytes, now_ms())
                error, end = 0, self._unacknowledged[-1].end if self._unacknowledged else 0
                if builder.count and self._waits and not slots.has_min_in_sync(slot):
                    error = ErrorCode.NOT_ENOUGH_REPLICAS
                elif builder.count:  # else the appends have no records and wait for those written before
                    error, base_offset = slots.append_built(
                        slot, builder, incarnation, leader_epoch, self._codec, compression.compress, self._max_bytes
                    )
                    end = base_offset + builder.count
                outcome = ERROR_OF_BATCH.get(BY_NUMBER[error], ErrorCode.COORDINATOR_NOT_AVAILABLE) if error else NONE
            except slots.SlotChanged as refusal:
                if refusal.result == AppendResult.APPEND_BUSY:
                    self._wait_for_lock()
                    break  # the batches written before are acknowledged and watched below
                log.warning("an append to %s was refused: %s", partition_name(slot), refusal)
                outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
                if refusal.result is not None:
                    outcome = ERROR_OF_REFUSAL.get(refusal.result, outcome)
            except Exception:  # an internal error: the appends after these must not wait forever
                log.exception("cannot append to %s: internal error", partition_name(slot))
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            done = self._queue[:count]
            del self._queue[:count]
            self._busy_since = None
            callbacks = [then for _, then, _ in done]
            if outcome is NONE and not self._waits:
                call_all(callbacks, NONE)
            elif outcome is NONE:
                late_callbacks = [late for _, _, late in done if late is not None]
                self._unacknowledged.append(Unacknowledged(end, callbacks, late_callbacks))
            else:
                call_all(callbacks, outcome)
        self.look()
        if self._unacknowledged:
            self._watch()

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
            len(self._queue), partition_name(self.place[0]), self._timeout_s,
        )  # fmt: skip
        self._busy_since = None
        waiting = [then for _, then, _ in self._queue]
        self._queue.clear()
        call_all(waiting, ErrorCode.COORDINATOR_NOT_AVAILABLE)

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
                    log.exception("the callback of an append to __consumer_offsets failed while the append waits")


def call_all(callbacks: Iterable[AppendCallback], code: ErrorCode) -> None:
    """Call each callback, even if others raise."""
    for then in callbacks:
        try:
            then(code)
        except Exception:
            log.exception("the callback of an append to __consumer_offsets failed")


def read_records(slot: int, log_dirs: Sequence[Path]) -> Iterator[list[LogBatch]]:
    """The records of the log, from the oldest one to the present log end, in pieces; offsets ascend.

    It reads to the log end and not to the high watermark: a new leader learns the high watermark late, and the former leader
    may have acknowledged records above it.

    :raises LogMoved: a file vanished, or the log's files changed, while the log was read: the result may have gaps.
    :raises OSError: the log cannot be read, contains a corrupt batch, or ends before the log end: groups built from it would
        lose committed offsets.
    """
    state = slot_facts.describe(slot)
    end = state.log_end_offset
    directory = log_dirs[state.log_dir] / partition_directory_name(state.topic, state.partition)
    generation = state.generation
    reached = state.log_start_offset
    try:
        for path in sorted(directory.glob("*.log")):
            reached = max(reached, int(path.stem))  # compaction may have taken the last records of the segment before
            if reached >= end:
                break
            for upto, piece in _read_file(path, state.log_start_offset, end):
                reached = upto
                yield piece
    except FileNotFoundError as error:
        raise LogMoved(f"{error.filename} was removed") from error
    if slot_facts.describe(slot).generation != generation:
        raise LogMoved("its segments changed")
    if reached < end:
        raise OSError(errno.EIO, f"the log ends at offset {reached}, expected {end}", str(directory))


def _read_file(path: Path, start: int, end: int) -> Iterator[tuple[int, list[LogBatch]]]:
    """The records of one segment in pieces, each with the offset after its last record."""
    piece: list[LogBatch] = []
    reached = size = 0
    with path.open("rb") as file:
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            if int.from_bytes(head[:8], "big") >= end:
                break
            length = int.from_bytes(head[8:LENGTH_BYTES], "big", signed=True)
            if length < HEAD_BYTES - LENGTH_BYTES:  # `read` would take a negative number as the rest of the file
                raise OSError(errno.EIO, f"corrupt batch (its length field is {length})", str(path))
            data = head + file.read(length - (HEAD_BYTES - LENGTH_BYTES))
            try:
                last, batch = _read_old(data, start, end) if is_old(data) else _read_batch(data, start, end)
            except ValueError as error:  # the batch is corrupt or cannot be decompressed
                raise OSError(errno.EIO, f"corrupt batch ({error})", str(path)) from error
            reached = last + 1
            size += len(data)
            if piece and piece[-1].producer_id == batch.producer_id == NO_PRODUCER:
                piece[-1].records.extend(batch.records)
            else:
                piece.append(batch)
            if size >= PIECE_BYTES:
                yield reached, piece
                piece, size = [], 0
    if reached:
        yield reached, piece


def _read_batch(data: bytes, start: int, end: int) -> tuple[int, LogBatch]:
    """The last offset of a batch, and its records within [start, end). Raises ValueError."""
    batch, _ = read_batch(data)
    selected = [record for record in batch.records() if start <= record.offset < end]
    if batch.is_control:
        kind = selected[0].key if selected else None
        if kind is None or len(kind) < END_TXN_KEY.size or END_TXN_KEY.unpack_from(kind)[1] not in (ABORT, COMMIT):
            return batch.last_offset, LogBatch([])
        commits = END_TXN_KEY.unpack_from(kind)[1] == COMMIT
        return batch.last_offset, LogBatch([], batch.producer_id, commits=commits)
    records = [(record.key or b"", record.value) for record in selected]
    if batch.is_transactional:
        return batch.last_offset, LogBatch(records, batch.producer_id, [record.offset for record in selected])
    return batch.last_offset, LogBatch(records)


def _read_old(data: bytes, start: int, end: int) -> tuple[int, LogBatch]:
    """Like `_read_batch`, for a message of format v0 or v1, from logs of Kafka before 0.11."""
    message, _ = read_message(data)
    selected = [inner for inner in message.opened() if start <= inner.offset < end]
    return message.offset, LogBatch([(inner.key or b"", inner.value) for inner in selected])
