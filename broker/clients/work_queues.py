"""Records between the poll thread and the workers: who may be processed now, in which order, and how many wait.

A buffer a partition; partitions take turns, so that a hot one does not starve the others. A lane is what must stay in order: a
partition, a key within a partition, or each record alone. One lock protects all; workers wait on its condition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Place = tuple[str, int]
"""Topic and partition."""


class Order(Enum):
    """What stays in order."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


@dataclass(eq=False)
class Work:
    """One record on its way. `generation` tells whether its partition was given away meanwhile."""

    place: Place
    offset: int
    key: bytes | None
    message: Any
    generation: int = 0
    lane: Hashable = None


@dataclass
class _Buffer:
    generation: int
    lanes: dict[Hashable, deque[Work]] = field(default_factory=dict)
    ready: deque[Hashable] = field(default_factory=deque)
    in_flight: int = 0
    size: int = 0  # records that wait or are under way


class WorkQueues:
    """:param order: what stays in order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._changed = threading.Condition()
        self._buffers: dict[Place, _Buffer] = {}
        self._turns: deque[Place] = deque()
        self._generation = 0
        self._closed = False

    # -- the poll thread ------------------------------------------------------------------------------------------

    def assign(self, places: Iterable[Place]) -> None:
        """Begin buffers for partitions."""
        with self._changed:
            for place in places:
                self._generation += 1
                self._buffers[place] = _Buffer(self._generation)
                self._turns.append(place)

    def revoke(self, places: Iterable[Place]) -> None:
        """Forget what waits of partitions; what workers have at hand goes on, and `finished` says that it is too late."""
        with self._changed:
            for place in places:
                if self._buffers.pop(place, None) is not None:
                    self._turns.remove(place)
            self._changed.notify_all()

    def hold(self, places: Iterable[Place]) -> None:
        """Start no more records of these partitions: those under way are to finish, see `wait_until_idle`."""
        with self._changed:
            for place in places:
                buffer = self._buffers.get(place)
                if buffer is not None:
                    waiting = sum(len(lane) for lane in buffer.lanes.values())
                    buffer.size -= waiting
                    buffer.lanes.clear()
                    buffer.ready.clear()

    def wait_until_idle(self, places: Iterable[Place], timeout_s: float) -> bool:
        """Wait until no record of these partitions is with a worker; False if it takes longer."""
        wanted = list(places)
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self._buffers[one].in_flight == 0 for one in wanted if one in self._buffers), timeout_s
            )

    def put(self, work: Work) -> None:
        """Buffer a record; of a partition that is not assigned (any more), nothing."""
        with self._changed:
            buffer = self._buffers.get(work.place)
            if buffer is None:
                return
            work.generation = buffer.generation
            work.lane = self._lane_of(work)
            lane = buffer.lanes.get(work.lane)
            buffer.size += 1
            if lane is None:
                buffer.lanes[work.lane] = deque([work])
                buffer.ready.append(work.lane)
                self._changed.notify()
            else:
                lane.append(work)

    def _lane_of(self, work: Work) -> Hashable:
        if self._order is Order.PARTITION:
            return None
        if self._order is Order.KEY and work.key is not None:
            return work.key
        return work.offset  # an int never equals a key: records without a key follow nobody

    def size(self, place: Place) -> int:
        """How many records of a partition wait or are under way."""
        with self._changed:
            buffer = self._buffers.get(place)
            return buffer.size if buffer is not None else 0

    def close(self) -> None:
        """Workers get nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- workers --------------------------------------------------------------------------------------------------

    def take(self) -> Work | None:
        """The next record to process; waits for one. None when closed."""
        with self._changed:
            while not self._closed:
                for _ in range(len(self._turns)):
                    place = self._turns[0]
                    self._turns.rotate(-1)
                    buffer = self._buffers[place]
                    if buffer.ready:
                        buffer.in_flight += 1
                        return buffer.lanes[buffer.ready.popleft()].popleft()
                self._changed.wait()
            return None

    def finished(self, work: Work) -> bool:
        """A worker is through with a record; False if its partition was given away meanwhile: then it counts for nobody."""
        with self._changed:
            buffer = self._buffers.get(work.place)
            if buffer is None or buffer.generation != work.generation:
                return False
            buffer.in_flight -= 1
            buffer.size -= 1
            lane = buffer.lanes.get(work.lane)
            if lane:
                buffer.ready.append(work.lane)
            elif lane is not None:
                del buffer.lanes[work.lane]
            self._changed.notify_all()
            return True
