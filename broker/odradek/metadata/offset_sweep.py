"""Deletes offsets of deleted topics from the metadata tree, and groups without any other content there.

Runs in the store thread, in steps of limited length between other requests. No request waits for it: `group_offsets` does
not return these offsets. A pass over all groups begins after each start and after each deletion of topics; deletions during a
pass cause one more pass. If the process dies, the next start begins a new pass.

In a cluster, only the controller does this. Old consumers and other brokers change the same nodes meanwhile: a node that was
changed since it was examined is not deleted, and ephemeral nodes are left to the sessions of their consumers.
"""

import logging
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.metadata.group_offsets import CONSUMERS, creations
from odradek.metadata.store import NodeError, PresentNode, Store, delete_nodes, each_child, lowest_nodes, parent_of

log = logging.getLogger("odradek.controller")

STEP_S = 0.02
"""The time in seconds after which a step examines no more nodes: with ZooKeeper, each node costs a few round trips."""
ATTEMPTS = 20
"""The maximum number of attempts of a pass to delete nodes that other clients change meanwhile."""
STEP = 250
"""The maximum number of groups, topics of groups and offsets that a step examines, and of nodes that a transaction deletes."""
OF_TOPICS = ("offsets", "owners")
"""The children of a group's node that have a child for each topic."""
TOPIC_DEPTH = 4
"""The number of slashes in the path of a topic's node in a group."""
PARTS = 10
"""A number that exceeds the number of children of a group's node."""


class _Suspect(NamedTuple):
    """A node that belonged to a deleted topic when the walk examined it: a topic's node in a group, or an offset."""

    group: str
    topic: str
    path: str


class OffsetSweep:
    """The passes over the offsets in one store; the first pass begins with the first step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due = True
        self._walk: Iterator[_Suspect | None] | None = None
        self._left: list[_Suspect] = []
        self._failures = 0  # of the deletion of the suspects that are left

    def request(self) -> None:
        """Request a pass after the current one, because topics were deleted."""
        self._due = True

    def step(self) -> bool:
        """Examine the next nodes and delete those of deleted topics. Returns whether work remains.

        Raises StoreError; the next step begins a new pass.
        """
        if self._walk is None and not self._left:
            if not self._due:
                return False
            self._due = False
            self._walk = self._nodes()
        try:
            if not self._left:
                self._left = self._find_suspects()
            if self._delete_left():
                self._left, self._failures = [], 0
        except BaseException:
            self._due, self._walk, self._left = True, None, []
            raise
        return self._due or self._walk is not None or bool(self._left)

    def _find_suspects(self) -> list[_Suspect]:
        assert self._walk is not None
        suspects: list[_Suspect] = []
        end = time.monotonic() + STEP_S
        for number in range(STEP):
            if number and time.monotonic() >= end:
                break
            try:
                suspect = next(self._walk)
            except StopIteration:
                self._walk = None
                break
            if suspect is not None:
                suspects.append(suspect)
        return suspects

    def _nodes(self) -> Iterator[_Suspect | None]:
        """Yield the suspects of all groups, and None for every other node that was examined."""
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

    def _delete_left(self) -> bool:
        """`_delete` for the suspects that are left, again in the next step if another client changes their nodes meanwhile."""
        try:
            return self._delete(self._left)
        except NodeError as error:
            self._failures += 1
            if self._failures < ATTEMPTS:
                return False
            log.info(
                "offsets of deleted topics remain in the metadata tree, because other clients change them: %s; the next pass"
                " over all groups, after a deletion of topics or a start, examines them again",
                error,
            )
            return True

    def _delete(self, suspects: list[_Suspect]) -> bool:
        """Delete the suspects that still belong to a deleted topic, at most `STEP` nodes. Returns whether none remains.

        Checks each suspect again, because other requests were executed since the walk examined it.
        """
        created = creations(self._store, {suspect.topic for suspect in suspects})
        nodes: list[PresentNode] = []
        complete = True
        present = self._store.get_many([suspect.path for suspect in suspects])
        for suspect, node in zip(suspects, present, strict=True):
            if node is None:
                continue
            if suspect.topic not in created:
                lowest = lowest_nodes(self._store, suspect.path, STEP - len(nodes))
                if any(found.stat.owner for found in lowest):
                    continue
                nodes += lowest
                complete = bool(lowest) and lowest[-1].path == suspect.path
            elif node[1].modified < created[suspect.topic] and not node[1].children and not node[1].owner:
                nodes.append(PresentNode(suspect.path, node[1]))
            if len(nodes) >= STEP:
                complete = False
                break
        delete_nodes(self._store, nodes)
        if nodes:
            self._delete_empty_topics(dict.fromkeys(parent_of(path) for path, _ in nodes))
            self._delete_empty_groups(dict.fromkeys(suspect.group for suspect in suspects))
        return complete

    def _delete_empty_topics(self, paths: Collection[str]) -> None:
        """Delete the nodes of topics in groups that have no offsets left."""
        topics = [path for path in paths if path.count("/") == TOPIC_DEPTH]
        nodes = zip(topics, self._store.get_many(topics), strict=True)
        self._delete_unused(
            [[PresentNode(path, node[1])] for path, node in nodes if node is not None and not node[1].children]
        )

    def _delete_empty_groups(self, groups: Collection[str]) -> None:
        """Delete the groups that have no offsets, owners or members left."""
        unused: list[list[PresentNode]] = []
        for group in groups:
            path = f"{CONSUMERS}/{group}"
            stat = self._store.exists(path)
            if stat is None or stat.children >= PARTS:
                continue
            parts = [f"{path}/{name}" for name in self._store.some_children(path, "", PARTS)]
            found = zip(parts, self._store.get_many(parts), strict=True)
            nodes = [PresentNode(part, node[1]) for part, node in found if node is not None]
            if not any(node.stat.children for node in nodes):
                unused.append([*nodes, PresentNode(path, stat)])
        self._delete_unused(unused)

    def _delete_unused(self, unused: list[list[PresentNode]]) -> None:
        """Delete nodes that have no content, except those that other clients have begun to use; each list as a whole."""
        try:
            delete_nodes(self._store, [node for nodes in unused for node in nodes])
        except NodeError:
            for nodes in unused:
                try:
                    delete_nodes(self._store, nodes)
                except NodeError:
                    pass  # it is in use, or already deleted
