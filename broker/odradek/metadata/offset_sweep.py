"""Deletes offsets of deleted topics from the metadata tree, and groups that have nothing else there.

Used in the controller's thread, in steps of limited length between other requests. Nobody waits for it: `group_offsets` does
not return these offsets. A pass over all groups begins after each start and after each deletion of topics; deletions during a
pass are answered by one more pass. A death loses nothing, because the next start begins a new pass.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.metadata.group_offsets import CONSUMERS, creations
from odradek.metadata.store import Store, delete_nodes, each_child, lowest_nodes, parent_of

STEP = 250
"""Groups, topics of groups and offsets that a step looks at, and nodes that one transaction deletes."""
OF_TOPICS = ("offsets", "owners")
"""Parts of a group's node that have a child for each topic."""
TOPIC_DEPTH = 4
"""Slashes in the path of a topic's node in a group."""
PARTS = 10
"""More children than a group's node has."""


class _Suspect(NamedTuple):
    """A node that belonged to a deleted topic when the walk passed it: the topic's node in a group, or one offset."""

    group: str
    topic: str
    path: str


class OffsetSweep:
    """The passes over the offsets in one store; the first one begins with the first step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = True
        self._walk: Iterator[_Suspect | None] | None = None
        self._left: list[_Suspect] = []

    def request(self) -> None:
        """Topics were deleted: a pass begins after the one in progress."""
        self._due = True

    def step(self) -> bool:
        """Look at the next nodes and delete those of deleted topics. Returns whether there is more to do.

        Raises StoreError; the next step begins a new pass.
        """
        if self._walk is None and not self._left:
            if not self._due:
                return False
            self._due = False
            self._walk = self._nodes()
        try:
            if not self._left:
                self._left = self._look()
            if self._delete(self._left):
                self._left = []
        except BaseException:
            self._due, self._walk, self._left = True, None, []
            raise
        return self._due or self._walk is not None or bool(self._left)

    def _look(self) -> list[_Suspect]:
        assert self._walk is not None
        suspects = []
        for _ in range(STEP):
            try:
                suspect = next(self._walk)
            except StopIteration:
                self._walk = None
                break
            if suspect is not None:
                suspects.append(suspect)
        return suspects

    def _nodes(self) -> Iterator[_Suspect | None]:
        """The suspects of all groups, and None for everything else that was looked at."""
        for group in each_child(self._store, CONSUMERS):
            yield None
            for part in OF_TOPICS:
                for topic in each_child(self._store, f"{CONSUMERS}/{group}/{part}"):
                    yield from self._nodes_of(group, topic, f"{CONSUMERS}/{group}/{part}/{topic}")

    def _nodes_of(self, group: str, topic: str, path: str) -> Iterator[_Suspect | None]:
        created = creations(self._store, [topic])
        stat = self._store.exists(path)
        if stat is None or (topic in created and created[topic] <= stat.created):
            yield None
        elif topic not in created or not stat.children:
            yield _Suspect(group, topic, path)
        else:
            yield None
            for partition in each_child(self._store, path):
                yield _Suspect(group, topic, f"{path}/{partition}")

    def _delete(self, suspects: list[_Suspect]) -> bool:
        """Delete those of the suspects that still belong to a deleted topic, `STEP` nodes at most. Whether that is all.

        Looks at each of them again, because other requests were executed since the walk passed it.
        """
        created = creations(self._store, {suspect.topic for suspect in suspects})
        nodes: list[str] = []
        whole = True
        for suspect, found in zip(suspects, self._store.get_many([one.path for one in suspects]), strict=True):
            if found is None:
                continue
            if suspect.topic not in created:
                nodes += lowest_nodes(self._store, suspect.path, STEP - len(nodes))
                whole = bool(nodes) and nodes[-1] == suspect.path
            elif found[1].modified < created[suspect.topic] and not found[1].children:
                nodes.append(suspect.path)
            if len(nodes) >= STEP:
                whole = False
                break
        delete_nodes(self._store, nodes)
        if nodes:
            self._delete_empty_topics(dict.fromkeys(map(parent_of, nodes)))
            self._delete_empty_groups(dict.fromkeys(suspect.group for suspect in suspects))
        return whole

    def _delete_empty_topics(self, paths: Collection[str]) -> None:
        """Delete those of the topics' nodes in groups that have no offsets any more."""
        topics = [path for path in paths if path.count("/") == TOPIC_DEPTH]
        found = zip(topics, self._store.get_many(topics), strict=True)
        delete_nodes(self._store, [path for path, node in found if node is not None and not node[1].children])

    def _delete_empty_groups(self, groups: Collection[str]) -> None:
        """Delete those of the groups that have no offsets, owners or members any more."""
        nodes: list[str] = []
        for group in groups:
            path = f"{CONSUMERS}/{group}"
            if self._store.exists(path) is None:
                continue
            parts = [f"{path}/{name}" for name in self._store.some_children(path, "", PARTS)]
            found = self._store.get_many(parts)
            if len(parts) < PARTS and not any(part is not None and part[1].children for part in found):
                nodes += [*parts, path]
        delete_nodes(self._store, nodes)
