"""The metadata of all topics in memory, loaded from the metadata store.

The first loader reads it when the broker starts. The coordinator reads it when it becomes the controller, and then updates its
copy after every change that it has stored. One thread per process uses it.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek.controller.topic_names import folded
from odradek.metadata import znodes
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.store import Store
from odradek.metadata.znodes import PartitionState, TopicAssignment
from odradek.topic_partition import TopicPartition


@dataclass
class Topic:
    """A topic in the store: its assignment, its settings, and the version of the node with the assignment."""

    name: str
    assignment: TopicAssignment
    config: dict[str, str]
    version: int = 0

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic id; None only for topics that Kafka before 2.8 created."""
        return self.assignment.topic_id


@dataclass
class ClusterImage:
    """All topics by name and by id, and the names of the topics whose deletion has begun.

    :param by_folded_name: topic names by the form in which metrics contain them, see `folded`.
    """

    topics: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    by_folded_name: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "ClusterImage":
        """A copy that can be changed independently; it shares the topics."""
        return ClusterImage(dict(self.topics), dict(self.by_id), set(self.deleting), dict(self.by_folded_name))

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs from `name` only in dots and underscores, which are equal in metrics; else None."""
        topic = self.by_folded_name.get(folded(name))
        return topic if topic != name else None

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace the topic of that name."""
        self.remove(topic.name)
        self.topics[topic.name] = topic
        self.by_folded_name[folded(topic.name)] = topic.name
        if topic.topic_id is not None:
            self.by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Remove a topic and its deletion mark, if it exists."""
        old = self.topics.pop(name, None)
        if old is not None and old.topic_id is not None:
            del self.by_id[old.topic_id]
        if old is not None and self.by_folded_name.get(folded(name)) == name:
            del self.by_folded_name[folded(name)]
        self.deleting.discard(name)


def load_image(store: Store, tolerant: bool = False) -> ClusterImage:
    """Load the image from the store. Raises StoreUnavailable; CorruptNode, unless `tolerant`: topics that cannot be decoded are
    left out then, and settings that cannot be decoded are empty."""
    image = ClusterImage()
    names = store.children(znodes.TOPICS)
    assignments = store.get_many([znodes.topic_path(name) for name in names])
    configs = store.get_many([znodes.topic_config_path(name) for name in names])
    for name, assignment, config in zip(names, assignments, configs, strict=True):
        if assignment is not None:
            path = znodes.topic_config_path(name)
            decode_settings = partial(znodes.decode_config, path, config[0] if config else b"")
            decode_topic = partial(znodes.decode_topic, name, assignment[0])
            if tolerant:
                settings = usable(path, decode_settings, {}, f"topic {name} counts as one without settings")
                decoded = usable(
                    znodes.topic_path(name), decode_topic, None, f"topic {name} counts as one that does not exist"
                )
            else:
                settings, decoded = decode_settings(), decode_topic()
            if decoded is not None:
                image.put(Topic(name, decoded, settings, assignment[1].version))
    image.deleting.update(store.children(znodes.DELETE_TOPICS))
    return image


def load_states(
    store: Store, topics: Iterable[tuple[str, Sequence[int]]]
) -> dict[TopicPartition, tuple[PartitionState, int]]:
    """The state and the partition epoch (the version of the state's node) of these partitions, by (topic, partition).

    The result does not contain partitions whose state is not stored yet. Raises CorruptNode, StoreUnavailable.
    """
    keys = [(name, partition) for name, partitions in topics for partition in partitions]
    nodes = store.get_many([znodes.state_path(name, partition) for name, partition in keys])
    decoded: dict[bytes, PartitionState] = {}  # most of thousands of states are equal
    states = {}
    for (name, partition), node in zip(keys, nodes, strict=True):
        if node is not None:
            data, stat = node
            state = decoded.get(data)
            if state is None:
                state = decoded[data] = znodes.decode_state(name, partition, data)
            states[name, partition] = (state, stat.version)
    return states
