"""The state of a cluster as its controller knows it: brokers, topics, partitions and the states of both machines.

Values only, no input or output. Owned by the coordinator's store thread of the broker that is the controller; nothing else may
use it. A controller that resigns discards its context, and its successor reads everything from the metadata store.
"""

import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.config.listeners import Listener
from odradek.metadata.znodes import NO_LEADER, PartitionState, TopicAssignment

NO_TOPIC_ID = bytes(16)


class PartitionStatus(Enum):
    """The state of a partition in the machine of `partition_states`."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """The state of a replica in the machine of `replica_states`."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


class LiveBroker(NamedTuple):
    """A registered broker. ``epoch``: its broker epoch, the number of the transaction that created its node."""

    id: int
    epoch: int
    rack: str | None
    endpoints: tuple[Listener, ...]

    def endpoint(self, listener_name: str) -> Listener | None:
        """The endpoint of a listener; None if the broker has not registered it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


@dataclass(slots=True, eq=False)
class Topic:
    """A topic. ``version``: the version of its node. ``deletion_started``: its partitions are already taken offline.
    ``deletion_continues``: a later step continues its deletion."""

    name: str
    topic_id: uuid.UUID | None
    version: int = 0
    partitions: dict[int, "Partition"] = field(default_factory=dict)
    deletion_started: bool = False
    deletion_continues: bool = False

    @property
    def id_bytes(self) -> bytes:
        """The topic id as requests contain it; 16 zero bytes if the topic has none yet."""
        return NO_TOPIC_ID if self.topic_id is None else self.topic_id.bytes

    def assignment(self) -> TopicAssignment:
        """The content of the topic's node."""
        partitions = sorted(self.partitions.items())
        return TopicAssignment(
            self.topic_id,
            {index: partition.replicas for index, partition in partitions},
            {index: partition.adding for index, partition in partitions if partition.adding},
            {index: partition.removing for index, partition in partitions if partition.removing},
        )


@dataclass(slots=True, eq=False)
class Partition:
    """A partition: its assignment, its state in the store, and its states in the machines.

    ``replicas``: all replicas; during a reassignment the target replicas, followed by the replicas to remove. ``state``: None
    until the state's node exists; ``partition_epoch``: the version of that node. ``replica_status`` has an entry for every
    replica of the assignment.
    """

    topic: Topic
    index: int
    replicas: list[int]
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    state: PartitionState | None = None
    partition_epoch: int = 0
    status: PartitionStatus = PartitionStatus.NON_EXISTENT
    replica_status: dict[int, ReplicaStatus] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def leader(self) -> int:
        """The leader; NO_LEADER if there is none or the state does not exist."""
        return NO_LEADER if self.state is None else self.state.leader

    @property
    def in_sync(self) -> list[int]:
        """The committed in-sync replicas; empty if the state does not exist."""
        return [] if self.state is None else self.state.in_sync_replicas

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def target_replicas(self) -> list[int]:
        """The replicas after the reassignment in progress; all replicas if there is none."""
        removing = self.removing
        return [replica for replica in self.replicas if replica not in removing] if removing else self.replicas

    @property
    def original_replicas(self) -> list[int]:
        """The replicas before the reassignment in progress; all replicas if there is none."""
        adding = self.adding
        return [replica for replica in self.replicas if replica not in adding] if adding else self.replicas


Replica = tuple[Partition, int]
"""A partition and the id of a broker."""


class ControllerContext:
    """See the module.

    :param broker_id: the id of this broker, the controller.
    :param epoch: the controller epoch. :param epoch_version: the version of its node, which fences all writes.
    :ivar live: ids of the brokers that can lead: registered and not shutting down.
    :ivar offline_dirs: by broker id, the partitions whose replica there is in a failed log directory.
    :ivar epoch_attempts: how often the leader epoch of a partition was raised, because a broker refused it; see `epochs`.
    :ivar reassigning: the partitions with a reassignment in progress.
    :ivar unclean_elections: the number of unclean elections of this controller.
    :ivar deleted: the number of topics that were removed from this context.
    :ivar beginning: by topic, the partitions that are to be created in later steps; see `topic_events.begin_partitions`.
    :ivar unannounced: the partitions that clients must not see yet, because others of their topic are in `beginning`.
    :ivar deleting: names of the topics that are queued for deletion; ``ineligible``: those that must wait.
    """

    def __init__(self, broker_id: int, epoch: int, epoch_version: int, listener_name: str = "PLAINTEXT") -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.listener_name = listener_name
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.live: frozenset[int] = frozenset()
        self.offline_dirs: dict[int, set[Partition]] = {}
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[uuid.UUID, Topic] = {}
        self.epoch_attempts: dict[Replica, int] = {}
        self.reassigning: set[Partition] = set()
        self.unclean_elections = 0
        self.deleted = 0
        self.beginning: dict[Topic, deque[Partition]] = {}
        self.unannounced: set[Partition] = set()
        self.deleting: set[str] = set()
        self.ineligible: set[str] = set()

    # -- brokers --------------------------------------------------------------------------------------------------

    def add_brokers(self, brokers: Iterable[LiveBroker]) -> None:
        """Add brokers, or replace those with the same ids."""
        for broker in brokers:
            self.brokers[broker.id] = broker
        self._count_live()

    def remove_brokers(self, ids: Iterable[int]) -> None:
        """Remove brokers, and that they are shutting down."""
        for broker_id in ids:
            self.brokers.pop(broker_id, None)
            self.shutting_down.discard(broker_id)
        self._count_live()

    def begin_shutdown(self, broker_id: int) -> None:
        """The broker shuts down: it cannot become a leader or join in-sync replicas."""
        self.shutting_down.add(broker_id)
        self._count_live()

    def _count_live(self) -> None:
        self.live = frozenset(self.brokers.keys() - self.shutting_down)

    def online_for(self, partition: Partition, shutting_down_too: bool = False) -> Collection[int]:
        """The brokers on which a replica of the partition would be online: live, and its log directory has not failed."""
        brokers: Collection[int] = self.brokers.keys() if shutting_down_too else self.live
        if not self.offline_dirs:
            return brokers
        return {
            broker_id for broker_id in brokers if partition not in self.offline_dirs.get(broker_id, ())
        }  # fmt: skip

    def is_online(self, partition: Partition, broker_id: int) -> bool:
        """Whether the replica is on a live broker that is not shutting down, in a log directory that has not failed."""
        if broker_id not in self.live:
            return False
        return not self.offline_dirs or partition not in self.offline_dirs.get(broker_id, ())

    # -- topics ---------------------------------------------------------------------------------------------------

    def add_topic(self, name: str, assignment: TopicAssignment, version: int) -> Topic:
        """Add a topic with all its partitions, or the partitions that a known topic lacks; return it.

        The machines of new partitions and replicas begin in NON_EXISTENT.
        """
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, assignment.topic_id)
            if assignment.topic_id is not None:
                self.by_id[assignment.topic_id] = topic
        topic.version = version
        adding, removing = assignment.adding, assignment.removing
        for index, replicas in assignment.partitions.items():
            if index not in topic.partitions:
                partition = Partition(
                    topic, index, list(replicas), list(adding.get(index, ())), list(removing.get(index, ()))
                )
                partition.replica_status = dict.fromkeys(partition.replicas, ReplicaStatus.NON_EXISTENT)
                topic.partitions[index] = partition
                if partition.adding or partition.removing:
                    self.reassigning.add(partition)
        return topic

    def set_topic_id(self, topic: Topic, topic_id: uuid.UUID) -> None:
        """Give a topic its id."""
        topic.topic_id = topic_id
        self.by_id[topic_id] = topic

    def remove_topic(self, name: str) -> None:
        """Forget a topic, its partitions and its deletion."""
        topic = self.topics.pop(name, None)
        self.deleting.discard(name)
        self.ineligible.discard(name)
        if topic is None:
            return
        self.deleted += 1
        if topic.topic_id is not None and self.by_id.get(topic.topic_id) is topic:
            del self.by_id[topic.topic_id]
        self.stop_beginning(topic)
        removed = set(topic.partitions.values())
        self.reassigning -= removed
        for broker_id in list(self.offline_dirs):
            self.offline_dirs[broker_id] -= removed

    def stop_beginning(self, topic: Topic) -> None:
        """Create no more partitions of a topic: it is deleted."""
        if self.beginning.pop(topic, None) is not None:
            self.unannounced.difference_update(topic.partitions.values())

    def set_assignment(self, partition: Partition, replicas: list[int], adding: list[int], removing: list[int]) -> None:
        """Replace the assignment of a partition in memory; replicas that are new to it begin in NON_EXISTENT."""
        partition.replicas, partition.adding, partition.removing = replicas, adding, removing
        for replica in replicas:
            partition.replica_status.setdefault(replica, ReplicaStatus.NON_EXISTENT)
        if adding or removing:
            self.reassigning.add(partition)
        else:
            self.reassigning.discard(partition)

    def find(self, topic: str, index: int) -> Partition | None:
        """A partition, or None."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def partitions(self) -> Iterator[Partition]:
        """All partitions, by topic."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def is_deleting(self, partition: Partition) -> bool:
        """Whether the partition's topic is queued for deletion."""
        return partition.topic.name in self.deleting

    def replicas_on(self, brokers: Collection[int]) -> list[Replica]:
        """All replicas on these brokers."""
        return [
            (partition, replica)
            for partition in self.partitions()
            for replica in partition.replicas
            if replica in brokers
        ]
