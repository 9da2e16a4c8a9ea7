"""The buffers between the poll thread and the workers: which record is processed next, and how many records wait.

Each partition has a buffer; partitions take turns, so that a busy one does not starve the others. A lane is a sequence of
records that are processed in order: a partition, a key within a partition, or a single record. A lane is closed while its
record is processed or waits for a retry, also if the partition is revoked and assigned again meanwhile. One lock protects
all state; workers wait on its condition.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Place = tuple[str, int]
"""Topic and partition."""


class Order(Enum):
    """The records that are processed in order: those of a partition, those of a key, or none."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


@dataclass(eq=False, slots=True)
class Work:
    """A record that waits or is in flight, that is, with a worker. `after` is the next record of its lane.

    `generation` differs from that of the buffer if the partition was revoked since. Each waiting record has such an object: its
    size is part of `RECORD_BYTES` in `odradek.clients.consumer_memory`.
    """

    place: Place
    offset: int
    key: bytes | None
    message: Any
    generation: int = 0
    lane: Hashable = None
    size_bytes: int = 0  # its part of `buffer_bytes`
    failures: int = 0
    after: Work | None = None


class _Lane:
    """A queue of records. Most lanes hold one record, for which a deque would use ten times as much memory."""

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first: Work | None = None
        self._last: Work | None = None

    def __bool__(self) -> bool:
        return self._first is not None

    def append(self, work: Work) -> None:
        if self._last is None:
            self._first = work
        else:
            self._last.after = work
        self._last = work

    def appendleft(self, work: Work) -> None:
        work.after = self._first
        self._first = work
        if self._last is None:
            self._last = work

    def popleft(self) -> Work:
        work = self._first
        if work is None:
            raise IndexError("the lane is empty")
        self._first, work.after = work.after, None
        if self._first is None:
            self._last = None
        return work


@dataclass
class _Buffer:
    generation: int
    lanes: dict[Hashable, _Lane] = field(default_factory=dict)
    ready: deque[Hashable] = field(default_factory=deque)
    in_flight: int = 0
    size: int = 0  # records that wait or are in flight
    size_bytes: int = 0
    in_flight_bytes: int = 0
    held: bool = False  # no more records are started


class WorkQueues:
    """The buffers of all assigned partitions. :param order: the records that are processed in order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._changed = threading.Condition()
        self._buffers: dict[Place, _Buffer] = {}
        self._turns: deque[Place] = deque()
        self._busy: set[tuple[Place, Hashable]] = set()  # lanes with a record in flight, of any generation
        self._delayed: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._generation = 0
        self._total_bytes = 0
        self._closed = False

    # -- the poll thread ------------------------------------------------------------------------------------------

    def assign(self, places: Iterable[Place]) -> None:
        """Create empty buffers for partitions."""
        with self._changed:
            for place in places:
                self._drop(place)
                self._generation += 1
                self._buffers[place] = _Buffer(self._generation)
                self._turns.append(place)

    def revoke(self, places: Iterable[Place]) -> None:
        """Drop the buffers of partitions. Workers finish the records in flight; `finished` returns False for these."""
        with self._changed:
            for place in places:
                self._drop(place)
            self._changed.notify_all()

    def hold(self, places: Iterable[Place]) -> int:
        """Drop the waiting records of partitions, including those that wait for a retry; return their number.

        Records in flight go on, see `wait_until_idle`.
        """
        dropped = 0
        with self._changed:
            for place in places:
                buffer = self._buffers.get(place)
                if buffer is not None:
                    buffer.held = True
                    dropped += buffer.size - buffer.in_flight
                    buffer.size = buffer.in_flight
                    self._total_bytes -= buffer.size_bytes - buffer.in_flight_bytes
                    buffer.size_bytes = buffer.in_flight_bytes
                    buffer.lanes.clear()
                    buffer.ready.clear()
        return dropped

    def wait_until_idle(self, places: Iterable[Place], timeout_s: float) -> bool:
        """Wait until no record of these partitions is in flight; return False after `timeout_s`."""
        awaited = list(places)
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self._buffers[place].in_flight == 0 for place in awaited if place in self._buffers),
                timeout_s,
            )

    def put(self, work: Work) -> None:
        """Buffer a record; ignore it if its partition is not assigned or is held."""
        with self._changed:
            buffer = self._buffers.get(work.place)
            if buffer is None or buffer.held:
                return
            work.generation = buffer.generation
            work.lane = self._lane_of(work)
            lane = buffer.lanes.get(work.lane)
            buffer.size += 1
            buffer.size_bytes += work.size_bytes
            self._total_bytes += work.size_bytes
            if lane is not None:
                lane.append(work)
                return
            lane = buffer.lanes[work.lane] = _Lane()
            lane.append(work)
            if (work.place, work.lane) not in self._busy:
                buffer.ready.append(work.lane)
                self._changed.notify()

    def _lane_of(self, work: Work) -> Hashable:
        if self._order is Order.PARTITION:
            return None
        if self._order is Order.KEY and work.key is not None:
            return work.key
        return work.offset  # an int never equals a key: each record without a key is a lane

    def fill(self, place: Place) -> tuple[int, int]:
        """The number and the bytes of the records of a partition that wait or are in flight."""
        with self._changed:
            buffer = self._buffers.get(place)
            return (buffer.size, buffer.size_bytes) if buffer is not None else (0, 0)

    @property
    def total_bytes(self) -> int:
        """The bytes of all records that wait or are in flight, including records in flight of revoked partitions."""
        with self._changed:
            return self._total_bytes

    def close(self) -> None:
        """Make `take` return None from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- workers --------------------------------------------------------------------------------------------------

    def take(self) -> Work | None:
        """Wait for the next record to process; None after `close`."""
        with self._changed:
            while not self._closed:
                self._release(time.monotonic())
                for _ in range(len(self._turns)):
                    place = self._turns[0]
                    self._turns.rotate(-1)
                    buffer = self._buffers[place]
                    if buffer.ready:
                        work = buffer.lanes[buffer.ready.popleft()].popleft()
                        buffer.in_flight += 1
                        buffer.in_flight_bytes += work.size_bytes
                        self._busy.add((place, work.lane))
                        return work
                due = self._delayed[0][0] if self._delayed else None
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
            return None

    def finished(self, work: Work, *, open_lane: bool = True) -> bool:
        """Note that a worker finished a record; return False if the partition was revoked meanwhile.

        :param open_lane: False if the following records of the lane must not be started.
        """
        with self._changed:
            buffer = self._buffers.get(work.place)
            current = buffer is not None and buffer.generation == work.generation
            self._total_bytes -= work.size_bytes
            if buffer is not None and current:
                buffer.in_flight -= 1
                buffer.in_flight_bytes -= work.size_bytes
                buffer.size -= 1
                buffer.size_bytes -= work.size_bytes
            if open_lane:
                self._open(work.place, work.lane)
            self._changed.notify_all()
            return current

    def retry(self, work: Work, delay_s: float) -> bool:
        """Process a failed record again after `delay_s`, before all others of its lane; no worker waits meanwhile.

        Return False if its partition was revoked or is held: the next owner of the partition processes the record, and the
        worker must call `finished`.
        """
        with self._changed:
            buffer = self._buffers.get(work.place)
            if buffer is None or buffer.generation != work.generation or buffer.held:
                return False
            buffer.in_flight -= 1
            buffer.in_flight_bytes -= work.size_bytes
            self._busy.discard((work.place, work.lane))
            if work.lane not in buffer.lanes:
                buffer.lanes[work.lane] = _Lane()  # not in `ready`: the lane is closed
            heapq.heappush(self._delayed, (time.monotonic() + delay_s, next(self._numbers), work))
            self._changed.notify_all()
            return True

    # -- the caller holds the lock --------------------------------------------------------------------------------------------

    def _drop(self, place: Place) -> None:
        buffer = self._buffers.pop(place, None)
        if buffer is not None:
            self._total_bytes -= buffer.size_bytes - buffer.in_flight_bytes
            self._turns.remove(place)

    def _release(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            work = heapq.heappop(self._delayed)[2]
            buffer = self._buffers.get(work.place)
            if buffer is not None and buffer.generation == work.generation and not buffer.held:
                buffer.lanes[work.lane].appendleft(work)
                buffer.ready.append(work.lane)
                self._changed.notify()

    def _open(self, place: Place, lane: Hashable) -> None:
        if (place, lane) not in self._busy:
            return
        self._busy.remove((place, lane))
        buffer = self._buffers.get(place)
        waiting = buffer.lanes.get(lane) if buffer is not None else None
        if buffer is None or waiting is None:
            return
        if waiting:
            buffer.ready.append(lane)
        else:
            del buffer.lanes[lane]
