"""Long work of an event loop, cut into slices, so that the loop goes on with everything else in between.

Used in the loop's thread alone.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("odradek.requests")

TURN_S = 0.01
"""How long the slices of one turn of the loop take together, but for the last of them."""

Step = Callable[[], bool]


def nothing() -> None:
    """Where nothing is to be sent."""


class LoopSlices:
    """Calls steps in turn, one slice of each at a time, within a budget for each turn of the loop.

    :param settle: called after the slices of a turn: sends what they completed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, settle: Callable[[], None] = nothing) -> None:
        self._loop = loop
        self._settle = settle
        self._steps: deque[Step] = deque()
        self._scheduled = False

    def __call__(self, step: Step) -> None:
        """Call `step()` in later turns of the loop until it returns False; it handles its own errors."""
        self._steps.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if self._steps and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        until = time.monotonic() + TURN_S
        while self._steps:
            step = self._steps.popleft()
            try:
                if step():
                    self._steps.append(step)
            except Exception:
                log.exception("a step of a sliced task failed; the task is dropped")
            if time.monotonic() >= until:
                break
        try:
            self._settle()
        finally:
            self._schedule()
