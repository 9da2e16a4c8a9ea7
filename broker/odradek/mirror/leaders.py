"""Looks up the leaders of partitions, with the errors of single topics. Used in the threads of the lanes; stateless."""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import WITH_CREATION, Cluster, Partition, TopicInfo, view_from
from odradek.clients.errors import code_of
from odradek.mirror.routes import EARLIEST
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_offsets, metadata
from odradek.topic_partition import TopicPartition

_TIMES = {EARLIEST: topics.EARLIEST}


class LookedUp(NamedTuple):
    """Topics in a Metadata response. :param errors: by name, of those that the response does not describe."""

    topics: dict[str, TopicInfo]
    errors: dict[str, ErrorCode]

    def leader(self, place: TopicPartition) -> int:
        """The id of the broker that leads a partition; -1 if it is unknown, or there is none."""
        partition = self.partition(place)
        return -1 if partition is None else partition.leader

    def partition(self, place: TopicPartition) -> Partition | None:
        """A partition; None if it is unknown."""
        name, number = place
        found = self.topics.get(name)
        partitions = () if found is None else found.partitions
        return next((partition for partition in partitions if partition.number == number), None)


def look_up(cluster: Cluster, names: Iterable[str]) -> LookedUp:
    """Request the metadata of topics, and the addresses of the brokers. Raises ClientError if no broker answers."""
    cluster.view(fresh=True)
    wanted = sorted(set(names))
    if not wanted:
        return LookedUp({}, {})
    make = metadata.Request
    if cluster.any_broker().version_of(metadata.SCHEMA, oldest=1) >= WITH_CREATION:
        topics_wanted = [make.MetadataRequestTopic(name=name) for name in wanted]
        request = make(topics=topics_wanted, allow_auto_topic_creation=False)
    else:
        request = make(topics=None)  # all topics: a request for some would create those that are missing
    response = cluster.ask(metadata.SCHEMA, request, oldest=1)
    errors = {topic.name: code_of(topic.error_code) for topic in response.topics if topic.error_code}
    described = view_from(response).topics
    missing = {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in wanted if name not in described}
    return LookedUp(dict(described), missing | errors)


class Limits(NamedTuple):
    """The offsets of partitions. :param refused: the errors of those for which the leader gave none."""

    offsets: dict[TopicPartition, int]
    refused: dict[TopicPartition, ErrorCode]


def limits(cluster: Cluster, places: Iterable[TopicPartition], start: str) -> Limits:
    """The first offset (EARLIEST) or the offset behind the last record (LATEST) of partitions that have a leader.

    Raises ClientError.
    """
    wanted = set(places)
    found = look_up(cluster, {name for name, _ in wanted})
    partitions = [
        partition
        for topic in found.topics.values()
        for partition in topic.partitions
        if (topic.name, partition.number) in wanted
    ]
    if cluster.any_broker().version_of(list_offsets.SCHEMA) == 0:
        return _old_limits(cluster, partitions, start)
    listed = topics.list_offsets(cluster, partitions, _TIMES.get(start, topics.LATEST))
    return Limits(
        {place: result.offset for place, result in listed.items() if not result.error},
        {place: result.error for place, result in listed.items() if result.error},
    )


def _old_limits(cluster: Cluster, partitions: Iterable[Partition], start: str) -> Limits:
    """As `limits`, from brokers before Kafka 0.10.1."""
    make = list_offsets.Request
    found = Limits({}, {})
    for connection, led in cluster.by_leader(partitions):
        for partition in led:
            asked = make.ListOffsetsPartition(
                partition_index=partition.number, timestamp=_TIMES.get(start, topics.LATEST), max_num_offsets=1
            )
            request = make(replica_id=-1, topics=[make.ListOffsetsTopic(name=partition.topic, partitions=[asked])])
            response = connection.ask(list_offsets.SCHEMA, request, newest=0)
            for topic in response.topics:
                for result in topic.partitions:
                    place = topic.name, result.partition_index
                    if result.error_code or not result.old_style_offsets:
                        found.refused[place] = code_of(result.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
                    else:
                        found.offsets[place] = result.old_style_offsets[0]
    return found
