"""DescribeGroups (15): returns state and members of classic groups. Executed by the coordinator, in its loop."""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.denied import denied_groups
from odradek.api.groups.group_call import GroupCall
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
)
from odradek.groups.classic_rebalance import State
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_groups
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    need,
)
from odradek.stepwise import Pace, Steps

MEMBERS_A_STEP = 500
FIRST_WITH_NOT_FOUND = 6
Response = describe_groups.Response
API = Api(
    describe_groups.SCHEMA,
    versions=(0, 6),
    place=Place.GROUPS,
    rights=need(Operation.DESCRIBE, GROUP, GROUP_DENIED),
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups."""
    request, permits = asked.request, asked.permits
    denied = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, request.groups)
    make = describe_groups.Response.DescribedGroup
    refused = yield from denied_groups(request.groups, denied, make)
    if not refused:
        return None
    request.groups = [group_id for group_id in request.groups if group_id not in denied]

    def merge(response: Any) -> Any:
        response.groups = refused + list(response.groups)
        return response

    return Merged(merge)


def handle(request: describe_groups.Request, call: GroupCall) -> Steps:
    """Describe each group. A group that does not exist is in the state Dead; from version 6 on, it gets GROUP_ID_NOT_FOUND."""
    response = Response()
    pace = Pace(MEMBERS_A_STEP)
    for group_id in dict.fromkeys(request.groups):
        response.groups.append(_described(group_id, call))
        if pace.over(1 + len(response.groups[-1].members)):
            yield
    if call.version >= 3 and request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = call.permits.operations(ResourceType.GROUP, group.group_id)
    return response


def _described(group_id: str, call: GroupCall) -> Any:
    make = Response.DescribedGroup
    error, entry = call.view.groups.shards.find(group_id)
    if error is not ErrorCode.NONE:
        return make(error_code=error, group_id=group_id)
    if entry is None or entry.classic is None:
        message = f"Group {group_id} not found." if entry is None else f"Group {group_id} is not a classic group."
        if call.version >= FIRST_WITH_NOT_FOUND:
            return make(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=message,
                group_id=group_id,
                group_state=State.DEAD.value,
            )
        return make(group_id=group_id, group_state=State.DEAD.value)
    group = entry.classic
    chosen = group.roster.protocol_name if group.rebalance.state is State.STABLE else None
    return make(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=chosen or "",
        members=[
            Response.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(chosen),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
