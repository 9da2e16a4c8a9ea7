"""Lets the broker apply the settings that other brokers of the cluster changed.

Used in the coordinator's event loop; only `wake` may be called in another thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.metadata.store import StoreError
from odradek.processes.supervised_tasks import supervised

log = logging.getLogger("odradek.config")

RETRY_S = 1.0
"""The time in seconds until the settings are read again after a failure."""


class SettingsFollower:
    """See the module.

    :param apply: reads and applies the changes since its last call. Raises StoreError; then it is called again.
    """

    def __init__(self, apply: Callable[[], Awaitable[None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._apply = apply
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to follow: all settings were read. May be called again."""
        if self._task is None:
            self._task = supervised(self._loop, "the follower of changed settings", self._run)

    def wake(self) -> None:
        """Settings may have changed. May be called in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:  # the loop is closed
            log.debug("the coordinator has ended; changes of settings are not read any more")

    async def _run(self) -> None:
        reported = ""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._apply()
                reported = ""
                continue
            except StoreError as error:
                if str(error) != reported:  # not for each attempt
                    reported = str(error)
                    log.warning("cannot read the changed settings: %s; retrying every %g s", error, RETRY_S)
            except Exception:
                log.exception("cannot apply the changed settings; retrying in %g s", RETRY_S)
            await asyncio.sleep(RETRY_S)
            self._changed.set()

    def close(self) -> None:
        """Stop; the work that is done in another thread is finished there."""
        if self._task is not None:
            self._task.cancel()
