"""OffsetDelete (47): deletes committed offsets of a group. Executed by the coordinator, in its loop."""

from collections.abc import Generator
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.group_call import GroupCall
from odradek.api.guarding import (
    Asked,
    Merged,
    Refused,
    VerdictInSteps,
    made_in_steps,
    taken_out,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_delete
from odradek.security.acl import Operation
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    each,
)
from odradek.stepwise import Pace, Steps, waited
from odradek.topic_partition import TopicPartition

Response = offset_delete.Response
AT_ONCE = 200
PARTITIONS_A_STEP = 500
Outcome = tuple[ErrorCode, dict[TopicPartition, ErrorCode]]


def _delete(group_id: str, places: list[TopicPartition], call: GroupCall) -> Generator[Any, None, Outcome]:
    outcome: Outcome = yield from waited(lambda then: call.view.groups.delete_offsets(group_id, places, then))
    return outcome


API = Api(
    offset_delete.SCHEMA,
    versions=(0, 0),
    place=Place.GROUPS,
    rights=each(
        (Operation.DELETE, GROUP), (Operation.READ, TOPIC), refused=f"{GROUP_DENIED}, {TOPIC_DENIED} for each partition"
    ),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """DELETE on the group, READ on the topics."""
    request, permits = asked.request, asked.permits
    if not permits.group(Operation.DELETE, request.group_id):
        return Refused(offset_delete.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    make = offset_delete.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ),
        )
        return make.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.READ, refuse)
    if not refused:
        return None

    def merge(response: Any) -> Any:  # also if no topic is left: the coordinator looks whether the group exists
        if response.error_code == ErrorCode.NONE:
            response.topics.extend(refused)
        return response

    return Merged(merge)


def handle(request: offset_delete.Request, call: GroupCall) -> Steps:
    """Delete the offsets, except those of topics to which a member subscribes. A large request is executed in parts."""
    places: list[TopicPartition] = []
    pace = Pace(PARTITIONS_A_STEP)
    for topic in request.topics:
        known = call.topic(topic.name)
        if pace.over():
            yield
        for partition in topic.partitions:
            if pace.over():
                yield
            if known is not None and known.exists(partition.partition_index):
                places.append((topic.name, partition.partition_index))
    results: dict[TopicPartition, ErrorCode] = {}
    for first in range(0, len(places), AT_ONCE) or (0,):
        error, part = yield from _delete(request.group_id, places[first : first + AT_ONCE], call)
        if error is not ErrorCode.NONE:
            return Response(error_code=error)
        results.update(part)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = Response()
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            if pace.over():
                yield
            code = results.get((topic.name, partition.partition_index), unknown)
            partitions.append(
                Response.OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        response.topics.append(Response.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        if pace.over():
            yield
    return response
