"""SIGHUP in the supervisor: asks the coordinator to read the configuration file again, and reports this to the service manager.

It does not read the file itself. A coordinator that dies meanwhile leaves the request to its successor. The service manager,
which keeps other jobs of the service waiting, hears after `LATE_S` at the latest that the broker is ready.
"""

import logging
import math
import time
from collections.abc import Callable

from odradek.config.broker_config import Source
from odradek.net.notify import Notifier
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.shm.running_config import RunningConfig

log = logging.getLogger("odradek.supervisor")

LOOK_S = 0.1
"""Seconds between two looks whether the coordinator has read the configuration file again."""
LATE_S = 10.0


class FileReload:
    """See the module. :param serving: what the broker serves, for the service manager; empty while it starts or stops."""

    def __init__(self, running: RunningConfig, loop: EventLoop, notifier: Notifier, serving: Callable[[], str]) -> None:
        self._running = running
        self._loop = loop
        self._notifier = notifier
        self._serving = serving
        self._late_at = math.inf

    def request(self, source: Source | None) -> None:
        """SIGHUP arrived. :param source: the configuration file; None without one."""
        if source is None:
            log.warning(
                "received SIGHUP and ignored it: the broker was started without a configuration file that it could read again"
            )
            return
        log.info("received SIGHUP: reading %s again", source.path)
        if self._serving():
            now_us = time.monotonic_ns() // 1000
            self._notifier.send(RELOADING=1, MONOTONIC_USEC=now_us, STATUS=f"reading {source.path} again")
        self._running.request_reload()
        self._late_at = self._loop.clock() + LATE_S
        self._look()

    def _look(self) -> None:
        if not self._running.reload_is_due:
            refused = self._running.reload_was_refused
            self._ready("; it could not use the changed configuration file, see its log" if refused else "")
            return
        if self._loop.clock() >= self._late_at:
            self._late_at = math.inf
            log.warning(
                "the coordinator has not read the configuration file again within %g s: it is busy, or it cannot start; it "
                "reads the file as soon as it can",
                LATE_S,
            )
            self._ready("; it has not read the changed configuration file yet, see its log")
        self._loop.after(LOOK_S, "reload", self._look)

    def _ready(self, note: str) -> None:
        if serving := self._serving():
            self._notifier.send(READY=1, STATUS=serving + note)
