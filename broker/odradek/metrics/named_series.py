"""Which entities have series by name: the largest, as long as they live, up to a bound; the others are shown together.

One a kind of entity (clients, topics, groups), in the reporter. A name that was shown keeps its seat until it is gone, so that
rates are not cut by changing ranks; a seat that came free goes to the largest that has none.
"""

import heapq
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class NamedSeries(Generic[Name]):
    """:param most: how many names there may be. :param names: those that have a seat from before."""

    def __init__(self, most: int, names: Iterable[Name] = ()) -> None:
        self.most = most
        self.names = set(names)

    def update(self, sizes: Mapping[Name, int], idle: Collection[Name] = ()) -> tuple[set[Name], set[Name]]:
        """Settle who is named: (names that came, names that went).

        :param sizes: of all that live; who is not in it is gone.
        :param idle: those that lose their seat if somebody who is not idle needs it.
        """
        gone = {name for name in self.names if name not in sizes}
        self.names -= gone
        waiting = [name for name in sizes if name not in self.names and name not in idle]
        short = len(waiting) - (self.most - len(self.names))
        if short > 0 and idle:
            leaving = heapq.nsmallest(short, self.names & set(idle), key=lambda name: sizes[name])
            gone.update(leaving)
            self.names.difference_update(leaving)
        room = self.most - len(self.names)
        if len(waiting) < room:
            waiting += [name for name in sizes if name in idle and name not in self.names and name not in gone]
        came = set(heapq.nlargest(room, waiting, key=lambda name: sizes[name])) if len(waiting) > room else set(waiting)
        self.names |= came
        return came, gone
