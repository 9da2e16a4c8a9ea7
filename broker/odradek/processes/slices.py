"""Runs long tasks of an event loop in slices, so that the loop does its other work between them. Used only in the loop's
thread."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("odradek.requests")

TURN_S = 0.01
"""Time budget, in seconds, for the slices of one turn of the loop; the last slice may exceed it."""

Step = Callable[[], bool]


def nothing() -> None:
    """The default `settle`: sends nothing."""


class LoopSlices:
    """Calls the steps of tasks round-robin, one slice of each task at a time, within a time budget for each turn of the loop.

    :param settle: called after the slices of a turn; sends the responses that they completed.
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
