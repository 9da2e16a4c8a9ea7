"""Waiting for a condition that must become true on any machine, and naming it if it does not.

Threads call `until`, coroutines `until_async`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
LOOK_EVERY_S = 0.02


def until(condition: Callable[[], T], what: str | Callable[[], str], patience_s: float = PATIENCE_S) -> T:
    """What `condition` returns once it is true; AssertionError with `what` if it is not within `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        _check(deadline, what, patience_s)
        time.sleep(LOOK_EVERY_S)
    return found


async def until_async(
    condition: Callable[[], T], what: str | Callable[[], str] = "the condition", patience_s: float = PATIENCE_S
) -> T:
    """As `until`, while other tasks of the event loop run."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        _check(deadline, what, patience_s)
        await asyncio.sleep(0.001)
    return found


def _check(deadline: float, what: str | Callable[[], str], patience_s: float) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {patience_s:g} s: {what if isinstance(what, str) else what()}")
