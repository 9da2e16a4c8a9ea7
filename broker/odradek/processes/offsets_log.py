"""One partition of `__consumer_offsets` as the coordinator writes and reads it.

Appends of one turn of the loop, or of one read of requests, go out as one batch, in the leader epoch in which the partition was
taken over: a deposed coordinator's append is refused. An append is acknowledged when the high watermark has passed it, so with
flush.messages when it is on the device. Used in the coordinator's loop; `read_records` in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import odradek._ext.partition.slots as slots
from odradek._ext.api.offset_commits import join
from odradek._ext.partition.flusher import Flusher
from odradek._ext.records.batch_builder import BatchBuilder
from odradek.groups.environment import NO_PRODUCER, AppendCallback, LateCallback, LogBatch, Records
from odradek.protocol.errors import ErrorCode
from odradek.storage import compression
from odradek.storage.batch import ABORT, COMMIT, END_TXN_KEY, read_batch
from odradek.storage.old_messages import MAGIC_AT, is_old, read_message

log = logging.getLogger("odradek.groups")

MOST_RECORDS = 5000
MOST_BYTES = 1 << 19
BUSY_S = 0.0005
NONE = ErrorCode.NONE
PIECE_BYTES = 1 << 20
LENGTH_BYTES = 12
HEAD_BYTES = MAGIC_AT + 1
"""Of a batch or an old message: base offset, length, and enough to know its format."""

OF_REFUSAL = {
    "stale": ErrorCode.NOT_COORDINATOR,
    "not leader": ErrorCode.NOT_COORDINATOR,
    "fenced epoch": ErrorCode.NOT_COORDINATOR,
    "offline": ErrorCode.NOT_COORDINATOR,
    "i/o error": ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a client is told when the slot refuses an append."""

OF_ERROR = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""And when the batch is refused."""


BY_NUMBER = {int(code): code for code in ErrorCode}


class LogMoved(Exception):
    """The log's files changed while they were read."""


class AppendTurn:
    """When the logs of a coordinator write what was appended to them: in the loop's next turn, or before, at `run`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._logs: list[OffsetsLog] = []
        self._handle: asyncio.Handle | None = None
        self.held = False  # whoever sets it calls `run`

    def add(self, log: OffsetsLog) -> None:
        """A log has something to write."""
        self._logs.append(log)
        if self._handle is None and not self.held:
            self._handle = self._loop.call_soon(self.run)

    def run(self) -> None:
        """Write. What goes wrong with one log is not the others' affair."""
        self.held = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        logs, self._logs = self._logs, []
        for one in logs:
            try:
                one.write()
            except Exception:
                log.exception("cannot append to a partition of __consumer_offsets: internal error")


@dataclass(slots=True)
class Unacknowledged:
    """A batch above the high watermark: not all in-sync replicas have it, or it is not on the device as flush.messages demands.

    :param end: the high watermark that it waits for. :param late: to be called at `deadline`, in the loop's time.
    """

    end: int
    callbacks: list[AppendCallback]
    late: list[Callable[[], None]]
    deadline: float | None = None


class OffsetsLog:
    """:param place: slot, incarnation and leader epoch in which the partition is led.
    :param max_bytes: the largest batch that the partition takes.
    :param patience_ms: `offsets.commit.timeout.ms`: an append that is not acknowledged for so long is reported as late.
    :param flusher: syncs the log where its topic has flush.messages.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: AppendTurn,
        place: tuple[int, int, int],
        codec: int,
        max_bytes: int,
        patience_ms: int,
        flusher: Flusher,
    ) -> None:
        self.place = place
        self._flusher = flusher
        self._loop = loop
        self._turn = turn
        self._codec = codec
        self._max_bytes = max_bytes
        self._most_bytes = min(MOST_BYTES, max_bytes // 2)  # joined; with room for what a batch adds
        self._patience_s = patience_ms / 1000
        self._queue: list[tuple[Records, AppendCallback, LateCallback]] = []
        self._due = False
        self._busy_since: float | None = None
        self._unacknowledged: deque[Unacknowledged] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def append(self, records: Records, then: AppendCallback, late: LateCallback = None) -> None:
        """As `GroupLog` says."""
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
        """Tell when all that was written is acknowledged."""
        if not self._unacknowledged:
            then(NONE)
            return
        end = self._unacknowledged[-1].end
        self._unacknowledged.append(Unacknowledged(end, [then], [late] if late is not None else []))
        self._watch()

    @property
    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._closed

    def close(self) -> None:
        """Whoever waits is told that this is not the coordinator any more."""
        self._closed = True
        waiting = [then for one in self._unacknowledged for then in one.callbacks]
        waiting += [then for _, then, _ in self._queue]
        self._queue.clear()
        self._unacknowledged.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tell(waiting, ErrorCode.NOT_COORDINATOR)

    def look(self) -> None:
        """Acknowledge the appends that the high watermark has passed.

        If some are left, this process is woken when it moves, and the log is synced if flush.messages demands that.
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
        high_watermark = slots.high_watermark(self.place[0])
        while self._unacknowledged and self._unacknowledged[0].end <= high_watermark:
            tell(self._unacknowledged.popleft().callbacks, NONE)

    def when_committed(self, end: int, then: AppendCallback) -> None:
        """Call `then` once the high watermark has reached `end`. To be called before anything is appended."""
        self._unacknowledged.append(Unacknowledged(end, [then], []))
        self.look()

    def write(self) -> None:
        """Append what is queued."""
        slot, incarnation, leader_epoch = self.place
        self._due = False
        while self._queue:
            count = 1  # of the queue's first appends, which this is about
            try:
                builder = BatchBuilder()
                count = join(self._queue, builder, MOST_RECORDS, self._most_bytes, time.time_ns() // 1_000_000)
                error, end = 0, self._unacknowledged[-1].end if self._unacknowledged else 0
                if builder.count:  # else they wait for what was written before
                    error, base_offset = slots.append_built(
                        slot, builder, incarnation, leader_epoch, self._codec, compression.compress, self._max_bytes
                    )
                    end = base_offset + builder.count
                outcome = OF_ERROR.get(BY_NUMBER[error], ErrorCode.COORDINATOR_NOT_AVAILABLE) if error else NONE
            except slots.SlotChanged as refusal:
                reason = str(refusal)
                if reason == "busy":
                    self._wait_for_lock()
                    break  # what went in before is told and watched all the same
                log.warning("an append to __consumer_offsets was refused: %s", reason)
                outcome = OF_REFUSAL.get(reason, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            except Exception:  # an error of this program: those behind these must not wait for ever
                log.exception("an append to __consumer_offsets failed")
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            done = self._queue[:count]
            del self._queue[:count]
            self._busy_since = None
            callbacks = [then for _, then, _ in done]
            if outcome is NONE:
                late = [one for _, _, one in done if one is not None]
                self._unacknowledged.append(Unacknowledged(end, callbacks, late))
            else:
                tell(callbacks, outcome)
        self.look()
        if self._unacknowledged:
            self._watch()

    def _wait_for_lock(self) -> None:
        """Another process has the partition's lock: try again, and after a while refuse what is queued."""
        now = self._loop.time()
        if self._busy_since is None:
            self._busy_since = now
        if now < self._busy_since + self._patience_s:
            self._due = True
            self._loop.call_later(BUSY_S, self.write)
            return
        log.warning(
            "refusing %d appends to __consumer_offsets: the partition's lock was not free for %g s",
            len(self._queue), self._patience_s,
        )  # fmt: skip
        self._busy_since = None
        waiting = [then for _, then, _ in self._queue]
        self._queue.clear()
        tell(waiting, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _watch(self) -> None:
        """What is not acknowledged has so much time, from now on unless it has less already."""
        deadline = self._loop.time() + self._patience_s
        for one in reversed(self._unacknowledged):
            if one.deadline is not None:
                break
            one.deadline = deadline
        first = self._unacknowledged[0].deadline
        if self._timer is None and first is not None:
            self._timer = self._loop.call_at(first, self._overdue)

    def _overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        for one in list(self._unacknowledged):
            if one.deadline is not None and one.deadline > now:
                self._timer = self._loop.call_at(one.deadline, self._overdue)
                return
            late, one.late = one.late, []
            for told in late:
                try:
                    told()
                except Exception:
                    log.exception("the callback of an append to __consumer_offsets failed while the append waits")


def tell(callbacks: Iterable[AppendCallback], code: ErrorCode) -> None:
    """Call each of them, whatever the others do."""
    for then in callbacks:
        try:
            then(code)
        except Exception:
            log.exception("the callback of an append to __consumer_offsets failed")


def read_records(slot: int, log_dirs: Sequence[Path]) -> Iterator[list[LogBatch]]:
    """What the log holds below its end as it is now, from the oldest record on, in pieces; offsets ascend.

    Not the high watermark: a new leader learns it late, and what lies above it may have been acknowledged by the old one.

    :raises LogMoved: a file vanished, or the log's files changed, while it was read: what was read may have gaps.
    :raises OSError: the log cannot be read, holds what is no batch, or ends before the log end: groups taken from it would
        have lost what they committed.
    """
    state = slots.describe(slot)
    end = state["log_end_offset"]
    directory = log_dirs[state["log_dir"]] / f"{state['topic']}-{state['partition']}"
    generation = state["generation"]
    reached = state["log_start_offset"]
    try:
        for path in sorted(directory.glob("*.log")):
            reached = max(reached, int(path.stem))  # compaction may have taken the last records of the segment before
            if reached >= end:
                break
            for upto, piece in _read_file(path, state["log_start_offset"], end):
                reached = upto
                yield piece
    except FileNotFoundError as error:
        raise LogMoved(f"{error.filename} was removed") from error
    if slots.describe(slot)["generation"] != generation:
        raise LogMoved("its segments changed")
    if reached < end:
        raise OSError(errno.EIO, f"the log ends at offset {reached}, expected {end}", str(directory))


def _read_file(path: Path, start: int, end: int) -> Iterator[tuple[int, list[LogBatch]]]:
    """Pieces, each with the offset up to which it reaches."""
    piece: list[LogBatch] = []
    reached = size = 0
    with path.open("rb") as file:
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            if int.from_bytes(head[:8], "big") >= end:
                break
            data = head + file.read(
                int.from_bytes(head[8:LENGTH_BYTES], "big", signed=True) - (HEAD_BYTES - LENGTH_BYTES)
            )
            try:
                last, batch = _read_old(data, start, end) if is_old(data) else _read_batch(data, start, end)
            except ValueError as error:  # of a batch that is not sound, or does not decompress
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
    """The last offset of a batch, and what it holds. Raises ValueError."""
    batch, _ = read_batch(data)
    found = [one for one in batch.records() if start <= one.offset < end]
    if batch.is_control:
        kind = found[0].key if found else None
        if kind is None or len(kind) < END_TXN_KEY.size or END_TXN_KEY.unpack_from(kind)[1] not in (ABORT, COMMIT):
            return batch.last_offset, LogBatch([])
        commits = END_TXN_KEY.unpack_from(kind)[1] == COMMIT
        return batch.last_offset, LogBatch([], batch.producer_id, commits=commits)
    records = [(one.key or b"", one.value) for one in found]
    if batch.is_transactional:
        return batch.last_offset, LogBatch(records, batch.producer_id, [one.offset for one in found])
    return batch.last_offset, LogBatch(records)


def _read_old(data: bytes, start: int, end: int) -> tuple[int, LogBatch]:
    """As `_read_batch`, of a message of format v0 or v1, which logs of Kafka before 0.11 hold."""
    message, _ = read_message(data)
    found = [one for one in message.opened() if start <= one.offset < end]
    return message.offset, LogBatch([(one.key or b"", one.value) for one in found])
