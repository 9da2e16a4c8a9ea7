"""SyncGroup (14): returns the assignment of a member of a classic group; the group leader sends all assignments. Executed in
the coordinator's loop.
"""

from collections.abc import Generator
from typing import Any

from odradek._ext.api.group_requests import read_sync, sync_response
from odradek.api.api import LONG_PATIENCE_S, Api, Place
from odradek.api.groups.group_call import GroupCall, GroupView, PlainRequest, answer_encoded, may_read
from odradek.api.guarding import (
    of_whole,
)
from odradek.groups.classic_member import SyncRequest, SyncResult
from odradek.protocol import LARGE_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import sync_group
from odradek.security.needs import (
    OF_MEMBER,
)
from odradek.stepwise import Later, Pace, Steps

FIRST_WITH_PROTOCOL = 5
MEMBERS_A_STEP = 500
API = Api(
    sync_group.SCHEMA,
    versions=(0, 5),
    place=Place.GROUPS,
    rights=OF_MEMBER,
    elements=65_536,
    patience_s=LONG_PATIENCE_S,
)
guard = of_whole(API)


def at_once(request: PlainRequest, view: GroupView) -> bool:
    """Serve a request without decoding it to objects. Returns False for requests that need `handle`."""
    if len(request.payload) > LARGE_BYTES:
        return False
    read = read_sync(request.payload)
    if read is None:
        return False
    version, correlation_id, group_id, generation_id, member_id, instance_id, kind, name, assignments = read
    if not may_read(request, view, sync_group.API_KEY, group_id):
        return False

    def synced(result: SyncResult) -> None:
        answer_encoded(
            request, "SyncGroup", sync_response, version, correlation_id, result.error, result.protocol_type,
            result.protocol_name, result.assignment,
        )  # fmt: skip

    if version >= FIRST_WITH_PROTOCOL and (kind is None or name is None):
        synced(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return True
    request.park()
    view.groups.members.sync(
        group_id, SyncRequest(member_id, generation_id, assignments, instance_id, kind, name), synced
    )
    return True


def handle(request: sync_group.Request, call: GroupCall) -> Steps:
    """Return the member's assignment; the response is sent when the leader's assignments are stored."""
    if call.version >= FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return _response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assignments = yield from _assignments(request)
    sync = SyncRequest(
        request.member_id,
        request.generation_id,
        assignments,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
    )
    later, members, group_id = Later(), call.view.groups.members, request.group_id
    call.park()
    members.sync(group_id, sync, later.set)
    del request, sync, assignments  # a waiting request keeps nothing in memory that the group does not keep
    if not later.done:
        yield later
    return _response(later.value)


def _assignments(request: sync_group.Request) -> Generator[None, None, dict[str, bytes]]:
    assignments, pace = {}, Pace(MEMBERS_A_STEP)
    for member in request.assignments:
        if pace.over():
            yield
        assignments[member.member_id] = bytes(member.assignment)
    return assignments


def _response(synced: SyncResult) -> Any:
    return sync_group.Response(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
