"""Workers at `WorkQueues` of which one runs at a time, so that a test chooses each step; the clock is the test's too."""

from __future__ import annotations

import math
import threading
from collections import deque
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

from odradek.clients import work_queues
from odradek.clients.work_queues import Order, Work, WorkQueues

LONG_S = 3600.0


class _Signal:
    """Takes the place of a condition of the queues: a worker that waits goes on when `Crew.resume` says so."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.waiting: deque[Worker] = deque()

    def notify(self) -> None:
        if self.waiting:
            self.waiting.popleft().notified = True

    def notify_all(self) -> None:
        while self.waiting:
            self.notify()

    def wait(self, timeout: float | None = None) -> None:
        worker = self._crew.current
        assert worker is not None
        self.waiting.append(worker)
        worker.until = math.inf if timeout is None else self._crew.now + timeout
        worker.waits, worker.notified = True, False
        self._crew.queues._lock.release()
        worker.pause()
        self._crew.queues._lock.acquire()
        worker.waits = False
        if not worker.notified:
            self.waiting.remove(worker)


class Worker:
    """A thread that pauses whenever it waits for the queues or has begun a record (`work`)."""

    def __init__(self, crew: Crew, most: int) -> None:
        self._crew = crew
        self._go = threading.Semaphore(0)
        self.hand = crew.queues.hand()
        self.work: Work | None = None
        self.fails = False
        self.most = most
        self.waits = self.notified = False
        self.until = math.inf
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def wakes(self) -> bool:
        return self.waits and (self.notified or self._crew.now >= self.until)

    def pause(self) -> None:
        self._crew.back.release()
        self._go.acquire()

    def resume(self) -> None:
        """Let the worker run until it pauses."""
        self._crew.current = self
        self._go.release()
        self._crew.back.acquire()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        self._go.acquire()
        try:
            while self._crew.queues.take(self.hand, self.most):
                while (work := self.hand.next()) is not None:
                    self.work = work
                    self.pause()
                    self.work = None
                    self._end(work)
        except BaseException as error:
            self.error = error  # raised in `resume`
        self._crew.back.release()

    def _end(self, work: Work) -> None:
        if self.fails:
            self._crew.queues.give_back(self.hand)
            assert self._crew.queues.retry(work, LONG_S)
        else:
            assert self._crew.queues.finished([work]) == [True]


class Crew:
    """Workers that wait at empty queues. A context manager; at its end the workers end.

    :param most: for each worker, how many records it takes at once at first.
    """

    def __init__(self, order: Order, most: list[int]) -> None:
        self.now = 1000.0
        self.current: Worker | None = None
        self.back = threading.Semaphore(0)
        self.queues = WorkQueues(order)
        queues: Any = self.queues
        queues._changed, queues._watch = _Signal(self), _Signal(self)
        self.workers = [Worker(self, number) for number in most]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        clock = SimpleNamespace(monotonic=lambda: self.now)
        self._stack.enter_context(mock.patch.object(work_queues, "time", clock))
        for worker in self.workers:
            worker.thread.start()
            worker.resume()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self.queues.close()
            for worker in self.workers:
                worker.fails = False
                while worker.error is None and (worker.waits or worker.work is not None):
                    worker.resume()
                worker.thread.join()

    @property
    def idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.waits]

    @property
    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.work is not None]

    @property
    def waking(self) -> list[Worker]:
        """The idle workers that were notified, or whose time to wait is over."""
        return [worker for worker in self.workers if worker.wakes]
