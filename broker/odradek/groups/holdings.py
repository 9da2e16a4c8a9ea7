"""Which member of a consumer group (KIP-848) holds each partition, so that two members never own a partition at once.

Owned by one `ConsumerGroup`, which registers every change of a member's partitions; used in the coordinator's loop. It is not
stored: it follows from the current assignments of the members.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.topic_partition import TopicIdPartition


class Holdings:
    """The holder of each partition: the member that it is assigned to, or that must still release it."""

    def __init__(self) -> None:
        self._holders: dict[TopicIdPartition, str] = {}
        self._held: dict[str, frozenset[TopicIdPartition]] = {}

    def register(self, member_id: str, places: frozenset[TopicIdPartition]) -> None:
        """Replace the partitions that a member holds."""
        self.release(member_id)
        self._held[member_id] = places
        for place in places:
            self._holders[place] = member_id

    def release(self, member_id: str) -> None:
        """Release all partitions of a member, except those that another member has registered since."""
        for place in self._held.pop(member_id, ()):
            if self._holders.get(place) == member_id:
                del self._holders[place]

    def holder_of(self, place: TopicIdPartition) -> str | None:
        """The id of the member that holds a partition; None if it is free."""
        return self._holders.get(place)

    def any_free_for(self, member_id: str, places: Iterable[TopicIdPartition]) -> bool:
        """Whether any of these partitions is free, or held by the member itself."""
        return any(self._holders.get(place) in (None, member_id) for place in places)
