"""The clock of an event loop, for coordinators."""

import asyncio
from collections.abc import Callable

from odradek import clock
from odradek.coordination.environment import Timer


class LoopTimers:
    """See `Timers`. :param loop: the loop whose clock it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Monotonic time in ms. It is rounded, so that a timer does not fire before its time by this clock."""
        return round(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        """Wall-clock time in ms since 1970."""
        return clock.now_ms()

    def call_at(self, when_ms: int, action: Callable[[], None]) -> Timer:
        """See `Timers`."""
        return self._loop.call_at(when_ms / 1000, action)
