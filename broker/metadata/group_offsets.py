"""Committed offsets in the metadata tree, where groups kept them before Kafka 0.9.

`/consumers/<group>/offsets/<topic>/<partition>` holds the offset as decimal text. Used in the controller's thread.
"""

from collections.abc import Mapping, Sequence

from broker.metadata.store import Store, ensure_path

CONSUMERS = "/consumers"

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
            if text.lstrip("-").isdigit():
                offsets[place] = int(text)
    return offsets


def write(store: Store, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Keep these offsets. Raises StoreError; those before the one that failed are kept."""
    for (topic, partition), offset in offsets.items():
        path, data = offset_path(group_id, topic, partition), str(offset).encode()
        ensure_path(store, path)
        store.set(path, data)
