"""Lanes without data for tests of what surrounds them: each only notes what it was told."""

import threading
from collections.abc import Collection

from odradek.mirror.routes import Route


class FakeFencedError(Exception):
    """Another worker has the lane."""


class FakeLane:
    """A lane that runs until it is stopped. :param slow: it needs `release` to end after its stop."""

    def __init__(self, index: int, slow: bool = False) -> None:
        self.index = index
        self.routes: list[Route] = []
        self.started = threading.Event()
        self.stopped = threading.Event()
        self.release = threading.Event()
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.commits = 0
        if not slow:
            self.release.set()

    def route(self, routes: Collection[Route]) -> None:
        self.routes = list(routes)

    def run(self) -> None:
        self.started.set()
        self.stopped.wait()
        self.release.wait()
        self.ended.set()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped.set()

    def fail(self, error: Exception) -> None:
        """End with an error."""
        self.error = error
        self.stopped.set()


class FakeLanes:
    """Makes lanes and keeps them. :param slow: see `FakeLane`."""

    def __init__(self, slow: bool = False) -> None:
        self.made: list[FakeLane] = []
        self._slow = slow

    def make(self, index: int) -> FakeLane:
        lane = FakeLane(index, self._slow)
        self.made.append(lane)
        return lane

    def live(self) -> dict[int, FakeLane]:
        """The lanes that run, by index."""
        return {lane.index: lane for lane in self.made if lane.started.is_set() and not lane.ended.is_set()}

    def end(self) -> None:
        """End all threads."""
        for lane in self.made:
            lane.release.set()
            lane.stop()
