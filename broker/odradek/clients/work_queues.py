"""The buffers between the poll thread and the workers: which record is processed next, and how many records wait.

Each partition has a buffer; partitions take turns, so that a busy one does not starve the others. A lane is a sequence of
records that are processed in order: a partition, a key within a partition, or a single record. A lane is closed while its
record is processed or waits for a retry, also if the partition is revoked and assigned again meanwhile.

A worker takes several records at once into its `Hand` and processes them one after the other, because taking each record
separately costs more than a short handler. Idle workers take back the records that it has not begun, and so does the poll
thread when partitions are revoked. One lock protects all state except the hands; workers wait on its conditions.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from odradek.topic_partition import TopicPartition

LONGEST_RUN = 16
"""Records of a lane that a worker takes one after the other before those of other lanes."""
UNBEGUN_S = 0.002
"""A worker without work takes records back that another one took before this time and has not begun."""


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

    place: TopicPartition
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


class Hand:
    """The records of a worker: those that it has not begun, and those that it has processed and not reported.

    Several threads use both queues without the lock: each operation of a deque is atomic, so only one of them gets a record.
    """

    __slots__ = ("done", "taken_at", "unbegun")

    def __init__(self) -> None:
        self.unbegun: deque[Work] = deque()
        self.done: deque[Work] = deque()
        self.taken_at = 0.0

    def next(self) -> Work | None:
        """The next record to process; None if there is none: call `WorkQueues.take`."""
        try:
            return self.unbegun.popleft()
        except IndexError:
            return None


def drained(queue: deque[Work]) -> list[Work]:
    """Empty a queue of a hand, which another thread may empty too; return what this thread got."""
    works = []
    while queue:
        try:
            works.append(queue.popleft())
        except IndexError:
            break
    return works


@dataclass
class _Buffer:
    generation: int
    lanes: dict[Hashable, _Lane] = field(default_factory=dict)
    ready: deque[Hashable] = field(default_factory=deque)
    delayed: set[Hashable] = field(default_factory=set)  # lanes with a record that waits for a retry
    in_flight: int = 0
    size: int = 0  # records that wait or are in flight
    size_bytes: int = 0
    in_flight_bytes: int = 0
    held: bool = False  # no more records are started


class WorkQueues:
    """The buffers of all assigned partitions. :param order: the records that are processed in order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._watch = threading.Condition(self._lock)
        self._hands: list[Hand] = []
        self._waiting_workers = 0  # without the watching one
        self._watched = False  # a waiting worker looks for due retries, and for records that others do not begin
        self._watch_until = math.inf
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._turns: deque[TopicPartition] = deque()
        self._busy: dict[
            tuple[TopicPartition, Hashable], int
        ] = {}  # the records in flight of closed lanes, of any generation
        self._delayed: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._generation = 0
        self._total_bytes = 0
        self._closed = False

    # -- the poll thread ------------------------------------------------------------------------------------------

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Create empty buffers for partitions."""
        with self._lock:
            for place in places:
                self._drop(place)
                self._generation += 1
                self._buffers[place] = _Buffer(self._generation)
                self._turns.append(place)

    def revoke(self, places: Iterable[TopicPartition]) -> None:
        """Drop the buffers of partitions. Workers finish the records in flight; `finished` returns False for these."""
        with self._lock:
            for place in places:
                self._drop(place)
            self._idle.notify_all()

    def hold(self, places: Iterable[TopicPartition]) -> int:
        """Drop the waiting records of partitions, including those that wait for a retry; return their number.

        Records in flight go on, see `wait_until_idle`.
        """
        dropped = 0
        with self._lock:
            for hand in self._hands:
                self._take_back(hand)
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
                    buffer.delayed.clear()
        return dropped

    def wait_until_idle(self, places: Iterable[TopicPartition], timeout_s: float) -> bool:
        """Wait until no record of these partitions is in flight; return False after `timeout_s`."""
        awaited = list(places)
        with self._lock:
            return self._idle.wait_for(
                lambda: all(self._buffers[place].in_flight == 0 for place in awaited if place in self._buffers),
                timeout_s,
            )

    def wait_until_finished(self, timeout_s: float) -> None:
        """Wait until a worker finishes records, at most `timeout_s`."""
        with self._lock:
            self._idle.wait(timeout_s)

    def put(self, works: Iterable[Work]) -> None:
        """Buffer records; ignore those whose partitions are not assigned or are held."""
        with self._lock:
            for work in works:
                buffer = self._buffers.get(work.place)
                if buffer is None or buffer.held:
                    continue
                work.generation = buffer.generation
                name = work.lane = self._lane_of(work)
                buffer.size += 1
                buffer.size_bytes += work.size_bytes
                self._total_bytes += work.size_bytes
                lane = buffer.lanes.get(name)
                if lane is None:
                    lane = buffer.lanes[name] = _Lane()
                    if (work.place, name) not in self._busy:
                        buffer.ready.append(name)
                lane.append(work)
            self._wake()

    def _lane_of(self, work: Work) -> Hashable:
        if self._order is Order.PARTITION:
            return None
        if self._order is Order.KEY and work.key is not None:
            return work.key
        return work.offset  # an int never equals a key: each record without a key is a lane

    def fill(self, place: TopicPartition) -> tuple[int, int]:
        """The number and the bytes of the records of a partition that wait or are in flight."""
        with self._lock:
            buffer = self._buffers.get(place)
            return (buffer.size, buffer.size_bytes) if buffer is not None else (0, 0)

    @property
    def total_bytes(self) -> int:
        """The bytes of all records that wait or are in flight, including records in flight of revoked partitions."""
        with self._lock:
            return self._total_bytes

    def close(self) -> None:
        """Make `take` return None from now on."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            self._watch.notify_all()

    # -- workers --------------------------------------------------------------------------------------------------

    def hand(self) -> Hand:
        """The hand of a new worker."""
        hand = Hand()
        with self._lock:
            self._hands.append(hand)
        return hand

    def take(self, hand: Hand, most: int = 1) -> bool:
        """Wait for records to process, and put up to `most` of them into an empty hand; False after `close`.

        A worker leaves with records only after it has notified those that wait of what it leaves to them: lanes that are
        ready, the watch if nobody has it, and a time to look at its hand if records wait in it. So while a worker waits and
        none is notified, no lane is ready, and one worker watches until the first time that `_wait` considers, or earlier.
        """
        with self._lock:
            while not self._closed:
                if self._delayed:
                    self._release(time.monotonic())
                self._fill(hand, most)
                if hand.unbegun:
                    hand.taken_at = time.monotonic()
                    if self._has_ready():
                        self._wake()
                    if not self._watched or len(hand.unbegun) > 1:
                        self._let_watch(hand.taken_at + UNBEGUN_S)
                    return True
                self._wait()
            return False

    def _wake(self) -> None:
        """Wake a waiting worker; the last to be woken is the one that watches."""
        (self._changed if self._waiting_workers else self._watch).notify()

    def _let_watch(self, until: float) -> None:
        """Let a waiting worker, if there is one, look again at `until`; if nobody watches, one that wakes does."""
        if not self._watched:
            self._changed.notify()
        elif self._watch_until > until:
            self._watch.notify()

    def _wait(self) -> None:
        """Wait for a change. One of the waiting workers also watches for what changes by time alone."""
        if self._watched:
            self._waiting_workers += 1
            self._changed.wait()
            self._waiting_workers -= 1
            return
        due = [self._delayed[0][0]] if self._delayed else []
        due += [hand.taken_at + UNBEGUN_S for hand in self._hands if hand.unbegun]
        self._watched, self._watch_until = True, min(due, default=math.inf)
        self._watch.wait(max(0.0, self._watch_until - time.monotonic()) if due else None)
        self._watched = False
        now = time.monotonic()
        for hand in self._hands:
            if hand.unbegun and now >= hand.taken_at + UNBEGUN_S:
                self._take_back(hand)

    def give_back(self, hand: Hand) -> None:
        """Put what the worker has not begun back to the beginnings of its lanes."""
        with self._lock:
            self._take_back(hand)

    def finished(self, works: Iterable[Work], *, open_lane: bool = True) -> list[bool]:
        """Note that a worker finished records; for each False if its partition was revoked meanwhile.

        :param open_lane: False if the following records of the lanes must not be started.
        """
        results = []
        with self._lock:
            for work in works:
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
                results.append(current)
            self._idle.notify_all()
        return results

    def retry(self, work: Work, delay_s: float) -> bool:
        """Process a failed record again after `delay_s`, before all others of its lane; no worker waits meanwhile.

        Return False if its partition was revoked or is held: the next owner of the partition processes the record, and the
        worker must call `finished`.
        """
        with self._lock:
            buffer = self._buffers.get(work.place)
            if buffer is None or buffer.generation != work.generation or buffer.held:
                return False
            buffer.in_flight -= 1
            buffer.in_flight_bytes -= work.size_bytes
            self._leave(work.place, work.lane)
            buffer.delayed.add(work.lane)
            if work.lane not in buffer.lanes:
                buffer.lanes[work.lane] = _Lane()
            due = time.monotonic() + delay_s
            heapq.heappush(self._delayed, (due, next(self._numbers), work))
            self._let_watch(due)
            self._idle.notify_all()
            return True

    # -- the caller holds the lock --------------------------------------------------------------------------------------------

    def _drop(self, place: TopicPartition) -> None:
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
                buffer.delayed.discard(work.lane)
                if (work.place, work.lane) not in self._busy:
                    self._admit(buffer, work.lane)

    def _leave(self, place: TopicPartition, lane: Hashable) -> bool:
        """A record of a lane is not in flight any more; whether it was the last one."""
        count = self._busy[place, lane] - 1
        if count:
            self._busy[place, lane] = count
            return False
        del self._busy[place, lane]
        return True

    def _open(self, place: TopicPartition, lane: Hashable, first: bool = False) -> None:
        if self._leave(place, lane) and (buffer := self._buffers.get(place)) is not None:
            self._admit(buffer, lane, first)

    def _admit(self, buffer: _Buffer, lane: Hashable, first: bool = False) -> None:
        """No record of the lane is in flight: it is open, unless one waits for a retry. :param first: before other lanes."""
        waiting = buffer.lanes.get(lane)
        if waiting is None or lane in buffer.delayed:
            return
        if waiting:
            (buffer.ready.appendleft if first else buffer.ready.append)(lane)
            self._wake()
        else:
            del buffer.lanes[lane]

    def _has_ready(self) -> bool:
        return any(buffer.ready for buffer in self._buffers.values())

    def _fill(self, hand: Hand, most: int) -> None:
        """Take records of lanes that are not closed; the partitions take turns."""
        turns, unbegun = self._turns, hand.unbegun
        without, left = 0, most
        while left and without < len(turns):
            place = turns[0]
            turns.rotate(-1)
            buffer = self._buffers[place]
            if not buffer.ready:
                without += 1
                continue
            without = 0
            name = buffer.ready.popleft()
            lane = buffer.lanes[name]
            count = 0
            while lane and count < left and count < LONGEST_RUN:
                work = lane.popleft()
                buffer.in_flight_bytes += work.size_bytes
                unbegun.append(work)
                count += 1
            buffer.in_flight += count
            self._busy[place, name] = count
            left -= count

    def _take_back(self, hand: Hand) -> None:
        """Put records that a worker has not begun back. It may begin the first ones meanwhile, so the last are taken first."""
        while hand.unbegun:
            try:
                work = hand.unbegun.pop()
            except IndexError:
                break
            buffer = self._buffers.get(work.place)
            if buffer is not None and buffer.generation == work.generation:
                buffer.in_flight -= 1
                buffer.in_flight_bytes -= work.size_bytes
                buffer.lanes.setdefault(work.lane, _Lane()).appendleft(work)
            else:
                self._total_bytes -= work.size_bytes
            self._open(work.place, work.lane, first=True)
