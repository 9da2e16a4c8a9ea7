"""Waiting for a condition that must become true on any machine. If it does not, the error names it.

Threads call `until`, coroutines `until_async`.
"""

import asyncio
import select
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class HasNumber(Protocol):
    def fileno(self) -> int: ...


Descriptor = int | HasNumber

PATIENCE_S = 90.0
LOOK_EVERY_S = 0.02


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    patience_s: float = PATIENCE_S,
    every_s: float = LOOK_EVERY_S,
) -> T:
    """Return what `condition` returns once that is true. Raises AssertionError with `what` after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while not (result := condition()):
        _check(deadline, what, patience_s)
        time.sleep(every_s)
    return result


async def until_async(
    condition: Callable[[], T], what: str | Callable[[], str] = "the condition", patience_s: float = PATIENCE_S
) -> T:
    """As `until`, while other tasks of the event loop run."""
    deadline = time.monotonic() + patience_s
    while not (result := condition()):
        _check(deadline, what, patience_s)
        await asyncio.sleep(0.001)
    return result


def _check(deadline: float, what: str | Callable[[], str], patience_s: float) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {patience_s:g} s: {what if isinstance(what, str) else what()}")


def readable(descriptor: Descriptor, patience_s: float = 0) -> bool:
    """Whether a descriptor can be read now, or within `patience_s` seconds."""
    return bool(which_readable([descriptor], patience_s))


def which_readable(descriptors: Iterable[Descriptor], patience_s: float = 0) -> list[Descriptor]:
    """Those that can be read, as soon as one can, or none after `patience_s` seconds.

    Their numbers may be above 1023, which `select.select` refuses: a test session has many open files.
    """
    poll, by_number = select.poll(), {}
    for descriptor in descriptors:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        by_number[number] = descriptor
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(patience_s * 1000)]
