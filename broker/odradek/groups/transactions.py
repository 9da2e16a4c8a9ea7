"""Transactional offset commits during the load of a partition of `__consumer_offsets`.

Offsets of a transaction are valid from its commit marker on; an abort marker discards them. This broker runs no
transactions, but a directory from Kafka may contain them. Used in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.groups.offsets import CommittedOffset, Place

GroupPlace = tuple[str, Place]
"""Group id; topic and partition."""


class PendingOffset(NamedTuple):
    """An offset of an open transaction. :param record_offset: of its record in `__consumer_offsets`."""

    record_offset: int
    committed: CommittedOffset


class PendingOffsets:
    """The offsets of the open transactions of one partition, by producer id.

    The newest record of a place counts, in whatever order transactions end: a newer record drops the older ones.
    """

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[GroupPlace, PendingOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_producer)

    def __iter__(self) -> Iterator[tuple[str, Place, CommittedOffset]]:
        for places in self._of_producer.values():
            for (group_id, place), pending in places.items():
                yield group_id, place, pending.committed

    def put(
        self, producer_id: int, group_id: str, place: Place, record_offset: int, committed: CommittedOffset
    ) -> None:
        """Add the offset of a transactional record."""
        self._of_producer.setdefault(producer_id, {})[group_id, place] = PendingOffset(record_offset, committed)

    def overtake(self, group_id: str, place: Place, record_offset: int | None = None) -> None:
        """Drop pending offsets of a place, all or those before `record_offset`: a newer record or tombstone replaces them."""
        for producer_id, places in list(self._of_producer.items()):
            pending = places.get((group_id, place))
            if pending is not None and (record_offset is None or pending.record_offset < record_offset):
                del places[group_id, place]
                if not places:
                    del self._of_producer[producer_id]

    def end(self, producer_id: int, committed: bool) -> list[tuple[str, Place, CommittedOffset]]:
        """Apply an end marker; return the offsets that it commits."""
        places = self._of_producer.pop(producer_id, {})
        if not committed:
            return []
        for (group_id, place), pending in places.items():
            self.overtake(group_id, place, pending.record_offset)
        return [(group_id, place, pending.committed) for (group_id, place), pending in places.items()]
