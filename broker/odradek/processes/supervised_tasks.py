"""Tasks of an event loop that must not end by an exception that nobody expected.

Such a task would be missing until the process ends, without a line in the log. Every task of a process begins here, or a test
lists it with the reason why its failure cannot be lost.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from odradek.backoff import Backoff
from odradek.processes import own_tasks

log = logging.getLogger("odradek.supervisor")

RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
"""The time in seconds after which a task that failed begins again: `RETRY_S`, then twice as long each time, up to this. If it
worked for longer than this, it begins again after `RETRY_S`."""

Sleep = Callable[[float], Awaitable[None]]


def supervised(
    loop: asyncio.AbstractEventLoop,
    what: str,
    work: Callable[[], Coroutine[Any, Any, None]],
    sleep: Sleep = asyncio.sleep,
) -> "asyncio.Task[None]":
    """Begin a task that does `work` until it returns. After an exception, which is logged, `work` begins again.

    The task counts as failing until `work` has returned, or has run for `LONGEST_RETRY_S`.

    :param what: the work, for the log: a noun with the article "the". The rest is the task's name in
        `metrics/background_tasks.py`. :param sleep: waits that many seconds.
    """
    return loop.create_task(_until_done(what, work, sleep))


async def _until_done(what: str, work: Callable[[], Coroutine[Any, Any, None]], sleep: Sleep) -> None:
    task, failures = what.removeprefix("the "), 0
    recovered: asyncio.TimerHandle | None = None
    while True:
        began = time.monotonic()
        try:
            await work()
            own_tasks.ran(task)
            return
        except Exception as error:
            if time.monotonic() - began > LONGEST_RETRY_S:
                failures = 0
            failures += 1
            wait_s = Backoff(RETRY_S, LONGEST_RETRY_S).after(failures)
            log.exception("%s ended by an unexpected error; it begins again in %g s", what, wait_s)
            if recovered is not None:
                recovered.cancel()
            own_tasks.ended(task, error)
            recovered = asyncio.get_running_loop().call_later(wait_s + LONGEST_RETRY_S, own_tasks.ran, task)
        await sleep(wait_s)
