"""ConsumerGroupDescribe (69): consumer groups (KIP-848), their members, and the members' current and target assignments.
Executed in the coordinator's loop.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.denied import denied_groups
from odradek.api.groups.group_call import GroupCall
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
)
from odradek.groups.consumer_member import by_topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import consumer_group_describe
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    each,
)
from odradek.stepwise import Pace, Steps
from odradek.topic_partition import TopicIdPartition

Response = consumer_group_describe.Response
MEMBERS_A_STEP = 500
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
HIDDEN = "The described group uses topics that the client is not authorized to describe."
API = Api(
    consumer_group_describe.SCHEMA,
    versions=(0, 1),
    place=Place.GROUPS,
    rights=each(
        (Operation.DESCRIBE, GROUP),
        (Operation.DESCRIBE, TOPIC),
        refused=f"{GROUP_DENIED}, {TOPIC_DENIED} for the group",
        note="the topics that members of the group have",
    ),
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups and on the topics of their members: a group with a hidden topic is not described."""
    request, permits = asked.request, asked.permits
    denied = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    make = consumer_group_describe.Response.DescribedGroup
    refused = yield from denied_groups(request.group_ids, denied, make)
    request.group_ids = [group_id for group_id in request.group_ids if group_id not in denied]

    def topics_of(group: Any) -> set[str]:
        return {
            part.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for part in assignment.topic_partitions
        }

    def merge(response: Any) -> Any:
        described = []
        for group in response.groups:
            if permits.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics_of(group)):
                group = make(
                    group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN
                )
            described.append(group)
        response.groups = refused + described
        return response

    return Merged(merge)


def handle(request: consumer_group_describe.Request, call: GroupCall) -> Steps:
    """Describe each group; GROUP_ID_NOT_FOUND if the group does not exist or is not a consumer group."""
    disabled = call.view.without_consumer_protocol
    if disabled is not None:
        refused = partial(Response.DescribedGroup, error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=disabled)
        return Response(groups=[refused(group_id=group_id) for group_id in request.group_ids])
    response = Response()
    pace = Pace(MEMBERS_A_STEP)
    for group_id in dict.fromkeys(request.group_ids):
        response.groups.append(_described(group_id, call))
        if pace.over(1 + len(response.groups[-1].members)):
            yield
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = call.permits.operations(ResourceType.GROUP, group.group_id)
    return response


def _described(group_id: str, call: GroupCall) -> Any:
    make = Response.DescribedGroup
    if not group_id:
        return make(error_code=ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    error, entry = call.view.groups.shards.find(group_id)
    if error is not ErrorCode.NONE:
        return make(error_code=error, group_id=group_id)
    if entry is None or entry.consumer is None:
        message = f"Group {group_id} not found." if entry is None else f"Group {group_id} is not a consumer group."
        return make(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message, group_id=group_id)
    group = entry.consumer
    return make(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            Response.Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topics),
                subscribed_topic_regex=member.pattern or "",
                assignment=_assignment(member.assigned, call),
                target_assignment=_assignment(group.target.get(member.member_id, ()), call),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _assignment(places: Iterable[TopicIdPartition], call: GroupCall) -> Any:
    topics = []
    for topic_id, partitions in by_topic(places).items():
        topic = call.topic_by_id(topic_id)
        if topic is not None:  # a deleted topic has no name any more
            topics.append(Response.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions))
    return Response.Assignment(topic_partitions=topics)
