"""Distributes the followed partitions to replica fetchers.

Used by the replicator's main thread. Each leader has `num.replica.fetchers` fetchers, fewer if there are not enough lock lanes
for all leaders. A partition belongs to the fetcher that Kafka would choose, by its topic and number.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from odradek._ext.replication.followed_slots import Followed

log = logging.getLogger("odradek.replication")

FIRST_LANE = 23
MAX_FETCHERS = 64
LANE_WAIT_S = 0.1
LANE_ATTEMPTS = 100
"""Lanes from `FIRST_LANE` on, after those of the threads that sync (`LANE_FLUSH` and `FLUSH_THREADS`); `LANES` in
`_ext/shm/layout.pxd` has room for them."""


class AnyFetcher(Protocol):
    """What this module needs of a `Fetcher`."""

    @property
    def ended(self) -> bool: ...
    @property
    def records_bytes(self) -> int: ...
    @property
    def max_lag(self) -> int: ...
    @property
    def failed(self) -> int: ...
    def start(self) -> None: ...
    def add(self, slot: int, followed: Followed) -> None: ...
    def remove(self, slot: int) -> None: ...
    def look(self) -> None: ...
    def flushed(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout_s: float) -> None: ...


MakeFetcher = Callable[[int, int, int], AnyFetcher]
"""(leader id, number among the leader's fetchers, lane) -> a fetcher that is not started yet."""


def fetcher_number(topic: str, partition: int, fetchers: int) -> int:
    """Kafka's choice: the number of the fetcher, of `fetchers`, for a partition."""
    value = 0
    for letter in topic:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    value = (31 * value + partition) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % fetchers


def fetchers_per_leader(wanted: int, leaders: int) -> int:
    """How many fetchers each leader gets. Half of the lanes remain for fetchers that are ending, if possible."""
    return max(1, min(wanted, MAX_FETCHERS // 2 // max(1, leaders)))


class Fetchers:
    """See the module.

    :param own_id: the id of this broker: a partition whose slot names it as the leader of its followers is not fetched.
    """

    def __init__(self, make: MakeFetcher, own_id: int, wanted: int) -> None:
        self._make = make
        self._own_id = own_id
        self._wanted = wanted
        self._per_leader = wanted
        self._followed: dict[int, Followed] = {}
        self._places: dict[int, tuple[int, int]] = {}  # slot -> (leader, number)
        self._fetchers: dict[tuple[int, int], AnyFetcher] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self._lanes = list(range(FIRST_LANE, FIRST_LANE + MAX_FETCHERS))
        self._lane_of: dict[int, int] = {}
        self._ending: list[AnyFetcher] = []
        self._ended_bytes = 0

    def change(self, changes: Iterable[tuple[int, Followed | None]]) -> None:
        """Take over the changes of `FollowedSlots.look`."""
        changes = list(changes)
        for slot, followed in changes:
            if followed is None or followed.leader_id < 0 or followed.leader_id == self._own_id:
                self._followed.pop(slot, None)
            else:
                self._followed[slot] = followed
        per_leader = fetchers_per_leader(self._wanted, len({item.leader_id for item in self._followed.values()}))
        changed: Iterable[int] = (slot for slot, _ in changes)
        if per_leader != self._per_leader:
            self._per_leader = per_leader
            changed = set(self._followed) | set(self._places)
        for slot in changed:
            self._place(slot)
        self._end_unused()

    def set_wanted(self, wanted: int) -> None:
        """Take over a changed `num.replica.fetchers`."""
        if wanted != self._wanted:
            self._wanted = wanted
            self.change(())

    def look(self) -> None:
        """The addresses of brokers may have changed."""
        for fetcher in self._fetchers.values():
            fetcher.look()

    def flushed(self) -> None:
        """Logs were synced: partitions that wait for their device may be fetched again."""
        for fetcher in self._fetchers.values():
            fetcher.flushed()

    def revive(self) -> None:
        """Replace fetchers whose thread has ended by an error. Frees the lanes of those that were to end."""
        for place, fetcher in list(self._fetchers.items()):
            if fetcher.ended:
                self._release(self._fetchers.pop(place))
                for slot, at in self._places.items():
                    if at == place:
                        self._fetcher(place).add(slot, self._followed[slot])
        for fetcher in [fetcher for fetcher in self._ending if fetcher.ended]:
            self._ending.remove(fetcher)
            self._release(fetcher)

    def stop(self, timeout_s: float) -> None:
        """End all fetchers. A thread that waits for a connection may outlive the timeout; it holds no lock."""
        fetchers = [*self._fetchers.values(), *self._ending]
        for fetcher in fetchers:
            fetcher.stop()
        for fetcher in fetchers:
            fetcher.join(timeout_s / max(1, len(fetchers)))

    @property
    def records_bytes(self) -> int:
        """Bytes of records that all fetchers have appended."""
        return self._ended_bytes + sum(fetcher.records_bytes for fetcher in [*self._fetchers.values(), *self._ending])

    @property
    def max_lag(self) -> int:
        """The largest lag of a partition behind its leader's high watermark, in records."""
        return max((fetcher.max_lag for fetcher in self._fetchers.values()), default=0)

    @property
    def failed(self) -> int:
        """The number of partitions that are not fetched until they have a new leader epoch."""
        return sum(fetcher.failed for fetcher in self._fetchers.values())

    @property
    def count(self) -> int:
        """The number of fetchers."""
        return len(self._fetchers)

    def _place(self, slot: int) -> None:
        """Give a partition to its fetcher, and take it from the former one."""
        followed = self._followed.get(slot)
        former = self._places.pop(slot, None)
        place = None
        if followed is not None:
            number = fetcher_number(followed.topic, followed.partition, self._per_leader)
            place = followed.leader_id, number
        if former is not None:
            self._sizes[former] -= 1
            if former != place and former in self._fetchers:
                self._fetchers[former].remove(slot)
        if followed is not None and place is not None:
            self._fetcher(place).add(slot, followed)
            self._places[slot] = place
            self._sizes[place] = self._sizes.get(place, 0) + 1

    def _fetcher(self, place: tuple[int, int]) -> AnyFetcher:
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            self.revive_lanes()
            lane = self._lanes.pop()
            fetcher = self._fetchers[place] = self._make(*place, lane)
            self._lane_of[id(fetcher)] = lane
            fetcher.start()
        return fetcher

    def revive_lanes(self) -> None:
        """Wait for the end of fetchers that are ending, if their lanes are needed. :raises RuntimeError: they do not end."""
        attempts = 0
        while not self._lanes:
            attempts += 1
            if attempts > LANE_ATTEMPTS:
                raise RuntimeError("no lock lane is left for a replica fetcher")
            for fetcher in list(self._ending):
                fetcher.join(LANE_WAIT_S)
                if fetcher.ended:
                    self._ending.remove(fetcher)
                    self._release(fetcher)

    def _release(self, fetcher: AnyFetcher) -> None:
        self._ended_bytes += fetcher.records_bytes
        self._lanes.append(self._lane_of.pop(id(fetcher)))

    def _end_unused(self) -> None:
        for place, size in list(self._sizes.items()):
            if size == 0:
                del self._sizes[place]
                fetcher = self._fetchers.pop(place, None)
                if fetcher is not None:
                    fetcher.stop()
                    self._ending.append(fetcher)
