"""Offsets that transactions have committed and that are pending: they wait for the end markers of their transactions.

A commit marker makes a pending offset the committed one, unless the offset that is committed at that time has a newer record;
an abort marker drops it. A group knows its pending offsets by partition, the shard knows the groups of each transaction. Used
in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import TYPE_CHECKING

from odradek.coordination.environment import EndMarker
from odradek.groups.offsets import CommittedOffset, Place

if TYPE_CHECKING:
    from odradek.groups.group import Group

EPOCH_PER_TRANSACTION = 2
"""The level of the feature `transaction.version` from which on each transaction has an epoch of its own."""


class PendingOffset:
    """An offset of an open transaction.

    :param record_offset: of its record in `__consumer_offsets`.
    :param older: the next older one of the same place, of another transaction.
    :ivar overtaken: an offset with a newer record was committed: the end of this transaction does not change it.
    :ivar dropped: a tombstone has deleted it.
    """

    __slots__ = ("committed", "dropped", "older", "overtaken", "place", "producer_id", "record_offset")

    def __init__(
        self,
        producer_id: int,
        place: Place,
        record_offset: int,
        committed: CommittedOffset,
        older: PendingOffset | None,
    ) -> None:
        self.producer_id = producer_id
        self.place = place
        self.record_offset = record_offset
        self.committed = committed
        self.older = older
        self.overtaken = False
        self.dropped = False


class PendingOffsets:
    """The pending offsets of one group: for each place the newest, which leads to the older ones of other transactions."""

    def __init__(self) -> None:
        self._newest: dict[Place, PendingOffset] = {}

    def __bool__(self) -> bool:
        return bool(self._newest)

    def __contains__(self, place: Place) -> bool:
        return place in self._newest

    def __iter__(self) -> Iterator[PendingOffset]:
        for newest in self._newest.values():
            yield from _chain(newest)

    def places(self) -> KeysView[Place]:
        """The places with pending offsets; live."""
        return self._newest.keys()

    def add(self, producer_id: int, place: Place, record_offset: int, committed: CommittedOffset) -> PendingOffset:
        """Add an offset with a newer record than all others. It replaces an earlier one of the same transaction."""
        older = self._newest.get(place)
        if older is not None:
            older = _without(older, producer_id)
        pending = self._newest[place] = PendingOffset(producer_id, place, record_offset, committed, older)
        return pending

    def remove(self, pending: PendingOffset) -> None:
        """Remove an offset whose transaction ends."""
        newest = self._newest[pending.place]
        rest = pending.older if newest is pending else _without(newest, pending.producer_id)
        if rest is None:
            del self._newest[pending.place]
        else:
            self._newest[pending.place] = rest

    def overtake(self, place: Place) -> None:
        """Note that an offset was committed whose record is newer than all pending ones."""
        for pending in _chain(self._newest.get(place)):
            pending.overtaken = True

    def drop(self, place: Place) -> None:
        """Drop the offsets of all transactions: a tombstone follows them in the log."""
        for pending in _chain(self._newest.pop(place, None)):
            pending.dropped = True


def _chain(newest: PendingOffset | None) -> Iterator[PendingOffset]:
    while newest is not None:
        yield newest
        newest = newest.older


def _without(newest: PendingOffset, producer_id: int) -> PendingOffset | None:
    """The pending offsets of a place without that of a transaction, if it has one."""
    if newest.producer_id == producer_id:
        return newest.older
    for pending in _chain(newest):
        if pending.older is not None and pending.older.producer_id == producer_id:
            pending.older = pending.older.older
            break
    return newest


class Guard:
    """A commit that waits for the transaction coordinator's confirmation.

    An end marker written meanwhile breaks it: the offsets would become pending after the end of their transaction, and nothing
    would end them.
    """

    __slots__ = ("broken", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.broken = False


class OpenTransactions:
    """The transactions with pending offsets in groups of one partition of `__consumer_offsets`, or with commits that wait for
    the transaction coordinator.

    Producer ids identify transactions, because a producer has only one at a time.
    """

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[Group, dict[Place, PendingOffset]]] = {}
        self._guards: dict[int, list[Guard]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_producer)

    def put(
        self,
        producer_id: int,
        group: Group,
        offsets: Iterable[tuple[Place, CommittedOffset]],
        record_offsets: Iterable[int],
    ) -> None:
        """Add offsets that a transaction has committed for a group, in the order of their records."""
        of_producer = self._of_producer.get(producer_id)
        if of_producer is None:
            of_producer = self._of_producer[producer_id] = {}
        of_group = of_producer.get(group)
        if of_group is None:
            of_group = of_producer[group] = {}
        add = group.pending.add
        for (place, committed), record_offset in zip(offsets, record_offsets, strict=False):
            of_group[place] = add(producer_id, place, record_offset, committed)

    def end(self, producer_id: int, commits: bool) -> None:
        """Apply the end marker of a transaction to the groups. Offsets that were deleted meanwhile do not return."""
        for group, of_group in self._of_producer.pop(producer_id, {}).items():
            for pending in of_group.values():
                if pending.dropped:
                    continue
                group.pending.remove(pending)
                if commits and not pending.overtaken:
                    group.offsets.put(*pending.place, pending.committed)
                    for older in _chain(pending.older):
                        older.overtaken = True

    def guard(self, producer_id: int, producer_epoch: int) -> Guard:
        """Guard a commit until `release`."""
        guard = Guard(producer_epoch)
        self._guards.setdefault(producer_id, []).append(guard)
        return guard

    def release(self, producer_id: int, guard: Guard) -> bool:
        """End a guard. Returns whether no end marker has broken it."""
        guards = self._guards[producer_id]
        guards.remove(guard)
        if not guards:
            del self._guards[producer_id]
        return not guard.broken

    def ending(self, marker: EndMarker) -> None:
        """An end marker is about to be written: break the guards of its producer.

        In version 2, each transaction has an epoch of its own, and a marker has that of the next transaction, whose commits may
        be the ones that wait.
        """
        for guard in self._guards.get(marker.producer_id, ()):
            if marker.transaction_version < EPOCH_PER_TRANSACTION or marker.producer_epoch != guard.producer_epoch:
                guard.broken = True
