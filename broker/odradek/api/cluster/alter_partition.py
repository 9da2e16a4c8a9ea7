"""AlterPartition (56): a leader requests a change of the in-sync replicas. Executed by the controller of a cluster.

2: topic ids instead of names. 3: members with the epochs of their brokers.
"""

import logging
import uuid
from typing import Any

from odradek.api.api import MAX_REPLICAS, Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller.cluster.admin import ClusterAdmin
from odradek.controller.cluster.in_sync import UNKNOWN_EPOCH, Proposal
from odradek.controller.cluster.in_sync import Verdict as Judgement
from odradek.controller.store_errors import NotController, code_of
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition
from odradek.security.needs import (
    OF_BROKERS,
)

log = logging.getLogger("odradek.controller")

FIRST_WITH_IDS, FIRST_WITH_BROKER_EPOCHS = 2, 3
Response = alter_partition.Response
API = Api(
    alter_partition.SCHEMA,
    versions=(0, 3),
    place=Place.CONTROLLER,
    rights=OF_BROKERS,
    per_partition=2 + MAX_REPLICAS,
    repeated=True,
    only_in_cluster=True,
)
guard = of_whole(API)


def handle(request: alter_partition.Request, call: CoordinatorCall) -> Any:
    """Judge the proposals, then continue the reassignments that waited for them.

    The metadata store may fail meanwhile. The leader then sends its proposal again: a change may have been made or not.
    """
    cluster = call.view.cluster
    if cluster is None or not cluster.active:
        return Response(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        return _judge(request, call, cluster)
    except (StoreError, NotController) as error:
        log.warning("cannot change in-sync replicas, as broker %d requested: %s", request.broker_id, error)
        return Response(error_code=code_of(error))


def _judge(request: alter_partition.Request, call: CoordinatorCall, cluster: ClusterAdmin) -> Any:
    """The response. Raises StoreError, NotController."""
    unknown_ids: set[int] = set()
    proposals: list[Proposal] = []
    places: list[tuple[int, Any]] = []  # for each proposal: the index of its topic, and its partition in the request
    for place, topic in enumerate(request.topics):
        name: str | None = topic.topic_name
        if call.version >= FIRST_WITH_IDS:
            name = cluster.topic_name(uuid.UUID(bytes=bytes(topic.topic_id)))
        if name is None:
            unknown_ids.add(place)
            continue
        for partition in topic.partitions:
            proposals.append(_proposal(cluster.find(name, partition.partition_index), partition, call.version))
            places.append((place, partition))
    code, verdicts = cluster.alter_partition(request.broker_id, request.broker_epoch, proposals, call.version)
    if code != ErrorCode.NONE:
        return Response(error_code=code)
    response = Response(
        topics=[Response.TopicData(topic_name=topic.topic_name, topic_id=topic.topic_id) for topic in request.topics]
    )
    for place in unknown_ids:
        response.topics[place].partitions = [
            Response.PartitionData(partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for partition in request.topics[place].partitions
        ]
    for (place, partition), verdict in zip(places, verdicts, strict=True):
        response.topics[place].partitions.append(_result(partition.partition_index, verdict))
    cluster.after_alter_partition(verdicts)
    return response


def _proposal(found: Any, partition: Any, version: int) -> Proposal:
    if version >= FIRST_WITH_BROKER_EPOCHS:
        members = [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs]
    else:
        members = [(broker_id, UNKNOWN_EPOCH) for broker_id in partition.new_isr]
    return Proposal(
        found, partition.leader_epoch, partition.partition_epoch, members, partition.leader_recovery_state
    )  # fmt: skip


def _result(index: int, verdict: Judgement) -> Any:
    result = Response.PartitionData(partition_index=index, error_code=verdict.code)
    partition = verdict.partition
    if verdict.code == ErrorCode.NONE and partition is not None and partition.state is not None:
        state = partition.state
        result.leader_id, result.leader_epoch = state.leader, state.leader_epoch
        result.isr, result.leader_recovery_state = list(state.in_sync_replicas), state.leader_recovery_state
        result.partition_epoch = partition.partition_epoch
    return result
