"""Reports progress (beats) for a main thread that waits for a disk.

The supervisor kills a process that reports no progress for `odradek.stuck.process.ms`. One sync, rename or deletion on a slow
or overloaded device can take longer, and a successor would wait for the same device. So a second thread of the process beats
while the main thread waits. It does not beat while the main thread computes: a pass that computes beats by itself, and the
supervisor kills a process whose pass does not end, that was stopped, or that keeps the GIL.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

EVERY_S = 0.5
COMPUTING_SHARE = 0.5
"""A thread that uses at least this share of a core counts as computing."""


class WaitingBeats:
    """The beating thread of a process; created and started by the thread that it beats for.

    :param clock: returns the CPU time of that thread, in seconds.
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
        """Start the thread. Raises RuntimeError if the system has no thread left."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def look(self, passed_s: float) -> None:
        """Beat if the observed thread waited for most of the `passed_s` seconds since the last call."""
        before, self._used = self._used, self._clock()
        if self._used - before < COMPUTING_SHARE * passed_s:
            self._beat()

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._ended.wait(EVERY_S):
            now = time.monotonic()
            self.look(now - looked)
            looked = now
