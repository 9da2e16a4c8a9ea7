"""Simulated dependencies of groups: a clock that the test moves, and a log that acknowledges when the test says so."""

import heapq
from collections.abc import Callable

from odradek.coordination.environment import Record
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
