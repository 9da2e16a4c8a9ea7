"""Pending offsets: offsets that were committed in transactions which have not ended.

The commit marker of the transaction makes a pending offset the committed offset of the group, unless the group has committed an
offset with a newer record since. The abort marker drops the pending offset. `PendingOffsets` keeps the pending offsets of one
group by partition. `OpenTransactions` keeps, for one partition of `__consumer_offsets`, the pending offsets of each
transaction. Used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import TYPE_CHECKING

from odradek.coordination.environment import EndMarker
from odradek.groups.offsets import CommittedOffset, Place

if TYPE_CHECKING:
    from odradek.groups.group import Group

EPOCH_PER_TRANSACTION = 2
"""The lowest level of the feature `transaction.version` with which each transaction has a different producer epoch."""


class PendingOffset:
    """The pending offset of a transaction for one place.

    :param producer_id: the producer of the transaction.
    :param record_offset: the offset of its record in `__consumer_offsets`.
    :param older: the pending offset of the same place with the next older record, which belongs to another transaction.
    :ivar overtaken: the group has committed an offset with a newer record: a commit marker does not replace that offset.
    :ivar dropped: a tombstone has deleted this pending offset: a commit marker does not restore it.
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
    """The pending offsets of one group.

    Several transactions can have a pending offset for the same place. Those of one place are a linked list, the newest record
    first (`PendingOffset.older`).
    """

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
        """The places with pending offsets: a view, which changes with this object."""
        return self._newest.keys()

    def add(self, producer_id: int, place: Place, record_offset: int, committed: CommittedOffset) -> PendingOffset:
        """Add a pending offset. Its record is newer than those of all other pending offsets. If the transaction already has a
        pending offset for this place, that one is removed."""
        older = self._newest.get(place)
        if older is not None:
            older = _without(older, producer_id)
        pending = self._newest[place] = PendingOffset(producer_id, place, record_offset, committed, older)
        return pending

    def remove(self, pending: PendingOffset) -> None:
        """Remove a pending offset, because its transaction ends."""
        newest = self._newest[pending.place]
        rest = pending.older if newest is pending else _without(newest, pending.producer_id)
        if rest is None:
            del self._newest[pending.place]
        else:
            self._newest[pending.place] = rest

    def overtake(self, place: Place) -> None:
        """Mark the pending offsets of a place as overtaken: the group has committed an offset whose record is newer."""
        for pending in _chain(self._newest.get(place)):
            pending.overtaken = True

    def drop(self, place: Place) -> None:
        """Drop the pending offsets of a place, of all transactions: a tombstone follows their records in the log."""
        for pending in _chain(self._newest.pop(place, None)):
            pending.dropped = True


def _chain(newest: PendingOffset | None) -> Iterator[PendingOffset]:
    """The pending offsets of a place, the newest record first."""
    while newest is not None:
        yield newest
        newest = newest.older


def _without(newest: PendingOffset, producer_id: int) -> PendingOffset | None:
    """Remove the pending offset of a producer from the list of a place. Returns the first one of the rest; None if none is
    left.

    :param newest: the first pending offset of the list.
    """
    if newest.producer_id == producer_id:
        return newest.older
    for pending in _chain(newest):
        if pending.older is not None and pending.older.producer_id == producer_id:
            pending.older = pending.older.older
            break
    return newest


class Guard:
    """Guards a commit in a transaction from the question to the transaction coordinator until the answer.

    If an end marker of the producer is written in this time, the guard is broken, and the commit must be refused: its records
    would follow the marker, and no other marker would end the transaction that they open.

    :ivar broken: an end marker that may belong to the transaction of the commit was written.
    """

    __slots__ = ("broken", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.broken = False


class OpenTransactions:
    """The open transactions of one partition of `__consumer_offsets`: their pending offsets, by group, and the guards of
    commits that wait for the transaction coordinator.

    A producer has at most one open transaction, so the producer id identifies the transaction.
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
        """Add offsets that were committed for a group in a transaction, in the order of their records.

        :param record_offsets: the offsets of their records in `__consumer_offsets`.
        """
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
        """Apply the end marker of a transaction to its groups.

        A commit marker makes the pending offsets the committed offsets, except those that were dropped or overtaken.
        """
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
        """Begin to guard a commit, until `release`."""
        guard = Guard(producer_epoch)
        self._guards.setdefault(producer_id, []).append(guard)
        return guard

    def release(self, producer_id: int, guard: Guard) -> bool:
        """End the guard of a commit. Returns whether the guard is not broken, so that the commit may be appended."""
        guards = self._guards[producer_id]
        guards.remove(guard)
        if not guards:
            del self._guards[producer_id]
        return not guard.broken

    def ending(self, marker: EndMarker) -> None:
        """Called before an end marker is written: break the guards of the transaction that it ends.

        With `transaction.version` 2, each transaction has a different producer epoch, and a marker has the epoch of the
        producer's next transaction. A guard with the epoch of the marker belongs to this next transaction, and is not broken.
        """
        for guard in self._guards.get(marker.producer_id, ()):
            if marker.transaction_version < EPOCH_PER_TRANSACTION or marker.producer_epoch != guard.producer_epoch:
                guard.broken = True
