"""Offsets that transactions have committed and that are pending: they wait for the end markers of their transactions.

A commit marker makes a pending offset the committed one, unless the offset that is committed at that time has a newer record;
an abort marker drops it. A group knows its pending offsets by partition, the shard knows the groups of each transaction. Used
in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.coordination.environment import EndMarker
from odradek.groups.offsets import CommittedOffset, Place

if TYPE_CHECKING:
    from odradek.groups.group import Group

EPOCH_PER_TRANSACTION = 2
"""The level of the feature `transaction.version` from which on each transaction has an epoch of its own."""


@dataclass(slots=True)
class PendingOffset:
    """An offset of an open transaction.

    :param record_offset: of its record in `__consumer_offsets`.
    :ivar overtaken: an offset with a newer record was committed: the end of this transaction does not change it.
    """

    record_offset: int
    committed: CommittedOffset
    overtaken: bool = False


class PendingOffsets:
    """The pending offsets of one group, by place and producer id."""

    def __init__(self) -> None:
        self._of_place: dict[Place, dict[int, PendingOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_place)

    def __contains__(self, place: Place) -> bool:
        return place in self._of_place

    def __iter__(self) -> Iterator[tuple[Place, int, PendingOffset]]:
        for place, of_producer in self._of_place.items():
            for producer_id, pending in of_producer.items():
                yield place, producer_id, pending

    def places(self) -> KeysView[Place]:
        """The places with pending offsets; live."""
        return self._of_place.keys()

    def put(self, producer_id: int, place: Place, pending: PendingOffset) -> None:
        """Add an offset. It replaces an earlier one of the same transaction."""
        of_producer = self._of_place.get(place)
        if of_producer is None:
            of_producer = self._of_place[place] = {}
        of_producer[producer_id] = pending

    def take(self, producer_id: int, place: Place) -> PendingOffset | None:
        """Remove and return the offset of a transaction; None if it has none, e.g. because it was deleted."""
        of_producer = self._of_place.get(place)
        if of_producer is None:
            return None
        pending = of_producer.pop(producer_id, None)
        if not of_producer:
            del self._of_place[place]
        return pending

    def overtake(self, place: Place, record_offset: int | None = None) -> None:
        """Note that an offset was committed whose record is newer than all pending ones.

        :param record_offset: of the record: only than those with smaller offsets.
        """
        for pending in self._of_place.get(place, {}).values():
            if record_offset is None or pending.record_offset < record_offset:
                pending.overtaken = True

    def drop(self, place: Place) -> None:
        """Drop the offsets of all transactions: a tombstone follows them in the log."""
        self._of_place.pop(place, None)


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
        self._of_producer: dict[int, set[tuple[Group, Place]]] = {}
        self._guards: dict[int, list[Guard]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_producer)

    def put(self, producer_id: int, group: Group, place: Place, record_offset: int, committed: CommittedOffset) -> None:
        """Add an offset that a transaction has committed."""
        group.pending.put(producer_id, place, PendingOffset(record_offset, committed))
        places = self._of_producer.get(producer_id)
        if places is None:
            places = self._of_producer[producer_id] = set()
        places.add((group, place))

    def end(self, producer_id: int, commits: bool) -> None:
        """Apply the end marker of a transaction to the groups. Offsets that were deleted meanwhile do not return."""
        for group, place in self._of_producer.pop(producer_id, ()):
            pending = group.pending.take(producer_id, place)
            if commits and pending is not None and not pending.overtaken:
                group.offsets.put(*place, pending.committed)
                group.pending.overtake(place, pending.record_offset)

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
