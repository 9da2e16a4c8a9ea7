"""Creates, extends, empties and deletes topics; lists offsets and sizes of their logs. Functions over a `Cluster`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster, Partition, TopicInfo
from odradek.clients.errors import RefusedError, code_of, only
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
END = -1
"""The offset that means the high watermark in `delete_records`."""


class ListedOffset(NamedTuple):
    """A partition in a ListOffsets response. :param offset: -1 if no record matches. :param timestamp_ms: -1 if unknown."""

    offset: int
    timestamp_ms: int
    error: ErrorCode


def create(
    cluster: Cluster,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    assignments: Sequence[Sequence[int]] = (),
    validate_only: bool = False,
) -> Any:
    """Create a topic; return the broker's result. -1 means the broker's default. Raises RefusedError, ClientError.

    :param assignments: broker ids of the replicas of each partition, the preferred leader first; replaces `partitions` and
        `replication_factor`.
    """
    from odradek.protocol.schemas import create_topics

    make = create_topics.Request
    topic = make.CreatableTopic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replication_factor,
        assignments=[
            make.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(assignments)
        ],
        configs=[make.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = make(topics=[topic], timeout_ms=_milliseconds(cluster), validate_only=validate_only)
    response = cluster.ask_controller(
        create_topics.SCHEMA, request, lambda response: [topic.error_code for topic in response.topics], oldest=1
    )
    result = only(response.topics, f"topic '{name}'")
    if result.error_code:
        raise RefusedError(result.error_code, result.error_message)
    return result


def grow(cluster: Cluster, name: str, count: int, validate_only: bool = False) -> None:
    """Increase the number of partitions of a topic to `count`. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import create_partitions

    make = create_partitions.Request
    request = make(
        topics=[make.CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=_milliseconds(cluster),
        validate_only=validate_only,
    )
    response = cluster.ask_controller(
        create_partitions.SCHEMA, request, lambda response: [result.error_code for result in response.results]
    )
    for result in response.results:
        if result.error_code:
            raise RefusedError(result.error_code, result.error_message)


def delete(cluster: Cluster, names: Sequence[str]) -> dict[str, str | None]:
    """Delete topics; return the error text for each name, None for a deleted topic. Raises ClientError."""
    from odradek.protocol.schemas import delete_topics

    request = delete_topics.Request(
        topics=[delete_topics.Request.DeleteTopicState(name=name) for name in names],
        topic_names=list(names),
        timeout_ms=_milliseconds(cluster),
    )
    node = cluster.view().controller_id
    version = (cluster.broker(node) if node >= 0 else cluster.any_broker()).version_of(delete_topics.SCHEMA)
    if version < 6:
        request.topics = []
    response = cluster.ask_controller(
        delete_topics.SCHEMA,
        request,
        lambda response: [result.error_code for result in response.responses],
        newest=version,
    )
    return {
        result.name: str(RefusedError(result.error_code, result.error_message)) if result.error_code else None
        for result in response.responses
    }


def list_offsets(
    cluster: Cluster,
    partitions: Iterable[Partition],
    time_ms: int | Mapping[TopicPartition, int],
    committed_only: bool = False,
) -> dict[TopicPartition, ListedOffset]:
    """Look up an offset by timestamp in each partition that has a leader. Raises ClientError.

    :param time_ms: EARLIEST, LATEST, MAX_TIMESTAMP, or a time: the first record of that time or later; one for all partitions,
        or one by partition.
    :param committed_only: do not look past the last stable offset.
    """
    from odradek.protocol.schemas import list_offsets as api

    make = api.Request
    offsets: dict[TopicPartition, ListedOffset] = {}
    for connection, led in cluster.by_leader(partitions):
        topics: dict[str, list[Any]] = {}
        for partition in led:
            timestamp = time_ms if isinstance(time_ms, int) else time_ms[partition.topic, partition.number]
            topics.setdefault(partition.topic, []).append(
                make.ListOffsetsPartition(partition_index=partition.number, timestamp=timestamp)
            )
        request = make(
            replica_id=-1,
            isolation_level=int(committed_only),
            topics=[make.ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=_milliseconds(cluster),
        )
        response = connection.ask(api.SCHEMA, request, oldest=1)
        for topic in response.topics:
            for partition in topic.partitions:
                offsets[topic.name, partition.partition_index] = ListedOffset(
                    partition.offset, partition.timestamp, code_of(partition.error_code)
                )
    return offsets


def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete all records before these offsets; return the new log start offsets. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import delete_records as api

    make = api.Request
    partitions = {
        (partition.topic, partition.number): partition
        for topic in cluster.topics(sorted({name for name, _ in offsets}))
        for partition in topic.partitions
    }
    starts: dict[TopicPartition, int] = {}
    for connection, led in cluster.by_leader([partitions[place] for place in offsets]):
        topics: dict[str, list[Any]] = {}
        for partition in led:
            topics.setdefault(partition.topic, []).append(
                make.DeleteRecordsPartition(
                    partition_index=partition.number, offset=offsets[partition.topic, partition.number]
                )
            )
        request = make(
            topics=[make.DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=_milliseconds(cluster),
        )
        for topic in connection.ask(api.SCHEMA, request).topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise RefusedError(partition.error_code, what=f"{topic.name}-{partition.partition_index}")
                starts[topic.name, partition.partition_index] = partition.low_watermark
    return starts


def sizes(cluster: Cluster, topics: Sequence[TopicInfo]) -> dict[TopicPartition, int] | None:
    """The size in bytes of each partition's log on its leader; None if a broker does not serve DescribeLogDirs, or denies
    it to this client.

    Raises ClientError.
    """
    from odradek.protocol.schemas import describe_log_dirs as api

    make = api.Request
    sizes_by_place: dict[TopicPartition, int] = {}
    for connection, led in cluster.by_leader(partition for topic in topics for partition in topic.partitions):
        if connection.serves(api.API_KEY) is None:
            return None
        numbers: dict[str, list[int]] = {}
        for partition in led:
            numbers.setdefault(partition.topic, []).append(partition.number)
        request = make(
            topics=[
                make.DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in numbers.items()
            ]
        )
        response = connection.ask(api.SCHEMA, request)
        if ErrorCode.CLUSTER_AUTHORIZATION_FAILED in (
            response.error_code,
            *(row.error_code for row in response.results),
        ):
            return None
        for directory in response.results:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        sizes_by_place[topic.name, partition.partition_index] = partition.partition_size
    return sizes_by_place


def _milliseconds(cluster: Cluster) -> int:
    return max(1, int(cluster.timeout_s * 1000) - 500) if cluster.timeout_s > 1 else 500
