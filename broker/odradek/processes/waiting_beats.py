"""Beats for a main thread that waits for a disk.

The supervisor ends a process whose loop does not turn for `odradek.stuck.process.ms`. One sync, rename or deletion on a slow or
overloaded device can take longer, and a successor would wait for the same device. So a thread of the process beats for the main
thread while that waits. It does not while the main thread computes: passes that compute beat themselves, and one that does not
come to an end is ended by the supervisor, as is a process that was stopped or that keeps the GIL.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

EVERY_S = 0.5
COMPUTES = 0.5
"""Share of a core from which on a thread is taken to compute."""


class WaitingBeats:
    """One a process, made and started by the thread that it beats for.

    :param clock: the CPU time of that thread, in seconds.
    """

    def __init__(self, beat: Callable[[], object], clock: Callable[[], float] | None = None) -> None:
        if clock is None:
            of_thread = time.pthread_getcpuclockid(threading.get_ident())
            clock = partial(time.clock_gettime, of_thread)
        self._beat = beat
        self._clock = clock
        self._used = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)

    def start(self) -> None:
        """Begin. Raises RuntimeError: the system gives no thread."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._ended.set()
        self._thread.join()

    def look(self, passed_s: float) -> None:
        """Beat if the thread waited for most of the `passed_s` seconds since the last look."""
        before, self._used = self._used, self._clock()
        if self._used - before < COMPUTES * passed_s:
            self._beat()

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._ended.wait(EVERY_S):
            now = time.monotonic()
            self.look(now - looked)
            looked = now
