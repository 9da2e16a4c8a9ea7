"""Committed offsets in the metadata tree, where groups kept them before Kafka 0.9.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as decimal text. Used in the controller's thread. A consumer
of that time registers itself as a child of `/consumers/<group>/ids`. Offsets here do not expire; they are deleted with their
topic or their group.

The number of groups has no limit, so that a deletion of a topic does not look for its offsets. An offset counts only if its
topic exists and is not newer than the offset, by the transactions that wrote the two nodes; `offset_sweep` deletes the other
offsets later. Long work is done in portions (see docs/decisions/0026-offsets-in-the-tree.md), each in one transaction: what a
portion does is durable, and done wholly or not at all.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

from odradek.metadata import znodes
from odradek.metadata.store import Store, delete_some, each_child

CONSUMERS = "/consumers"
PORTION = 250
"""Offsets that are read or written in one step."""

Place = tuple[str, int]


def may_be_in_tree(name: str) -> bool:
    """Whether a group's id, or a topic's name, can be the name of a node."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def offset_path(group_id: str, topic: str, partition: int) -> str:
    """The node of one offset."""
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def portions(places: Iterable[Place]) -> Iterator[list[Place]]:
    """The places in lists of `PORTION`; the last list has the rest, which may be empty."""
    portion: list[Place] = []
    for place in places:
        portion.append(place)
        if len(portion) == PORTION:
            yield portion
            portion = []
    yield portion


def read(store: Store, group_id: str, places: Sequence[Place]) -> dict[Place, int]:
    """The offsets of a portion that exist. Data that is not a number is left out. Raises StoreError."""
    places = [place for place in places if may_be_in_tree(place[0])]
    created = creations(store, {topic for topic, _ in places})
    found = store.get_many([offset_path(group_id, topic, partition) for topic, partition in places])
    offsets = {}
    for place, node in zip(places, found, strict=True):
        if node is not None and place[0] in created and created[place[0]] <= node[1].modified:
            text = node[0].decode("ascii", "replace").strip()
            if text.removeprefix("-").isdigit():
                offsets[place] = int(text)
    return offsets


def creations(store: Store, topics: Collection[str]) -> dict[str, int]:
    """The transactions that created these topics, without topics that do not exist. Raises StoreError."""
    found = store.get_many([znodes.topic_path(topic) for topic in topics])
    return {topic: node[1].created for topic, node in zip(topics, found, strict=True) if node is not None}


def read_in_steps(store: Store, group_id: str, places: Iterable[Place]) -> Generator[None, None, dict[Place, int]]:
    """`read` for any number of places; yields between two portions."""
    offsets: dict[Place, int] = {}
    for number, portion in enumerate(portions(places)):
        if number:
            yield
        offsets |= read(store, group_id, portion)
    return offsets


def write(store: Store, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Store the offsets of a portion in one transaction: all of them are durable when this returns.

    `/consumers` exists in every cluster. Raises StoreError; then none of them is stored.
    """
    if not offsets:
        return
    data = {offset_path(group_id, *place): str(offset).encode() for place, offset in offsets.items()}
    group = f"{CONSUMERS}/{group_id}"
    above = [group, f"{group}/offsets"]
    above += [f"{group}/offsets/{topic}" for topic in dict.fromkeys(topic for topic, _ in offsets)]
    transaction = store.transaction()
    for path, node in zip(above, store.get_many(above), strict=True):
        if node is None:
            transaction.create(path)
    for (path, text), node in zip(data.items(), store.get_many(list(data)), strict=True):
        if node is None:
            transaction.create(path, text)
        else:
            transaction.set(path, text)
    transaction.commit()


def groups(store: Store, after: str = "", most: int = PORTION) -> list[str]:
    """The names of up to `most` groups in the tree, sorted, beginning with the first name above `after`. Raises StoreError."""
    return store.some_children(CONSUMERS, after, most)


def describe(store: Store, group_id: str) -> Generator[None, None, dict[Place, int]]:
    """All offsets of a group; yields between two portions. Raises StoreError."""
    return (yield from read_in_steps(store, group_id, _places(store, group_id)))


def _places(store: Store, group_id: str) -> Iterator[Place]:
    root = f"{CONSUMERS}/{group_id}/offsets"
    for topic in each_child(store, root):
        for partition in each_child(store, f"{root}/{topic}"):
            if partition.isdigit():
                yield topic, int(partition)


def has_members(store: Store, group_id: str) -> bool:
    """Whether consumers of the group are registered in the tree. Raises StoreError."""
    return any(each_child(store, f"{CONSUMERS}/{group_id}/ids", 1))


def delete_group(store: Store, group_id: str) -> Generator[None, None, bool]:
    """Delete a group from the tree; returns whether there was one. Yields between two portions. Raises StoreError."""
    path = f"{CONSUMERS}/{group_id}"
    found = store.exists(path) is not None
    while found and not delete_some(store, path, PORTION):
        yield
    return found
