"""LeaderAndIsr, StopReplica and UpdateMetadata in all their versions, as one form each, and their responses.

Pure functions and values; `replica_control` executes the requests. The versions differ in how partitions are grouped, in
whether topic ids and leader epochs are present, and in how the endpoints of brokers are written.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from odradek._ext.shm.brokers import Endpoint
from odradek.config.listeners import SECURITY_PROTOCOLS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata

NO_TOPIC_ID = bytes(16)
NO_EPOCH = -1
NO_BROKER_EPOCH = -1
EPOCH_DURING_DELETE = -2
LEADER_DURING_DELETE = -2
RECOVERING = 1

GROUPED_BY_TOPIC = 2
ANSWERED_BY_TOPIC_ID = 5
METADATA_GROUPED_BY_TOPIC = 5
STOPPED_ONE_BY_ONE = 3
ENDPOINTS_BY_PROTOCOL = 1
ENDPOINTS_BY_NAME = 3


class Assigned(NamedTuple):
    """A partition in a LeaderAndIsr request. ``state``: a LeaderAndIsrPartitionState."""

    topic: str
    topic_id: bytes
    partition: int
    state: Any


class Stopped(NamedTuple):
    """A partition in a StopReplica request. ``leader_epoch``: NO_EPOCH if the version has none."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class Published(NamedTuple):
    """A partition in an UpdateMetadata request. ``state``: an UpdateMetadataPartitionState."""

    topic: str
    topic_id: bytes
    partition: int
    state: Any


def assigned(request: leader_and_isr.Request, version: int) -> Iterator[Assigned]:
    """The partitions of a LeaderAndIsr request, in its order."""
    if version < GROUPED_BY_TOPIC:
        for state in request.ungrouped_partition_states:
            yield Assigned(state.topic_name, NO_TOPIC_ID, state.partition_index, state)
        return
    for topic in request.topic_states:
        topic_id = bytes(topic.topic_id or NO_TOPIC_ID)
        for state in topic.partition_states:
            yield Assigned(topic.topic_name, topic_id, state.partition_index, state)


def assigned_response(
    version: int, outcomes: Iterable[tuple[Assigned, int]], error: ErrorCode = ErrorCode.NONE
) -> leader_and_isr.Response:
    """The response to a LeaderAndIsr request. :param outcomes: each partition with its error code."""
    make = leader_and_isr.Response.LeaderAndIsrPartitionError
    if version < ANSWERED_BY_TOPIC_ID:
        return leader_and_isr.Response(
            error_code=error,
            partition_errors=[
                make(topic_name=entry.topic, partition_index=entry.partition, error_code=code)
                for entry, code in outcomes
            ],
        )
    by_id: dict[bytes, list[Any]] = {}
    for entry, code in outcomes:
        by_id.setdefault(entry.topic_id, []).append(make(partition_index=entry.partition, error_code=code))
    make_topic = leader_and_isr.Response.LeaderAndIsrTopicError
    topics = [make_topic(topic_id=topic_id, partition_errors=errors) for topic_id, errors in by_id.items()]
    return leader_and_isr.Response(error_code=error, topics=topics)


def stopped(request: stop_replica.Request, version: int) -> Iterator[Stopped]:
    """The partitions of a StopReplica request, in its order."""
    if version >= STOPPED_ONE_BY_ONE:
        for topic in request.topic_states:
            for state in topic.partition_states:
                yield Stopped(topic.topic_name, state.partition_index, state.leader_epoch, bool(state.delete_partition))
        return
    delete = bool(request.delete_partitions)
    if version == 0:
        for partition in request.ungrouped_partitions:
            yield Stopped(partition.topic_name, partition.partition_index, NO_EPOCH, delete)
        return
    for topic_before_v3 in request.topics:
        for index in topic_before_v3.partition_indexes:
            yield Stopped(topic_before_v3.name, index, NO_EPOCH, delete)


def stopped_response(
    outcomes: Iterable[tuple[Stopped, int]], error: ErrorCode = ErrorCode.NONE
) -> stop_replica.Response:
    """The response to a StopReplica request. :param outcomes: each partition with its error code."""
    make = stop_replica.Response.StopReplicaPartitionError
    return stop_replica.Response(
        error_code=error,
        partition_errors=[
            make(topic_name=entry.topic, partition_index=entry.partition, error_code=code) for entry, code in outcomes
        ],
    )


def published(request: update_metadata.Request, version: int) -> Iterator[Published]:
    """The partitions of an UpdateMetadata request, in its order."""
    if version < METADATA_GROUPED_BY_TOPIC:
        for state in request.ungrouped_partition_states:
            yield Published(state.topic_name, NO_TOPIC_ID, state.partition_index, state)
        return
    for topic in request.topic_states:
        topic_id = bytes(topic.topic_id or NO_TOPIC_ID)
        for state in topic.partition_states:
            yield Published(topic.topic_name, topic_id, state.partition_index, state)


def published_response(error: ErrorCode = ErrorCode.NONE) -> update_metadata.Response:
    """The response to an UpdateMetadata request."""
    return update_metadata.Response(error_code=error)


def endpoints_of(broker: Any, version: int) -> Sequence[Endpoint]:
    """The endpoints of a live broker in an UpdateMetadata request. Before version 3, a listener has the name of its security
    protocol."""
    if version < ENDPOINTS_BY_PROTOCOL:
        return [Endpoint("PLAINTEXT", broker.v0_host, broker.v0_port)]
    endpoints = []
    for endpoint in broker.endpoints:
        number = endpoint.security_protocol
        protocol = SECURITY_PROTOCOLS[number] if 0 <= number < len(SECURITY_PROTOCOLS) else str(number)
        name = endpoint.listener if version >= ENDPOINTS_BY_NAME else protocol
        endpoints.append(Endpoint(name, endpoint.host, endpoint.port))
    return endpoints
