"""Waiting for what must come to be on any machine, and saying what did not."""

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
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {patience_s:g} s: {told}")
        time.sleep(LOOK_EVERY_S)
    return found
