"""Simulated dependencies of groups: a clock that the test moves, and a log that acknowledges when the test says so."""

import heapq
from collections.abc import Callable

from odradek.coordination.environment import (
    NO_PRODUCER,
    AppendCallback,
    EndMarker,
    LateCallback,
    LogBatch,
    OffsetCallback,
    Record,
    Records,
)
from odradek.protocol.errors import ErrorCode


class HandTimer:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class HandTimers:
    """A clock in ms that begins at 1,000,000."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000
        self._due: list[tuple[int, int, HandTimer]] = []
        self._serial = 0

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return self.time_ms

    def call_at(self, when_ms: int, action: Callable[[], None]) -> HandTimer:
        self._serial += 1
        timer = HandTimer(action)
        heapq.heappush(self._due, (when_ms, self._serial, timer))
        return timer

    def advance(self, by_ms: int) -> None:
        """Advance the clock and run due timers in order."""
        until = self.time_ms + by_ms
        while self._due and self._due[0][0] <= until:
            when_ms, _, timer = heapq.heappop(self._due)
            self.time_ms = max(self.time_ms, when_ms)
            if timer.action is not None:
                timer.action()
        self.time_ms = until


class HandLog:
    """A partition of `__consumer_offsets`. :param held: appends wait for `acknowledge`."""

    def __init__(self, held: bool = False) -> None:
        self.records: list[Record] = []
        self.held = held
        self.failing: ErrorCode | None = None
        self.waiting: list[tuple[list[Record], Callable[[ErrorCode], None]]] = []
        self.late: list[Callable[[], None]] = []

    def append(
        self, records: list[Record], then: Callable[[ErrorCode], None], late: Callable[[], None] | None = None
    ) -> None:
        if not records and not self.waiting:
            then(ErrorCode.NONE)
            return
        self.waiting.append((list(records), then))
        if late is not None:
            self.late.append(late)
        if not self.held:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Complete all pending appends, successfully or with `error`."""
        while self.waiting:
            records, then = self.waiting.pop(0)
            if self.failing is None:
                self.records += records
            then(self.failing or ErrorCode.NONE)
        self.late.clear()

    def dawdle(self) -> None:
        """Report all pending appends as late."""
        late, self.late = self.late, []
        for tell in late:
            tell()


class OffsetsHandLog:
    """A partition of `__consumer_offsets` with records of transactions and their end markers.

    :param held: appends wait for `acknowledge`. :ivar batches: what is in the log and acknowledged; its offsets begin at 0.
    """

    def __init__(self, held: bool = False) -> None:
        self.batches: list[LogBatch] = []
        self.end = 0
        self.held = held
        self.waiting: list[tuple[LogBatch, OffsetCallback]] = []

    @property
    def records(self) -> list[Record]:
        """All acknowledged records."""
        return [record for batch in self.batches for record in batch.records]

    def append(self, records: Records, then: AppendCallback, late: LateCallback = None) -> None:
        self._append(LogBatch(list(records)), lambda error, offset: then(error))

    def append_transactional(
        self, records: Records, producer_id: int, producer_epoch: int, then: OffsetCallback, late: LateCallback = None
    ) -> None:
        self._append(LogBatch(list(records), producer_id), then)

    def append_marker(self, marker: EndMarker, then: OffsetCallback) -> None:
        self._append(LogBatch([], marker.producer_id, commits=marker.commits), then)

    def _append(self, batch: LogBatch, then: OffsetCallback) -> None:
        self.waiting.append((batch, then))
        if not self.held:
            self.acknowledge()

    def acknowledge(
        self, count: int | None = None, error: ErrorCode = ErrorCode.NONE, in_log: bool | None = None
    ) -> None:
        """Complete the oldest appends, or all. :param in_log: whether the records are in the log, if not as the error says."""
        stored = error is ErrorCode.NONE if in_log is None else in_log
        for _ in range(len(self.waiting) if count is None else min(count, len(self.waiting))):
            batch, then = self.waiting.pop(0)
            base_offset = self.end if stored else -1
            if stored:
                size = len(batch.records) or (batch.commits is not None)
                if batch.producer_id != NO_PRODUCER:
                    batch = batch._replace(offsets=range(self.end, self.end + size))
                self.batches.append(batch)
                self.end += size
            then(error, base_offset)


class Once:
    """A callback that must be called exactly once."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def __call__(self, answer: object) -> None:
        assert not self.answers, f"called again with {answer}, after {self.answers}"
        self.answers.append(answer)

    @property
    def answer(self) -> object:
        assert self.answers, "not answered"
        return self.answers[0]

    @property
    def waits(self) -> bool:
        return not self.answers
