"""AlterPartitionReassignments (45): other replicas for partitions. In the coordinator's controller thread.

On one broker the only replicas there can be are those there are: that wish is granted, every other one refused as Kafka does.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Pace, Steps
from odradek.controller.image import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_partition_reassignments

WITH_FACTOR_CHANGE = 1
STEP = 500
Response = alter_partition_reassignments.Response


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Each partition for itself, those of a few topics at a step."""
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
                partitions=[_answer(topic.name, topics.get(topic.name), one, alive) for one in topic.partitions],
            )
        )
    if call.version >= WITH_FACTOR_CHANGE:
        response.allow_replication_factor_change = request.allow_replication_factor_change
    return response


def _answer(name: str, topic: Topic | None, wish: Any, alive: set[int]) -> Any:
    partition = wish.partition_index
    if topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    elif partition not in topic.assignment.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{partition}."
    else:
        return _judged(topic.assignment.partitions[partition], wish, alive)
    return Response.ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


def _judged(present: Sequence[int], wish: Any, alive: set[int]) -> Any:
    told = Response.ReassignablePartitionResponse(partition_index=wish.partition_index, error_message=None)
    if wish.replicas is None:
        told.error_code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return told
    replicas = list(wish.replicas)
    counts = Counter(replicas)
    twice = next((broker for broker in replicas if counts[broker] > 1), None)
    unknown = next((broker for broker in replicas if broker not in alive), None)
    wrong = (
        "an empty replica list"
        if not replicas
        else f"broker {unknown}, but no such broker is registered"
        if unknown is not None
        else f"the broker {twice} more than once"
        if twice is not None
        else None
    )
    if wrong is not None:
        told.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        told.error_message = f"The manual partition assignment includes {wrong}."
    elif sorted(replicas) != sorted(present):
        told.error_code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        told.error_message = f"This broker cannot move the replicas {list(present)} to {replicas}."
    return told
