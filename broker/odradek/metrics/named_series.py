"""Limits the number of series: the largest entities have separate series, up to a maximum; all others are shown together.

One object per kind of entity (clients, topics, groups), in the reporter. An entity keeps its series until it is removed, so
that changing ranks do not interrupt rates; a series that becomes free goes to the largest entity without one.
"""

import heapq
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class NamedSeries(Generic[Name]):
    """The names that have series. :param most: maximum number of names. :param names: names that already have series."""

    def __init__(self, most: int, names: Iterable[Name] = ()) -> None:
        self.most = most
        self.names = set(names)

    def update(self, sizes: Mapping[Name, int], idle: Collection[Name] = ()) -> tuple[set[Name], set[Name]]:
        """Choose the names that have series; return (added names, removed names).

        :param sizes: the sizes of all existing entities; an entity that is not in it is removed.
        :param idle: entities that lose their series if an entity that is not idle needs it.
        """
        removed = {name for name in self.names if name not in sizes}
        self.names -= removed
        waiting = [name for name in sizes if name not in self.names and name not in idle]
        short = len(waiting) - (self.most - len(self.names))
        if short > 0 and idle:
            leaving = heapq.nsmallest(short, self.names & set(idle), key=lambda name: sizes[name])
            removed.update(leaving)
            self.names.difference_update(leaving)
        room = self.most - len(self.names)
        if len(waiting) < room:
            waiting += [name for name in sizes if name in idle and name not in self.names and name not in removed]
        added = (
            set(heapq.nlargest(room, waiting, key=lambda name: sizes[name])) if len(waiting) > room else set(waiting)
        )
        self.names |= added
        return added, removed
