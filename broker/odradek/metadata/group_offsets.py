"""Committed offsets in the metadata tree, where groups kept them before Kafka 0.9.

The node `/consumers/<group>/offsets/<topic>/<partition>` contains the offset as decimal text. Used in the store thread.
Old consumers register themselves as children of `/consumers/<group>/ids`. Offsets in the tree do not expire; they are
deleted with their topic or their group.

The number of groups has no limit, so the deletion of a topic does not search for its offsets. An offset is valid only if its
topic exists and is not newer than the offset, according to the transactions that wrote the two nodes; `offset_sweep` deletes
the other offsets later. Long work is done in portions (see docs/decisions/0026-offsets-in-the-tree.md). Each portion is one
transaction: it is durable, and takes effect completely or not at all.

In a cluster, the consumers of Kafka 0.8 and the other brokers write to these nodes, too. So a portion that meets a node that
another client has just created, changed or deleted is read and written again.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

from odradek.metadata import znodes
from odradek.metadata.store import NodeError, Store, delete_some, each_child
from odradek.topic_partition import TopicPartition

CONSUMERS = "/consumers"
PORTION = 250
"""The maximum number of offsets that are read or written in one step."""
ATTEMPTS = 20
"""The maximum number of attempts to write or delete a portion whose nodes other clients change meanwhile."""


def may_be_in_tree(name: str) -> bool:
    """Whether a group id or a topic name can be the name of a node."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def offset_path(group_id: str, topic: str, partition: int) -> str:
    """The path of the node of one offset."""
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def portions(places: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """The places in lists of length `PORTION`; the last list contains the rest, which may be empty."""
    portion: list[TopicPartition] = []
    for place in places:
        portion.append(place)
        if len(portion) == PORTION:
            yield portion
            portion = []
    yield portion


def read(store: Store, group_id: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The valid offsets of a portion. Nodes whose data is not a number are skipped. Raises StoreError."""
    places = [place for place in places if may_be_in_tree(place[0])]
    created = creations(store, {topic for topic, _ in places})
    nodes = store.get_many([offset_path(group_id, topic, partition) for topic, partition in places])
    offsets = {}
    for place, node in zip(places, nodes, strict=True):
        if node is not None and place[0] in created and created[place[0]] <= node[1].modified:
            text = node[0].decode("ascii", "replace").strip()
            if text.removeprefix("-").isdigit():
                offsets[place] = int(text)
    return offsets


def creations(store: Store, topics: Collection[str]) -> dict[str, int]:
    """The number of the transaction that created each of these topics that exist. Raises StoreError."""
    nodes = store.get_many([znodes.topic_path(topic) for topic in topics])
    return {topic: node[1].created for topic, node in zip(topics, nodes, strict=True) if node is not None}


def read_in_steps(
    store: Store, group_id: str, places: Iterable[TopicPartition]
) -> Generator[None, None, dict[TopicPartition, int]]:
    """`read` for any number of places; yields between two portions."""
    offsets: dict[TopicPartition, int] = {}
    for number, portion in enumerate(portions(places)):
        if number:
            yield
        offsets |= read(store, group_id, portion)
    return offsets


def write(store: Store, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Store the offsets of a portion in one transaction; all are durable when this returns.

    The node `/consumers` exists in every cluster. Raises StoreError; then no offset is stored.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _write_once(store, group_id, offsets)
        except NodeError:
            pass  # another client created or deleted a node: the next attempt sees it
    return _write_once(store, group_id, offsets)


def _write_once(store: Store, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    if not offsets:
        return
    data = {offset_path(group_id, *place): str(offset).encode() for place, offset in offsets.items()}
    group = f"{CONSUMERS}/{group_id}"
    parents = [group, f"{group}/offsets"]
    parents += [f"{group}/offsets/{topic}" for topic in dict.fromkeys(topic for topic, _ in offsets)]
    transaction = store.transaction()
    for path, node in zip(parents, store.get_many(parents), strict=True):
        if node is None:
            transaction.create(path)
    for (path, text), node in zip(data.items(), store.get_many(list(data)), strict=True):
        if node is None:
            transaction.create(path, text)
        else:
            transaction.set(path, text)
    transaction.commit()


def groups(store: Store, after: str = "", limit: int = PORTION) -> list[str]:
    """The names of up to `limit` groups in the tree that are greater than `after`, sorted. Raises StoreError."""
    return store.some_children(CONSUMERS, after, limit)


def describe(store: Store, group_id: str) -> Generator[None, None, dict[TopicPartition, int]]:
    """All offsets of a group; yields between two portions. Raises StoreError."""
    return (yield from read_in_steps(store, group_id, _places(store, group_id)))


def _places(store: Store, group_id: str) -> Iterator[TopicPartition]:
    root = f"{CONSUMERS}/{group_id}/offsets"
    for topic in each_child(store, root):
        for partition in each_child(store, f"{root}/{topic}"):
            if partition.isdigit():
                yield topic, int(partition)


def has_members(store: Store, group_id: str) -> bool:
    """Whether consumers of the group are registered in the tree. Raises StoreError."""
    return any(each_child(store, f"{CONSUMERS}/{group_id}/ids", 1))


def delete_group(store: Store, group_id: str) -> Generator[None, None, bool]:
    """Delete a group from the tree; return whether it existed. Yields between two portions. Raises StoreError."""
    path = f"{CONSUMERS}/{group_id}"
    existed = store.exists(path) is not None
    failures = 0
    complete = not existed
    while not complete:
        try:
            complete = delete_some(store, path, PORTION)
        except NodeError:
            failures += 1  # another client changed a node
            if failures == ATTEMPTS:
                raise
        if not complete:
            yield
    return existed
