"""AlterPartitionReassignments (45): changes the replicas of partitions. Executed in the coordinator's store thread.

On a single broker, the replicas cannot change: a request for the present replicas succeeds, every other one is refused with
Kafka's errors. In a cluster, the controller moves replicas.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller.image import Topic
from odradek.controller.store_errors import NotController
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition_reassignments
from odradek.security.needs import (
    ALTERS,
)
from odradek.stepwise import Pace, Steps

if TYPE_CHECKING:
    from odradek.controller.cluster.admin import ClusterAdmin

WITH_FACTOR_CHANGE = 1
STEP = 500
Response = alter_partition_reassignments.Response
API = Api(
    alter_partition_reassignments.SCHEMA,
    versions=(0, 1),
    place=Place.CONTROLLER,
    rights=ALTERS,
    elements=40_000,
    refused=Elements(alter_partition_reassignments.SCHEMA, "topics.partitions", "responses.partitions"),
)
guard = of_whole(API)


def handle(request: alter_partition_reassignments.Request, call: CoordinatorCall) -> Steps:
    """Handle each partition independently, a few topics per step."""
    if call.view.cluster is not None:
        return (yield from _in_cluster(request, call, call.view.cluster))
    alive = {broker.id for broker in call.view.controller.brokers()}
    topics = call.view.controller.image.topics
    response = Response(error_message=None)
    pace = Pace(STEP)
    for topic in request.topics:
        if pace.over(1 + len(topic.partitions)):
            yield
        response.responses.append(
            Response.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(topic.name, topics.get(topic.name), partition, alive) for partition in topic.partitions
                ],
            )
        )
    if call.version >= WITH_FACTOR_CHANGE:
        response.allow_replication_factor_change = request.allow_replication_factor_change
    return response


def _in_cluster(
    request: alter_partition_reassignments.Request, call: CoordinatorCall, cluster: "ClusterAdmin"
) -> Steps:
    from odradek.controller.cluster.admin import Reassignment  # here: a single broker does without it

    factor_may_change = call.version < WITH_FACTOR_CHANGE or bool(request.allow_replication_factor_change)
    response = Response(error_message=None)
    if call.version >= WITH_FACTOR_CHANGE:
        response.allow_replication_factor_change = request.allow_replication_factor_change
    requests = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        answers = iter((yield from cluster.alter_reassignments_in_steps(requests, factor_may_change)))
    except NotController as error:
        response.error_code, response.error_message = ErrorCode.NOT_CONTROLLER, str(error)
        return response
    pace = Pace(STEP)
    for topic in request.topics:
        if pace.over(1 + len(topic.partitions)):
            yield
        result = Response.ReassignableTopicResponse(name=topic.name)
        for partition in topic.partitions:
            code, message = next(answers)
            result.partitions.append(
                Response.ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=message
                )
            )
        response.responses.append(result)
    return response


def _result(name: str, topic: Topic | None, reassignment: Any, alive: set[int]) -> Any:
    partition = reassignment.partition_index
    if topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    elif partition not in topic.assignment.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{partition}."
    else:
        return _checked(topic.assignment.partitions[partition], reassignment, alive)
    return Response.ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


def _checked(present: Sequence[int], reassignment: Any, alive: set[int]) -> Any:
    result = Response.ReassignablePartitionResponse(partition_index=reassignment.partition_index, error_message=None)
    if reassignment.replicas is None:
        result.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return result
    replicas = list(reassignment.replicas)
    counts = Counter(replicas)
    duplicate = next((broker for broker in replicas if counts[broker] > 1), None)
    unknown = next((broker for broker in replicas if broker not in alive), None)
    problem = (
        "an empty replica list"
        if not replicas
        else f"broker {unknown}, but no such broker is registered"
        if unknown is not None
        else f"the broker {duplicate} more than once"
        if duplicate is not None
        else None
    )
    if problem is not None:
        result.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        result.error_message = f"The manual partition assignment includes {problem}."
    elif sorted(replicas) != sorted(present):
        result.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        result.error_message = f"This broker cannot move the replicas {list(present)} to {replicas}."
    return result
