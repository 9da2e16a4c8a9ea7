"""Elects leaders of partitions by the controller. Functions over a `Cluster`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from odradek.clients.cluster import Cluster, Partition, View
from odradek.clients.errors import RefusedError, UnsupportedError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import elect_leaders
from odradek.topic_partition import TopicPartition

PREFERRED, UNCLEAN = 0, 1
"""Election types."""
FIRST_WITH_UNCLEAN = 1
"""The first version of ElectLeaders with election types."""
AT_A_TIME = 200
"""The maximum number of partitions in one request."""


def candidates(view: View, election_type: int) -> list[Partition]:
    """The partitions that an election can change: preferred: led by another replica than the first of their list, or by none;
    unclean: without a leader."""
    return [
        partition
        for _, topic in sorted(view.topics.items())
        for partition in topic.partitions
        if partition.replicas
        and (partition.leader < 0 if election_type == UNCLEAN else partition.leader != partition.replicas[0])
    ]


def elect(cluster: Cluster, partitions: Sequence[Partition], election_type: int) -> dict[TopicPartition, str | None]:
    """Elect leaders. Returns the error of each partition; None: it has the elected leader. Raises RefusedError, ClientError.

    A partition that has the leader already counts as elected.
    """
    results: dict[TopicPartition, str | None] = {}
    for batch in _batches(partitions):
        results |= _elect(cluster, batch, election_type)
    return results


def _elect(cluster: Cluster, partitions: Iterable[Partition], election_type: int) -> dict[TopicPartition, str | None]:
    make = elect_leaders.Request
    topics: dict[str, Any] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, make.TopicPartitions(topic=partition.topic))
        topic.partitions.append(partition.number)
    request = make(
        election_type=election_type,
        topic_partitions=list(topics.values()),
        timeout_ms=max(500, int(cluster.timeout_s * 1000) - 500),
    )
    oldest = FIRST_WITH_UNCLEAN if election_type == UNCLEAN else 0
    try:
        response = cluster.ask_controller(elect_leaders.SCHEMA, request, _codes, oldest=oldest)
    except UnsupportedError as error:
        newer = "2.4" if oldest else "2.2"
        raise UnsupportedError(f"{error}: these elections need Odradek, or Kafka {newer} or newer") from None
    if response.error_code:
        raise RefusedError(response.error_code, what="the election")
    return {
        (result.topic, row.partition_id): None
        if row.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        else str(RefusedError(row.error_code, row.error_message))
        for result in response.replica_election_results
        for row in result.partition_result
    }


def _codes(response: Any) -> list[int]:
    rows = (row for result in response.replica_election_results for row in result.partition_result)
    return [response.error_code, *(row.error_code for row in rows)]


def leaders(view: View) -> dict[TopicPartition, int]:
    """The leader of each partition; -1: none."""
    return {
        (partition.topic, partition.number): partition.leader
        for topic in view.topics.values()
        for partition in topic.partitions
    }


def _batches(partitions: Sequence[Partition]) -> Iterator[list[Partition]]:
    rest = iter(partitions)
    while batch := list(islice(rest, AT_A_TIME)):
        yield batch
