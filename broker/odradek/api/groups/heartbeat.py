"""Heartbeat (12): a member of a classic group reports that it is alive. Executed by the coordinator, in its loop."""

from typing import Any

from odradek._ext.api.group_requests import heartbeat_response, read_heartbeat
from odradek.api.api import Api, Place
from odradek.api.groups.group_call import GroupCall, GroupView, PlainRequest, may_read
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.schemas import heartbeat
from odradek.security.needs import (
    OF_MEMBER,
)

API = Api(
    heartbeat.SCHEMA,
    versions=(0, 4),
    place=Place.GROUPS,
    rights=OF_MEMBER,
)
guard = of_whole(API)


def at_once(request: PlainRequest, view: GroupView) -> bool:
    """Serve a request without decoding it to objects. Returns False for requests that need `handle`."""
    read = read_heartbeat(request.payload)
    if read is None:
        return False
    version, correlation_id, group_id, generation_id, member_id, instance_id = read
    if not may_read(request, view, heartbeat.API_KEY, group_id):
        return False
    error = view.groups.members.heartbeat(group_id, member_id, generation_id, instance_id)
    request.answer(heartbeat_response(version, correlation_id, error))
    return True


def handle(request: heartbeat.Request, call: GroupCall) -> Any:
    """Serve a request that `at_once` did not serve."""
    error = call.view.groups.members.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    return heartbeat.Response(error_code=error)
