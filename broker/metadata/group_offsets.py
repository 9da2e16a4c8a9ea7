"""Committed offsets in the metadata tree, where groups kept them before Kafka 0.9.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as decimal text. Used in the controller's thread. A consumer
of that time registers itself as a child of `/consumers/<group>/ids`. Offsets here do not expire; they are deleted with their
topic or their group.
"""

from collections.abc import Collection, Mapping, Sequence

from broker.metadata.store import NoNode, Store, delete_tree, ensure_path

CONSUMERS = "/consumers"
OF_TOPICS = ("offsets", "owners")
"""Parts of a group's node that have a child for each topic."""

Place = tuple[str, int]


def may_be_in_tree(group_id: str) -> bool:
    """Whether a group's id can be the name of a node."""
    return group_id not in ("", ".", "..") and "/" not in group_id and "\0" not in group_id


def offset_path(group_id: str, topic: str, partition: int) -> str:
    """The node of one offset."""
    return f"{CONSUMERS}/{group_id}/offsets/{topic}/{partition}"


def read(store: Store, group_id: str, places: Sequence[Place]) -> dict[Place, int]:
    """The offsets that are there; what is no number is left out. Raises StoreError."""
    found = store.get_many([offset_path(group_id, topic, partition) for topic, partition in places])
    offsets = {}
    for place, node in zip(places, found, strict=True):
        if node is not None:
            text = node[0].decode("ascii", "replace").strip()
            if text.removeprefix("-").isdigit():
                offsets[place] = int(text)
    return offsets


def write(store: Store, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Keep these offsets. Raises StoreError; those before the one that failed are kept."""
    for (topic, partition), offset in offsets.items():
        path, data = offset_path(group_id, topic, partition), str(offset).encode()
        ensure_path(store, path)
        store.set(path, data)


def groups(store: Store) -> list[str]:
    """The names of all groups in the tree, sorted. Raises StoreError."""
    return _children(store, CONSUMERS)


def describe(store: Store, group_id: str) -> dict[Place, int]:
    """All offsets of a group. Raises StoreError."""
    root = f"{CONSUMERS}/{group_id}/offsets"
    return read(
        store,
        group_id,
        [
            (topic, int(partition))
            for topic in _children(store, root)
            for partition in _children(store, f"{root}/{topic}")
            if partition.isdigit()
        ],
    )


def has_members(store: Store, group_id: str) -> bool:
    """Whether consumers of the group are registered in the tree. Raises StoreError."""
    return bool(_children(store, f"{CONSUMERS}/{group_id}/ids"))


def delete_group(store: Store, group_id: str) -> bool:
    """Delete a group from the tree; whether there was one. Raises StoreError."""
    path = f"{CONSUMERS}/{group_id}"
    found = store.exists(path) is not None
    delete_tree(store, path)
    return found


def delete_topics(store: Store, topics: Collection[str]) -> None:
    """Delete what groups have of these topics, and groups that have nothing else; may be repeated. Raises StoreError."""
    names = groups(store)
    for topic in topics if names else ():
        paths = [f"{CONSUMERS}/{name}/{part}/{topic}" for name in names for part in OF_TOPICS]
        present = [path for path, node in zip(paths, store.get_many(paths), strict=True) if node is not None]
        for path in present:
            delete_tree(store, path)
        for name in dict.fromkeys(path.split("/")[2] for path in present):
            _delete_if_empty(store, name)


def _delete_if_empty(store: Store, group_id: str) -> None:
    path = f"{CONSUMERS}/{group_id}"
    parts = _children(store, path)
    if not any(_children(store, f"{path}/{part}") for part in parts):
        delete_tree(store, path)


def _children(store: Store, path: str) -> list[str]:
    try:
        return store.children(path)
    except NoNode:
        return []
