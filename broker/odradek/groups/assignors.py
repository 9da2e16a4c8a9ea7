"""The server-side assignors of KIP-848: who of a group's members gets which partitions. Pure functions.

Both are sticky: a partition stays with its member as long as balance allows, because a move costs a revocation first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from typing import NamedTuple

Place = tuple[bytes, int]
"""Topic id and partition."""

Assignment = dict[str, set[Place]]

MOST_ROUNDS = 20
"""In which partitions are moved from members with many to members with few."""
MOST_CORRECTIONS = 100_000
"""Of what heaps say of members' loads, in one assignment."""


class Subscriber(NamedTuple):
    """A member as assignors see it. :param topics: ids. :param owned: its present target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    owned: frozenset[Place]


Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], Assignment]


def assign_uniform(members: Sequence[Subscriber], partitions: Mapping[bytes, int]) -> Assignment:
    """As many partitions for each member as for any other that could take them, give or take one.

    :param partitions: how many partitions each topic has, by id.
    """
    found: Assignment = {member.member_id: set() for member in members}
    if not members:
        return found
    if len({member.topics for member in members}) == 1:
        _share_equally(
            members, [(one, p) for one in sorted(members[0].topics) for p in range(partitions.get(one, 0))], found
        )
    else:
        _share_by_subscription(members, partitions, found)
    return found


def _share_equally(members: Sequence[Subscriber], places: list[Place], found: Assignment) -> None:
    least, more = divmod(len(places), len(members))
    wanted = set(places)
    taken: set[Place] = set()
    for member in sorted(members, key=lambda one: (-len(one.owned & wanted), one.member_id)):
        kept = sorted((member.owned & wanted) - taken)
        room = least + (1 if more and len(kept) > least else 0)
        if room > least:
            more -= 1
        found[member.member_id].update(kept[:room])
        taken.update(kept[:room])
    free = iter([place for place in places if place not in taken])
    for member in sorted(members, key=lambda one: (len(found[one.member_id]), one.member_id)):
        mine = found[member.member_id]
        room = least
        if more and len(mine) <= least:
            room, more = least + 1, more - 1
        while len(mine) < room and (place := next(free, None)) is not None:
            mine.add(place)


def _share_by_subscription(members: Sequence[Subscriber], partitions: Mapping[bytes, int], found: Assignment) -> None:
    readers = _readers(sorted(members, key=lambda one: one.member_id))
    owner: dict[Place, str] = {}
    for member in sorted(members, key=lambda one: one.member_id):
        for place in member.owned:
            if place[0] in member.topics and place[1] < partitions.get(place[0], 0) and place not in owner:
                owner[place] = member.member_id
                found[member.member_id].add(place)
    places = [(topic, p) for topic in sorted(readers) for p in range(partitions.get(topic, 0))]
    loads = _Loads(readers, found)
    # Those that few can take go first, so that what many can take evens out the rest.
    for place in sorted((one for one in places if one not in owner), key=lambda one: (len(readers[one[0]]), one)):
        owner[place] = loads.least(place[0])
        found[owner[place]].add(place)
    for _ in range(MOST_ROUNDS):
        moved = False
        for place in places:
            source, target = owner[place], loads.least(place[0])
            if len(found[source]) - len(found[target]) >= 2:
                found[source].discard(place)
                found[target].add(place)
                loads.became_less(source)
                owner[place] = target
                moved = True
        if not moved or loads.exhausted:
            return


def _readers(members: Sequence[Subscriber]) -> dict[bytes, Sequence[Subscriber]]:
    """The members that read each topic, in their order; the same list for topics that the same members read."""
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
            wanted = frozenset(key)
            lists[key] = [member for member in members if kinds[member.topics] in wanted]
        readers[topic] = lists[key]
    return readers


class _Loads:
    """The member with the fewest partitions among the readers of a topic, by a heap for each set of readers.

    An entry of a heap may be out of date: a member has more partitions than it says, never fewer. It is put right when it comes
    up. Where very many sets of readers overlap that is much work; once it is too much, the first entry is taken as it
    is, and the assignment is less even.
    """

    def __init__(self, readers: Mapping[bytes, Sequence[Subscriber]], found: Assignment) -> None:
        self._found = found
        self._left = MOST_CORRECTIONS
        self._heap_of: dict[bytes, list[tuple[int, str]]] = {}
        self._heaps_with: dict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        heaps: dict[int, list[tuple[int, str]]] = {}
        for topic, members in readers.items():
            heap = heaps.get(id(members))
            if heap is None:
                heap = heaps[id(members)] = [(len(found[one.member_id]), one.member_id) for one in members]
                heapify(heap)
                for one in members:
                    self._heaps_with[one.member_id].append(heap)
            self._heap_of[topic] = heap

    @property
    def exhausted(self) -> bool:
        """Whether it was too much work."""
        return self._left <= 0

    def least(self, topic: bytes) -> str:
        """The reader of the topic with the fewest partitions; of those with as few the first by its id."""
        heap = self._heap_of[topic]
        while True:
            load, member_id = heap[0]
            now = len(self._found[member_id])
            if now == load:
                return member_id
            heapreplace(heap, (now, member_id))
            self._left -= 1
            if self._left <= 0:
                return heap[0][1]

    def became_less(self, member_id: str) -> None:
        """A member has given up a partition."""
        for heap in self._heaps_with[member_id]:
            heappush(heap, (len(self._found[member_id]), member_id))
            self._left -= 1


def assign_range(members: Sequence[Subscriber], partitions: Mapping[bytes, int]) -> Assignment:
    """Neighbouring partitions of each topic for each of its readers, the same numbers of topics with as many partitions.

    Readers stand in the order of their instance ids, or member ids, so that equal partitions of several topics meet.
    """
    found: Assignment = {member.member_id: set() for member in members}
    readers = _readers(sorted(members, key=lambda one: one.instance_id or one.member_id))
    for topic, count in partitions.items():
        of_topic = readers.get(topic)
        if not of_topic:
            continue
        least, more = divmod(count, len(of_topic))
        first = 0
        for index, member in enumerate(of_topic[:count]):
            end = first + least + (1 if index < more else 0)
            found[member.member_id].update((topic, p) for p in range(first, end))
            first = end
    return found


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
