"""A thread for work that must not run in a worker's event loop.

A job consists of steps. Jobs take turns: after each step, the job goes to the end of the queue. A connection has at most one
request in this queue, so a client waits for at most one step of each other client.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable

from odradek._ext.shm.locks import Lane, enter_lane

Step = Callable[[], bool]
"""The thread calls it until it returns False."""
Done = Callable[[BaseException | None], None]
"""Called in the loop after the last step, with the exception that a step raised, or None."""


class JobThread:
    """Runs jobs on one thread, which starts with the first job.

    :param loop: the event loop that submits jobs and receives their results.
    :param lane: the lock lane of the thread; its own lane if its jobs take the locks of slots [R 5.4].
    :param niceness: how much lower its priority is than that of the process (nice(2)).
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, lane: int = Lane.LANE_LOOP, niceness: int = 0
    ) -> None:
        self._loop = loop
        self._name = name
        self._lane = lane
        self._niceness = niceness
        self._jobs: queue.SimpleQueue[tuple[Step, Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, step: Step, done: Done) -> None:
        """Call `step()` on the thread until it returns False, then `done` in the loop, with None or the exception that `step`
        raised."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()  # raises RuntimeError if the system has no thread left; the next job tries again
            self._thread = thread
        self._jobs.put((step, done))

    def _run(self) -> None:
        enter_lane(self._lane)
        if self._niceness:
            os.setpriority(
                os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + self._niceness
            )  # of this thread only
        ending = False
        while True:
            if ending and self._jobs.empty():
                return
            job = self._jobs.get()
            if job is None:
                ending = True
                continue
            step, done = job
            error = None
            try:
                more = step()
            except Exception as failure:  # reported to the job's `done`
                error, more = failure, False
            if more:
                self._jobs.put(job)
            else:
                self._loop.call_soon_threadsafe(done, error)
            job = step = done = error = None  # type: ignore[assignment]  # no reference to the job stays while the thread waits

    def close(self) -> None:
        """Finish the submitted jobs, then end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
