"""LeaveGroup (13): removes members from a group. Executed by the coordinator, in its loop."""

from collections.abc import Generator
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.group_call import GroupCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.groups.membership import LeaveResult
from odradek.protocol.schemas import leave_group
from odradek.security.needs import (
    OF_MEMBER,
)
from odradek.stepwise import Steps, waited

FIRST_BATCHED = 3
API = Api(
    leave_group.SCHEMA,
    versions=(0, 5),
    place=Place.GROUPS,
    rights=OF_MEMBER,
    elements=2000,
)
guard = of_whole(API)


def handle(request: leave_group.Request, call: GroupCall) -> Steps:
    """Remove the members. The response is sent when this is durable, for groups whose members are stored; it does not wait
    for the rebalance that follows."""
    if call.version < FIRST_BATCHED:
        error, errors = yield from _left(call, request.group_id, [(request.member_id, None, "")])
        return leave_group.Response(error_code=error or (errors[0] if errors else error))
    members = [(member.member_id, member.group_instance_id, member.reason or "") for member in request.members]
    error, errors = yield from _left(call, request.group_id, members)
    return leave_group.Response(
        error_code=error,
        members=[
            leave_group.Response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id, _), code in zip(members, errors, strict=False)
        ],
    )


def _left(
    call: GroupCall, group_id: str, members: list[tuple[str, str | None, str]]
) -> Generator[Any, None, LeaveResult]:
    left: LeaveResult = yield from waited(lambda then: call.view.groups.members.leave(group_id, members, then))
    return left
