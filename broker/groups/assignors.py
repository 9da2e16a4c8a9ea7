"""The server-side assignors of KIP-848: who of a group's members gets which partitions. Pure functions.

Both are sticky: a partition stays with its member as long as balance allows, because a move costs a revocation first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Place = tuple[bytes, int]
"""Topic id and partition."""

Assignment = dict[str, set[Place]]


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
    readers: dict[bytes, list[str]] = defaultdict(list)
    for member in sorted(members, key=lambda one: one.member_id):
        for topic in member.topics:
            readers[topic].append(member.member_id)
    owner: dict[Place, str] = {}
    for member in sorted(members, key=lambda one: one.member_id):
        for place in member.owned:
            if place[0] in member.topics and place[1] < partitions.get(place[0], 0) and place not in owner:
                owner[place] = member.member_id
                found[member.member_id].add(place)
    places = [(topic, p) for topic in sorted(readers) for p in range(partitions.get(topic, 0))]
    # Those that few can take go first, so that what many can take evens out the rest.
    for place in sorted((one for one in places if one not in owner), key=lambda one: (len(readers[one[0]]), one)):
        member_id = min(readers[place[0]], key=lambda one: (len(found[one]), one))
        found[member_id].add(place)
        owner[place] = member_id
    moved = True
    while moved:
        moved = False
        for place in places:
            source = owner[place]
            target = min(readers[place[0]], key=lambda one: (len(found[one]), one))
            if len(found[source]) - len(found[target]) >= 2:
                found[source].discard(place)
                found[target].add(place)
                owner[place] = target
                moved = True


def assign_range(members: Sequence[Subscriber], partitions: Mapping[bytes, int]) -> Assignment:
    """Neighbouring partitions of each topic for each of its readers, the same numbers of topics with as many partitions.

    Readers stand in the order of their instance ids, or member ids, so that equal partitions of several topics meet.
    """
    found: Assignment = {member.member_id: set() for member in members}
    ordered = sorted(members, key=lambda one: one.instance_id or one.member_id)
    for topic, count in partitions.items():
        readers = [member for member in ordered if topic in member.topics]
        if not readers:
            continue
        least, more = divmod(count, len(readers))
        first = 0
        for index, member in enumerate(readers):
            end = first + least + (1 if index < more else 0)
            found[member.member_id].update((topic, p) for p in range(first, end))
            first = end
    return found


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
