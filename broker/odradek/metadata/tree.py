"""The state of a cluster as ZooKeeper has it: brokers, controller, topics and partitions. Reads only."""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.metadata import znodes
from odradek.metadata.store import NoNode, Store
from odradek.metadata.znodes import PartitionState


class TreePartition(NamedTuple):
    """A partition. ``state``: None if it has no node; ``partition_epoch``: the version of that node."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    state: PartitionState | None
    partition_epoch: int


class TreeTopic(NamedTuple):
    """A topic. ``topic_id``: None for topics of Kafka before 2.8. ``deleting``: its deletion is requested."""

    topic_id: bytes | None
    deleting: bool
    partitions: Mapping[int, TreePartition]


class ClusterTree(NamedTuple):
    """``brokers``: the ids of the registered ones. ``controller``: None if there is none."""

    brokers: frozenset[int]
    controller: int | None
    topics: Mapping[str, TreeTopic]


class NoTree(Exception):
    """There is no cluster at this place in ZooKeeper; one line."""


def read_tree(store: Store, root: str) -> ClusterTree:
    """Read the tree. It is read in several steps, so it may contain parts of different times.

    :param root: the path of the cluster's nodes, empty for ZooKeeper's root. Raises NoTree, StoreError.
    """
    try:
        ids = store.children(root + znodes.BROKER_IDS)
        names = sorted(store.children(root + znodes.TOPICS))
    except NoNode as error:
        raise NoTree(f"ZooKeeper has no cluster at {root or '/'}: {error}") from None
    try:
        deleting = set(store.children(root + znodes.DELETE_TOPICS))
    except NoNode:
        deleting = set()
    (controller,) = store.get_many([root + znodes.CONTROLLER])
    nodes = store.get_many([root + znodes.topic_path(name) for name in names])
    topics = {
        name: znodes.decode_topic(name, node[0]) for name, node in zip(names, nodes, strict=True) if node is not None
    }
    places = [(name, index) for name, topic in topics.items() for index in sorted(topic.partitions)]
    states = store.get_many([root + znodes.state_path(name, index) for name, index in places])
    partitions: dict[str, dict[int, TreePartition]] = {name: {} for name in topics}
    for (name, index), node in zip(places, states, strict=True):
        topic = topics[name]
        partitions[name][index] = TreePartition(
            tuple(topic.partitions[index]),
            tuple(topic.adding.get(index, ())),
            tuple(topic.removing.get(index, ())),
            None if node is None else znodes.decode_state(name, index, node[0]),
            -1 if node is None else node[1].version,
        )
    return ClusterTree(
        frozenset(int(node) for node in ids),
        None if controller is None else znodes.decode_controller(controller[0]),
        {
            name: TreeTopic(
                None if topic.topic_id is None else topic.topic_id.bytes, name in deleting, partitions[name]
            )
            for name, topic in topics.items()
        },
    )
