"""What the metadata store says of all topics, in memory.

Read by the first loader when the broker starts, and by the coordinator when it becomes controller, which then keeps its
copy up to date with every change that it has made durable. One thread a process uses it.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek.controller.topic_names import folded
from odradek.metadata import znodes
from odradek.metadata.store import Store
from odradek.metadata.znodes import PartitionState, TopicAssignment


@dataclass
class Topic:
    """A topic as the store has it: its assignment, its own settings, and the version of the assignment's node."""

    name: str
    assignment: TopicAssignment
    config: dict[str, str]
    version: int = 0

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id; None only for topics that Kafka made before 2.8."""
        return self.assignment.topic_id


@dataclass
class ClusterImage:
    """All topics by name and by id, and the names of those whose deletion has begun.

    :param by_folded_name: the names by what metrics make of them; see `folded`.
    """

    topics: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    by_folded_name: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "ClusterImage":
        """The same topics in an image of its own."""
        return ClusterImage(dict(self.topics), dict(self.by_id), set(self.deleting), dict(self.by_folded_name))

    def colliding(self, name: str) -> str | None:
        """An existing topic that differs from `name` only in dots and underscores, which metrics cannot tell apart."""
        other = self.by_folded_name.get(folded(name))
        return other if other != name else None

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace the one of that name."""
        self.remove(topic.name)
        self.topics[topic.name] = topic
        self.by_folded_name[folded(topic.name)] = topic.name
        if topic.topic_id is not None:
            self.by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Forget a topic, also that it was being deleted; nothing if there is none."""
        old = self.topics.pop(name, None)
        if old is not None and old.topic_id is not None:
            del self.by_id[old.topic_id]
        if old is not None and self.by_folded_name.get(folded(name)) == name:
            del self.by_folded_name[folded(name)]
        self.deleting.discard(name)


def load_image(store: Store) -> ClusterImage:
    """All of it from the store. Raises CorruptNode, StoreUnavailable."""
    image = ClusterImage()
    names = store.children(znodes.TOPICS)
    assignments = store.get_many([znodes.topic_path(name) for name in names])
    configs = store.get_many([znodes.topic_config_path(name) for name in names])
    for name, found, config in zip(names, assignments, configs, strict=True):
        if found is not None:
            settings = znodes.decode_config(znodes.topic_config_path(name), config[0]) if config else {}
            image.put(Topic(name, znodes.decode_topic(name, found[0]), settings, found[1].version))
    image.deleting.update(store.children(znodes.DELETE_TOPICS))
    return image


def load_states(
    store: Store, topics: Iterable[tuple[str, Sequence[int]]]
) -> dict[tuple[str, int], tuple[PartitionState, int]]:
    """Leader, in-sync replicas and partition epoch (the node's version) of the partitions given by topic.

    A partition whose state is not written yet is left out. Raises CorruptNode, StoreUnavailable.
    """
    wanted = [(name, partition) for name, partitions in topics for partition in partitions]
    found = store.get_many([znodes.state_path(name, partition) for name, partition in wanted])
    decoded: dict[bytes, PartitionState] = {}  # of thousands of states most are the same
    states = {}
    for (name, partition), node in zip(wanted, found, strict=True):
        if node is not None:
            data, stat = node
            state = decoded.get(data)
            if state is None:
                state = decoded[data] = znodes.decode_state(name, partition, data)
            states[name, partition] = (state, stat.version)
    return states
