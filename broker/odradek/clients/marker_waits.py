"""Why a transaction whose outcome is decided is not complete: the partitions without its marker, with the reason for each.

The requests return only the partitions. The reasons are derived from the metadata, from the settings, and from the producers
that the leader of each partition describes. Functions over a `Cluster`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.clients import configs, transactions
from odradek.clients.cluster import Cluster, Partition, View
from odradek.clients.errors import UnsupportedError
from odradek.clients.transactions import PartitionProducer, TransactionDescription
from odradek.topic_partition import TopicPartition

LOG = "__transaction_state"
MIN_IN_SYNC = "min.insync.replicas"
EXPIRATION_KEY = "producer.id.expiration.ms"
ON_A_SINGLE_BROKER = (
    "on a single Odradek broker, the coordinator completes the transaction at its next attempt, within 30 s"
)


class MarkerWait(NamedTuple):
    """A partition without the marker of a decided transaction. :param reason, remedy: without a full stop."""

    topic: str
    partition: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.reason}"


def waits_of(cluster: Cluster, view: View, decided: Iterable[TransactionDescription]) -> dict[str, list[MarkerWait]]:
    """The partitions that decided transactions wait for, by transactional id. Raises RefusedError, ClientError."""
    descriptions = list(decided)
    known = {
        (part.topic, part.number): part
        for topic in {topic for description in descriptions for topic, _ in description.partitions}
        if topic in view.topics
        for part in view.topics[topic].partitions
    }
    wanted = {place for description in descriptions for place in description.partitions}
    chosen = [known[place] for place in sorted(wanted) if place in known]
    topics = sorted({part.topic for part in chosen})
    entries = configs.of_topics(cluster, topics, MIN_IN_SYNC) if topics else {}
    minimums = {topic: int(entry.value or 1) for topic, entry in entries.items()}
    try:
        found, unchecked = transactions.producers(cluster, chosen)
    except UnsupportedError:  # before Kafka 2.8: the reasons that only producers show are not known
        found, unchecked = [], {}
    producers = {(producer.topic, producer.partition, producer.producer_id): producer for producer in found}
    return {
        description.transactional_id: [
            _wait(
                description,
                place,
                known.get(place),
                minimums,
                unchecked,
                producers.get((*place, description.producer_id)),
                coordinator_epoch(view, description.transactional_id),
            )
            for place in description.partitions
        ]
        for description in descriptions
    }


def coordinator_epoch(view: View, transactional_id: str) -> int | None:
    """The coordinator epoch of an id's markers: the leader epoch of its partition of `__transaction_state`.

    None if the view does not contain this topic, or if the broker does not report leader epochs (before Kafka 2.1).
    """
    from odradek._ext.api.offset_commits import partition_for

    info = view.topics.get(LOG)
    if info is None or not info.partitions:
        return None
    number = partition_for(transactional_id, len(info.partitions))
    epoch = next((part.leader_epoch for part in info.partitions if part.number == number), -1)
    return None if epoch < 0 else epoch


def _wait(
    description: TransactionDescription,
    place: TopicPartition,
    partition: Partition | None,
    minimums: Mapping[str, int],
    unchecked: Mapping[TopicPartition, str],
    producer: PartitionProducer | None,
    coordinator_epoch: int | None,
) -> MarkerWait:
    topic, number = place
    if partition is None:
        return MarkerWait(
            topic, number, "it was deleted", "none is needed: the coordinator omits the partition at its next attempt"
        )
    replicas = _brokers(partition.replicas)
    if partition.leader < 0:
        return MarkerWait(
            topic, number, "it has no leader", f"start {replicas}; if its log directory failed, repair it"
        )
    if place in unchecked:
        return MarkerWait(
            topic,
            number,
            f"broker {partition.leader}, its leader, does not describe its producers: {unchecked[place]}",
            f"check that broker {partition.leader} runs, and that it can be reached",
        )
    minimum = min(minimums.get(topic, 1), len(partition.replicas))
    if len(partition.in_sync) < minimum:
        return MarkerWait(
            topic,
            number,
            f"it has {len(partition.in_sync)} in-sync replicas, and {MIN_IN_SYNC} is {minimum}",
            f"start {_brokers(sorted(set(partition.replicas) - set(partition.in_sync)))}, or lower {MIN_IN_SYNC} of the topic",
        )
    if producer is not None and producer.producer_epoch > description.producer_epoch:
        return MarkerWait(
            topic,
            number,
            f"it has a newer epoch of producer {producer.producer_id}, {producer.producer_epoch}, than the transaction,"
            f" {description.producer_epoch} (INVALID_PRODUCER_EPOCH)",
            f"{ON_A_SINGLE_BROKER}; in a cluster, as soon as the partition has forgotten the producer ({EXPIRATION_KEY})",
        )
    if producer is not None and coordinator_epoch is not None and producer.coordinator_epoch > coordinator_epoch:
        return MarkerWait(
            topic,
            number,
            f"the last marker of producer {producer.producer_id} in it has a newer coordinator epoch,"
            f" {producer.coordinator_epoch}, than the coordinator, {coordinator_epoch} (TRANSACTION_COORDINATOR_FENCED)",
            f"{ON_A_SINGLE_BROKER}; in a cluster, each election of a leader of the id's partition of {LOG} raises the epoch of"
            f" the coordinator: repeat it until the epoch is {producer.coordinator_epoch}",
        )
    return MarkerWait(
        topic,
        number,
        f"broker {partition.leader}, its leader, has not written the marker",
        f"the log of broker {description.coordinator}, the coordinator, has the error (logger odradek.transactions)",
    )


def _brokers(node_ids: Sequence[int]) -> str:
    return f"{'broker' if len(node_ids) == 1 else 'brokers'} {', '.join(map(str, node_ids))}"
