"""The store thread: an executor with one thread, in which the clients take turns, not their requests.

Each request has at most one step in the queue at a time (`odradek.stepwise`). If the thread took steps in the order of their
arrival, a client with a hundred connections would have a hundred turns for each turn of a client with one. So each owner has a
queue, and the owners take turns. The thread chooses the next step when it is free.

Each kind of work (`Work`) has queues of its own, and the kinds take turns: a client with many admin requests keeps neither
others from logging in nor the broker from its own work, and clients that log in do not keep admin requests waiting.

The job that closes the store (`submit_last`) has no turn: it waits until all queues are empty.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from enum import IntEnum
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
THE_BROKER = "broker"
"""The owner of work that no client has requested."""


class Work(IntEnum):
    """Kinds of work, in the order of their turns."""

    OF_BROKER = 0
    CREDENTIALS = 1
    REQUESTS = 2


class Rotation(Generic[Job]):
    """The jobs of owners, who take turns. Not thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[str, deque[Job]] = {}  # by owner, the next one first

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def put(self, owner: str, job: Job) -> None:
        """Add a job behind the others of its owner."""
        self._jobs.setdefault(owner, deque()).append(job)

    def take(self) -> Job:
        """The next job of the owner whose turn it is; there must be one."""
        owner = next(iter(self._jobs))
        jobs = self._jobs.pop(owner)
        job = jobs.popleft()
        if jobs:
            self._jobs[owner] = jobs  # behind the other owners
        return job


class StoreThread(Executor):
    """See the module. `submit` is for work of the broker itself.

    :param initializer: called in the thread with the arguments, before everything else.
    """

    def __init__(self, initializer: Callable[..., object], *arguments: object) -> None:
        self._pool = ThreadPoolExecutor(1, "store", initializer, arguments)
        self._lock = threading.Lock()
        self._jobs: list[Rotation[tuple[Future[Any], Callable[[], Any]]]] = [Rotation() for _ in Work]
        self._last = 0  # the kind of the last job
        self._closing: tuple[float, Future[Any], Callable[[], Any]] | None = None

    def submit(self, work: Callable[..., Result], /, *arguments: Any, **named: Any) -> Future[Result]:
        """Execute `work(...)` in the thread."""
        return self.submit_for(THE_BROKER, Work.OF_BROKER, lambda: work(*arguments, **named))

    def submit_for(self, owner: str, kind: Work, work: Callable[[], Result]) -> Future[Result]:
        """Execute `work()` in the thread, when it is the owner's turn."""
        future: Future[Result] = Future()
        with self._lock:
            self._jobs[kind].put(owner, (future, work))
        self._call_next(future)
        return future

    def submit_last(self, work: Callable[[], Result], within_s: float) -> Future[Result]:
        """Execute `work()` when no other job is queued, including jobs that are queued while it waits, or after `within_s`."""
        future: Future[Result] = Future()
        with self._lock:
            self._closing = time.monotonic() + within_s, future, work
        self._call_next(future)
        return future

    def _call_next(self, future: "Future[Any]") -> None:
        try:
            self._pool.submit(self._next)
        except RuntimeError:  # it is shut down: nothing executes the job
            future.cancel()
            raise

    def _next(self) -> None:
        with self._lock:
            future, work = self._take()
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:  # raised where the result is awaited
            future.set_exception(error)
        else:
            future.set_result(result)

    def _take(self) -> tuple[Future[Any], Callable[[], Any]]:
        kinds = [(self._last + turn) % len(Work) for turn in range(1, len(Work) + 1)]
        kind = next((kind for kind in kinds if self._jobs[kind]), None)
        if self._closing is not None and (kind is None or time.monotonic() >= self._closing[0]):
            _, future, work = self._closing
            self._closing = None
            return future, work
        assert kind is not None, "each call is for one job"
        self._last = kind
        return self._jobs[kind].take()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Execute what was submitted, unless `cancel_futures`, and end the thread."""
        self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
