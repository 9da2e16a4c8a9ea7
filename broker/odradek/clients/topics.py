"""Topics of a cluster: make, grow, delete, empty them; where their logs begin and end. Functions over a `Cluster`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster, Partition, TopicInfo
from odradek.clients.errors import Refused, code_of
from odradek.protocol.errors import ErrorCode

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
END = -1
"""As an offset of `delete_records`: the high watermark."""

Place = tuple[str, int]


class Found(NamedTuple):
    """What ListOffsets tells of a partition. :param offset: -1 if there is none. :param timestamp_ms: -1 if not known."""

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
    """Create a topic; the broker's answer about it. -1 stands for the broker's default. Raises Refused, ClientError.

    :param assignments: broker ids of the replicas of each partition, the preferred leader first; then no numbers are given.
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
    answer = cluster.ask_controller(
        create_topics.SCHEMA, request, lambda answer: [one.error_code for one in answer.topics], oldest=1
    )
    (result,) = answer.topics
    if result.error_code:
        raise Refused(result.error_code, result.error_message)
    return result


def grow(cluster: Cluster, name: str, count: int, validate_only: bool = False) -> None:
    """Have a topic so many partitions in all. Raises Refused, ClientError."""
    from odradek.protocol.schemas import create_partitions

    make = create_partitions.Request
    request = make(
        topics=[make.CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=_milliseconds(cluster),
        validate_only=validate_only,
    )
    answer = cluster.ask_controller(
        create_partitions.SCHEMA, request, lambda answer: [one.error_code for one in answer.results]
    )
    for result in answer.results:
        if result.error_code:
            raise Refused(result.error_code, result.error_message)


def delete(cluster: Cluster, names: Sequence[str]) -> dict[str, str | None]:
    """Delete topics: for each name None, or why not. Raises ClientError."""
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
    answer = cluster.ask_controller(
        delete_topics.SCHEMA, request, lambda answer: [one.error_code for one in answer.responses], newest=version
    )
    return {
        one.name: str(Refused(one.error_code, one.error_message)) if one.error_code else None
        for one in answer.responses
    }


def list_offsets(
    cluster: Cluster, partitions: Iterable[Partition], time_ms: int | Mapping[Place, int], committed_only: bool = False
) -> dict[Place, Found]:
    """The offset of a time in each partition that has a leader. Raises ClientError.

    :param time_ms: EARLIEST, LATEST, or the first record of that time or later; of all, or by partition.
    :param committed_only: do not look behind the last stable offset.
    """
    from odradek.protocol.schemas import list_offsets as api

    make = api.Request
    found: dict[Place, Found] = {}
    for connection, theirs in cluster.by_leader(partitions):
        topics: dict[str, list[Any]] = {}
        for one in theirs:
            wanted = time_ms if isinstance(time_ms, int) else time_ms[one.topic, one.number]
            topics.setdefault(one.topic, []).append(
                make.ListOffsetsPartition(partition_index=one.number, timestamp=wanted)
            )
        request = make(
            replica_id=-1,
            isolation_level=int(committed_only),
            topics=[make.ListOffsetsTopic(name=name, partitions=ones) for name, ones in topics.items()],
            timeout_ms=_milliseconds(cluster),
        )
        answer = connection.ask(api.SCHEMA, request, oldest=1)
        for topic in answer.topics:
            for told in topic.partitions:
                found[topic.name, told.partition_index] = Found(told.offset, told.timestamp, code_of(told.error_code))
    return found


def delete_records(cluster: Cluster, offsets: Mapping[Place, int]) -> dict[Place, int]:
    """Forget all records before these offsets: the new log start offsets. Raises Refused, ClientError."""
    from odradek.protocol.schemas import delete_records as api

    make = api.Request
    partitions = {
        (one.topic, one.number): one
        for topic in cluster.topics(sorted({name for name, _ in offsets}))
        for one in topic.partitions
    }
    starts: dict[Place, int] = {}
    for connection, theirs in cluster.by_leader([partitions[place] for place in offsets]):
        topics: dict[str, list[Any]] = {}
        for one in theirs:
            topics.setdefault(one.topic, []).append(
                make.DeleteRecordsPartition(partition_index=one.number, offset=offsets[one.topic, one.number])
            )
        request = make(
            topics=[make.DeleteRecordsTopic(name=name, partitions=ones) for name, ones in topics.items()],
            timeout_ms=_milliseconds(cluster),
        )
        for topic in connection.ask(api.SCHEMA, request).topics:
            for told in topic.partitions:
                if told.error_code:
                    raise Refused(told.error_code, what=f"{topic.name}-{told.partition_index}")
                starts[topic.name, told.partition_index] = told.low_watermark
    return starts


def sizes(cluster: Cluster, topics: Sequence[TopicInfo]) -> dict[Place, int] | None:
    """Bytes of each partition's log at its leader; None where a broker does not tell. Raises ClientError."""
    from odradek.protocol.schemas import describe_log_dirs as api

    make = api.Request
    found: dict[Place, int] = {}
    for connection, theirs in cluster.by_leader(one for topic in topics for one in topic.partitions):
        if connection.serves(api.API_KEY) is None:
            return None
        wanted: dict[str, list[int]] = {}
        for one in theirs:
            wanted.setdefault(one.topic, []).append(one.number)
        request = make(
            topics=[make.DescribableLogDirTopic(topic=name, partitions=ones) for name, ones in wanted.items()]
        )
        for directory in connection.ask(api.SCHEMA, request).results:
            for topic in directory.topics:
                for told in topic.partitions:
                    if not told.is_future_key:
                        found[topic.name, told.partition_index] = told.partition_size
    return found


def _milliseconds(cluster: Cluster) -> int:
    return max(1, int(cluster.timeout_s * 1000) - 500) if cluster.timeout_s > 1 else 500
