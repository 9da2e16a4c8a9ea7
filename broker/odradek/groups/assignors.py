"""The server-side assignors of KIP-848: they distribute partitions among the members of a group. Pure functions.

Both are sticky: a partition stays with its member as long as the balance allows, because each move costs a revocation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from typing import NamedTuple

from odradek.topic_partition import TopicIdPartition

Assignment = dict[str, set[TopicIdPartition]]

MOST_ROUNDS = 20
"""Largest number of rounds that move partitions from members with many to members with few."""
MOST_CORRECTIONS = 100_000
"""Largest number of corrections of outdated heap entries in one assignment; see `_Loads`."""


class Subscriber(NamedTuple):
    """A member, for assignors. :param topics: ids of subscribed topics. :param owned: its current target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    owned: frozenset[TopicIdPartition]


Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], Assignment]


def assign_uniform(members: Sequence[Subscriber], partitions: Mapping[bytes, int]) -> Assignment:
    """Balance the partitions: members that could take the same partitions get equal numbers of them, or differ by one.

    :param partitions: number of partitions of each topic, by id.
    """
    assignment: Assignment = {member.member_id: set() for member in members}
    if not members:
        return assignment
    if len({member.topics for member in members}) == 1:
        _share_equally(
            members,
            [(topic, p) for topic in sorted(members[0].topics) for p in range(partitions.get(topic, 0))],
            assignment,
        )
    else:
        _share_by_subscription(members, partitions, assignment)
    return assignment


def _share_equally(members: Sequence[Subscriber], places: list[TopicIdPartition], assignment: Assignment) -> None:
    least, more = divmod(len(places), len(members))
    assignable = set(places)
    taken: set[TopicIdPartition] = set()
    for member in sorted(members, key=lambda member: (-len(member.owned & assignable), member.member_id)):
        kept = sorted((member.owned & assignable) - taken)
        room = least + (1 if more and len(kept) > least else 0)
        if room > least:
            more -= 1
        assignment[member.member_id].update(kept[:room])
        taken.update(kept[:room])
    free = iter([place for place in places if place not in taken])
    for member in sorted(members, key=lambda member: (len(assignment[member.member_id]), member.member_id)):
        assigned = assignment[member.member_id]
        room = least
        if more and len(assigned) <= least:
            room, more = least + 1, more - 1
        while len(assigned) < room and (place := next(free, None)) is not None:
            assigned.add(place)


def _share_by_subscription(
    members: Sequence[Subscriber], partitions: Mapping[bytes, int], assignment: Assignment
) -> None:
    readers = _readers(sorted(members, key=lambda member: member.member_id))
    owner: dict[TopicIdPartition, str] = {}
    for member in sorted(members, key=lambda member: member.member_id):
        for place in member.owned:
            if place[0] in member.topics and place[1] < partitions.get(place[0], 0) and place not in owner:
                owner[place] = member.member_id
                assignment[member.member_id].add(place)
    places = [(topic, p) for topic in sorted(readers) for p in range(partitions.get(topic, 0))]
    loads = _Loads(readers, assignment)
    # Assign partitions with few readers first; those with many readers then even out the loads.
    for place in sorted(
        (place for place in places if place not in owner), key=lambda place: (len(readers[place[0]]), place)
    ):
        owner[place] = loads.least(place[0])
        assignment[owner[place]].add(place)
    for _ in range(MOST_ROUNDS):
        moved = False
        for place in places:
            source, target = owner[place], loads.least(place[0])
            if len(assignment[source]) - len(assignment[target]) >= 2:
                assignment[source].discard(place)
                assignment[target].add(place)
                loads.became_less(source)
                owner[place] = target
                moved = True
        if not moved or loads.exhausted:
            return


def _readers(members: Sequence[Subscriber]) -> dict[bytes, Sequence[Subscriber]]:
    """The members that read each topic, in the order of `members`; topics with equal readers share a list."""
    kinds: dict[frozenset[bytes], int] = {}
    for member in members:
        kinds.setdefault(member.topics, len(kinds))
    kinds_of: dict[bytes, list[int]] = defaultdict(list)
    for topics, kind in kinds.items():
        for topic in topics:
            kinds_of[topic].append(kind)
    lists: dict[tuple[int, ...], list[Subscriber]] = {}
    readers: dict[bytes, Sequence[Subscriber]] = {}
    for topic, of_topic in kinds_of.items():
        key = tuple(of_topic)
        if key not in lists:
            matching = frozenset(key)
            lists[key] = [member for member in members if kinds[member.topics] in matching]
        readers[topic] = lists[key]
    return readers


class _Loads:
    """Finds the reader of a topic with the fewest partitions, with one heap per set of readers.

    A heap entry may be outdated: the member then has more partitions than the entry states, never fewer. The entry is corrected
    when it reaches the top. If many sets of readers overlap, this costs much time; after MOST_CORRECTIONS the top entry is used
    without correction, and the assignment becomes less even.
    """

    def __init__(self, readers: Mapping[bytes, Sequence[Subscriber]], assignment: Assignment) -> None:
        self._assignment = assignment
        self._left = MOST_CORRECTIONS
        self._heap_of: dict[bytes, list[tuple[int, str]]] = {}
        self._heaps_with: dict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        heaps: dict[int, list[tuple[int, str]]] = {}
        for topic, members in readers.items():
            heap = heaps.get(id(members))
            if heap is None:
                heap = heaps[id(members)] = [
                    (len(assignment[member.member_id]), member.member_id) for member in members
                ]
                heapify(heap)
                for member in members:
                    self._heaps_with[member.member_id].append(heap)
            self._heap_of[topic] = heap

    @property
    def exhausted(self) -> bool:
        """Whether MOST_CORRECTIONS is reached."""
        return self._left <= 0

    def least(self, topic: bytes) -> str:
        """The reader of the topic with the fewest partitions; the smallest id among equals."""
        heap = self._heap_of[topic]
        while True:
            load, member_id = heap[0]
            now = len(self._assignment[member_id])
            if now == load:
                return member_id
            heapreplace(heap, (now, member_id))
            self._left -= 1
            if self._left <= 0:
                return heap[0][1]

    def became_less(self, member_id: str) -> None:
        """Note that a member lost a partition."""
        for heap in self._heaps_with[member_id]:
            heappush(heap, (len(self._assignment[member_id]), member_id))
            self._left -= 1


def assign_range(members: Sequence[Subscriber], partitions: Mapping[bytes, int]) -> Assignment:
    """Give each reader of a topic a range of its partitions; topics with equal partition counts get equal ranges.

    Readers are sorted by instance id, or else member id, so that a reader gets equal partition numbers of several topics.
    """
    assignment: Assignment = {member.member_id: set() for member in members}
    readers = _readers(sorted(members, key=lambda member: member.instance_id or member.member_id))
    for topic, count in partitions.items():
        of_topic = readers.get(topic)
        if not of_topic:
            continue
        least, more = divmod(count, len(of_topic))
        first = 0
        for index, member in enumerate(of_topic[:count]):
            end = first + least + (1 if index < more else 0)
            assignment[member.member_id].update((topic, p) for p in range(first, end))
            first = end
    return assignment


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
