"""Pending offsets: offsets that were committed in transactions which have not ended.

The commit marker of the transaction makes a pending offset the committed offset of the group, unless the group has committed an
offset with a newer record since. The abort marker drops the pending offset. `PendingOffsets` keeps the pending offsets of one
group by partition. `OpenTransactions` keeps, for one partition of `__consumer_offsets`, the pending offsets of each
transaction. Used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from typing import TYPE_CHECKING

from odradek._ext.api.offset_commits import CommittedOffset
from odradek.coordination.environment import EndMarker
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.groups.group import Group

EPOCH_PER_TRANSACTION = 2
"""The lowest level of the feature `transaction.version` with which each transaction has a different producer epoch."""


class PendingOffset:
    """The pending offset of a transaction for one place.

    :param producer_id: the producer of the transaction.
    :param record_offset: the offset of its record in `__consumer_offsets`.
    :param of_place: all pending offsets of the place.
    """

    __slots__ = ("_of_place", "committed", "place", "producer_id", "record_offset")

    def __init__(
        self,
        producer_id: int,
        place: TopicPartition,
        record_offset: int,
        committed: CommittedOffset,
        of_place: _OfPlace,
    ) -> None:
        self.producer_id = producer_id
        self.place = place
        self.record_offset = record_offset
        self.committed = committed
        self._of_place = of_place

    @property
    def overtaken(self) -> bool:
        """Whether the group has committed an offset with a newer record: a commit marker does not replace that offset."""
        return self.record_offset <= self._of_place.overtaken_up_to

    @property
    def dropped(self) -> bool:
        """Whether a tombstone has deleted this pending offset: a commit marker does not restore it."""
        return self._of_place.dropped


class _OfPlace:
    """The pending offsets of one place.

    :ivar by_producer: in the order of their records.
    :ivar metadata_size: the characters of the metadata of all of them.
    :ivar newest: the offset of the newest record of a pending offset, also of one that was removed.
    :ivar overtaken_up_to: pending offsets with records up to this offset are overtaken.
    :ivar dropped: a tombstone has deleted the pending offsets.
    """

    __slots__ = ("by_producer", "dropped", "metadata_size", "newest", "overtaken_up_to")

    def __init__(self) -> None:
        self.by_producer: dict[int, PendingOffset] = {}
        self.metadata_size = 0
        self.newest = -1
        self.overtaken_up_to = -1
        self.dropped = False


class PendingOffsets:
    """The pending offsets of one group.

    Several transactions can have a pending offset for the same place. Thousands of them may be open, so the time that a method
    takes does not depend on their number.

    :ivar metadata_size: the characters of the metadata of all of them.
    """

    def __init__(self) -> None:
        self._of_place: dict[TopicPartition, _OfPlace] = {}
        self.metadata_size = 0

    def __bool__(self) -> bool:
        return bool(self._of_place)

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self._of_place

    def __len__(self) -> int:
        return sum(len(of_place.by_producer) for of_place in self._of_place.values())

    def __iter__(self) -> Iterator[PendingOffset]:
        """The pending offsets by place; those of one place with the newest record first."""
        for of_place in self._of_place.values():
            yield from reversed(of_place.by_producer.values())

    def places(self) -> KeysView[TopicPartition]:
        """The places with pending offsets: a view, which changes with this object."""
        return self._of_place.keys()

    def add(
        self, producer_id: int, place: TopicPartition, record_offset: int, committed: CommittedOffset
    ) -> PendingOffset:
        """Add a pending offset. Its record is newer than those of all other pending offsets. If the transaction already has a
        pending offset for this place, that one is removed."""
        of_place = self._of_place.get(place)
        if of_place is None:
            of_place = self._of_place[place] = _OfPlace()
        else:
            former = of_place.by_producer.pop(producer_id, None)  # so that the new one becomes the last one
            if former is not None:
                self._resize(of_place, -len(former.committed.metadata))
        of_place.newest = record_offset
        pending = of_place.by_producer[producer_id] = PendingOffset(
            producer_id, place, record_offset, committed, of_place
        )
        self._resize(of_place, len(committed.metadata))
        return pending

    def _resize(self, of_place: _OfPlace, characters: int) -> None:
        of_place.metadata_size += characters
        self.metadata_size += characters

    def remove(self, pending: PendingOffset, commits: bool) -> None:
        """Remove a pending offset that was not dropped, because its transaction ends.

        :param commits: the offset becomes the committed offset of the group; so it overtakes those with older records.
        """
        of_place = self._of_place[pending.place]
        del of_place.by_producer[pending.producer_id]
        self._resize(of_place, -len(pending.committed.metadata))
        if not of_place.by_producer:
            del self._of_place[pending.place]
        elif commits:
            of_place.overtaken_up_to = max(of_place.overtaken_up_to, pending.record_offset)

    def overtake(self, place: TopicPartition) -> None:
        """The group has committed an offset whose record is newer than those of all pending offsets of this place."""
        of_place = self._of_place.get(place)
        if of_place is not None:
            of_place.overtaken_up_to = of_place.newest

    def drop(self, place: TopicPartition) -> None:
        """Drop the pending offsets of a place, of all transactions: a tombstone follows their records in the log."""
        of_place = self._of_place.pop(place, None)
        if of_place is not None:
            of_place.dropped = True
            self.metadata_size -= of_place.metadata_size


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
        self._of_producer: dict[int, dict[Group, dict[TopicPartition, PendingOffset]]] = {}
        self._guards: dict[int, list[Guard]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._of_producer)

    def put(
        self,
        producer_id: int,
        group: Group,
        offsets: Iterable[tuple[TopicPartition, CommittedOffset]],
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
                if commits and not pending.overtaken:
                    group.offsets.put(*pending.place, pending.committed)
                group.pending.remove(pending, commits)

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
