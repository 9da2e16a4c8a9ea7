"""A thread for work that must not run in a worker's loop.

Jobs are made of steps, and jobs take turns: after a step the job goes behind those that wait. A connection has one
request at a time under way here, so that no client waits for more than one step of each other client.
"""

import asyncio
import queue
import threading
from collections.abc import Callable

from odradek._ext.shm.locks import Lane, enter_lane

Step = Callable[[], bool]
"""Called on the thread until it returns False."""
Done = Callable[[BaseException | None], None]
"""Called in the loop behind the last step, with the exception that a step raised, if one did."""


class JobThread:
    """Starts with the first job.

    :param loop: in which jobs are given and finished.
    :param lane: the thread's own, if its jobs take the locks of slots.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, lane: int = Lane.LANE_LOOP) -> None:
        self._loop = loop
        self._name = name
        self._lane = lane
        self._jobs: queue.SimpleQueue[tuple[Step, Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, step: Step, done: Done) -> None:
        """Call `step()` on the thread until it returns False, then `done(None or what it raised)` in the loop."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()  # RuntimeError if the system has none left: the next job tries again
            self._thread = thread
        self._jobs.put((step, done))

    def _run(self) -> None:
        enter_lane(self._lane)
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
            except Exception as failure:  # it belongs to the job
                error, more = failure, False
            if more:
                self._jobs.put(job)
            else:
                self._loop.call_soon_threadsafe(done, error)
            job = step = done = error = None  # type: ignore[assignment]  # nothing of it is kept while the thread waits

    def close(self) -> None:
        """Finish the jobs that were given, then end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
