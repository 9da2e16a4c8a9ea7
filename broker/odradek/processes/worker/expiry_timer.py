"""The one timer of a purgatory's deadlines, in the event loop of the process that owns the purgatory."""

import asyncio
from collections.abc import Callable


class ExpiryTimer:
    """Calls `expire` when the earliest deadline has passed.

    :param expire: completes the requests whose deadline has passed. Returns the next deadline in ms of the loop's time, or a
        negative number if there is none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], int]) -> None:
        self._loop = loop
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = 0

    def set(self, deadline_ms: int) -> None:
        """A request has this deadline, in ms of the loop's time. Does nothing if the timer is set to an earlier one."""
        if self._timer is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._deadline_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000 + 0.001, self._fire)

    def _fire(self) -> None:
        self._timer = None
        deadline_ms = self._expire()
        if deadline_ms >= 0:
            self.set(deadline_ms)
