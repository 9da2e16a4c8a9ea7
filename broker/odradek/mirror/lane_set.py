"""The lanes that a worker owns in one flow: their threads and their partitions.

A `LaneSet` is used by the thread of the flow (`route`, `revive`), the thread of the membership (`own`) and the
threads of the lanes (their ends); one lock protects it. A thread of a lane starts only after the former thread of
that lane in this process has ended.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek.mirror.assignment import Lanes, lane_of
from odradek.mirror.routes import Route
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.mirror")


class RunsLane(Protocol):
    """What a `LaneSet` needs of a `Lane`. :ivar commits: how many commits it has made; only its thread changes it."""

    commits: int

    def route(self, routes: Collection[Route]) -> None:
        """Replace the partitions."""

    def run(self) -> None:
        """The thread's main."""

    def stop(self) -> None:
        """Let `run` return."""


@dataclass
class _Running:
    lane: RunsLane
    thread: threading.Thread


class LaneSet:
    """The running lanes of one flow.

    :param flow: its name, for the log. :param lanes: the number of lanes of the flow. :param make: makes the lane
        with an index.
    :param fenced: the exception with which a lane ends when another worker may have it. :param on_fenced: called then, in
        its thread.
    :param on_end: called when a lane has ended with an error, in its thread; `revive` starts it again.
    """

    def __init__(
        self,
        flow: str,
        lanes: int,
        make: Callable[[int], RunsLane],
        fenced: type[Exception],
        on_fenced: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._flow = flow
        self._lanes = lanes
        self._make = make
        self._fenced = fenced
        self._on_fenced = on_fenced
        self._on_end = on_end
        self._lock = threading.RLock()
        self._owned: Lanes = frozenset()
        self._routes: dict[int, list[Route]] = {}
        self._known = False
        self._running: dict[int, _Running] = {}
        self._ended: set[int] = set()
        self._live: list[RunsLane] = []  # also those that are stopping
        self._former_commits = 0
        self._leaving: dict[int, list[threading.Thread]] = {}

    @property
    def owned(self) -> Lanes:
        """The lanes that the group has assigned to this worker."""
        return self._owned

    @property
    def running(self) -> int:
        """The number of lanes that run."""
        with self._lock:
            return len(self._running)

    @property
    def commits(self) -> int:
        """The commits of all lanes that this worker has run."""
        with self._lock:
            return self._former_commits + sum(lane.commits for lane in self._live)

    def places(self) -> list[TopicPartition]:
        """The partitions of the target in the lanes of this worker."""
        return [route.target for route in self.owned_routes()]

    def owned_routes(self) -> list[Route]:
        """The partitions in the lanes of this worker."""
        with self._lock:
            return [route for lane in sorted(self._owned) for route in self._routes.get(lane, [])]

    def route(self, routes: Sequence[Route]) -> None:
        """Set the partitions of all lanes; starts owned lanes at the first call."""
        by_lane: dict[int, list[Route]] = {lane: [] for lane in range(self._lanes)}
        for route in routes:
            by_lane[lane_of(route.target, self._lanes)].append(route)
        with self._lock:
            self._routes, self._known = by_lane, True
            for lane, running in self._running.items():
                running.lane.route(by_lane[lane])
            self._start_missing(self._ended)

    def own(self, lanes: Lanes, wait_s: float) -> None:
        """Take over an assignment: stop the lanes that left, start those that came.

        :param wait_s: how long to wait for the end of the lanes that left, in seconds.
        """
        with self._lock:
            leaving = [lane for lane in self._running if lane not in lanes]
            for lane in leaving:
                running = self._running.pop(lane)
                running.lane.stop()
                self._leaving.setdefault(lane, []).append(running.thread)
            self._owned = lanes
            self._ended.clear()
            self._start_missing(())
            waiting = [thread for lane in leaving for thread in self._leaving[lane]]
        log.info("%s: this worker has %s", self._flow, _text(lanes))
        ends = time.monotonic() + wait_s
        for thread in waiting:
            thread.join(max(0.0, ends - time.monotonic()))

    def revive(self) -> None:
        """Start the owned lanes that ended with an error again."""
        with self._lock:
            self._ended.clear()
            self._start_missing(())

    def _start_missing(self, but: Collection[int]) -> None:
        """Start each owned lane that has no thread; the caller has the lock."""
        if not self._known:
            return
        for index in sorted(self._owned - set(self._running) - set(but)):
            lane = self._make(index)
            lane.route(self._routes[index])
            before = [thread for thread in self._leaving.pop(index, []) if thread.is_alive()]
            thread = threading.Thread(
                target=self._main, args=(index, lane, before), name=f"{self._flow} lane {index}", daemon=True
            )
            self._running[index] = _Running(lane, thread)
            self._live.append(lane)
            thread.start()

    def _main(self, index: int, lane: RunsLane, before: Sequence[threading.Thread]) -> None:
        """The thread of a lane."""
        for thread in before:
            thread.join()
        try:
            self._run(lane)
        except self._fenced as error:
            log.warning("%s: lane %d ended: %s; asking the group for the current assignment", self._flow, index, error)
            if self._forget(index, lane):
                self._on_fenced()
        except Exception:  # the border of a thread: the other lanes continue
            log.exception("%s: lane %d ended because of an internal error; it is started again", self._flow, index)
            if self._forget(index, lane):
                self._on_end()

    def _run(self, lane: RunsLane) -> None:
        """Run the lane, and keep its commits when it has ended. Raises what the lane raises."""
        try:
            lane.run()
        finally:
            with self._lock:
                self._former_commits += lane.commits
                self._live.remove(lane)

    def _forget(self, index: int, lane: RunsLane) -> bool:
        """Note that an owned lane has ended by itself; False if the worker does not own it any more."""
        with self._lock:
            running = self._running.get(index)
            if running is None or running.lane is not lane:
                return False
            del self._running[index]
            self._ended.add(index)
            return True


def _text(lanes: Lanes) -> str:
    return f"lanes {', '.join(map(str, sorted(lanes)))}" if lanes else "no lanes"
