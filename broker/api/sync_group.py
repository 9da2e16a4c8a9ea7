"""SyncGroup (14): a member of a classic group gets its assignment; the leader brings all. In the coordinator's loop."""

from typing import Any

from broker.api.group_call import GroupCall, answered
from broker.groups.classic_member import Sync, Synced
from broker.protocol import sync_group
from broker.protocol.errors import ErrorCode

FIRST_WITH_PROTOCOL = 5


async def handle(request: Any, call: GroupCall) -> Any:
    """Answered when the leader's assignment is stored."""
    if call.version >= FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return _response(Synced(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    sync = Sync(
        request.member_id,
        request.generation_id,
        {one.member_id: bytes(one.assignment) for one in request.assignments},
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
    )
    return _response(await answered(lambda then: call.view.groups.sync(request.group_id, sync, then)))


def _response(synced: Synced) -> Any:
    return sync_group.Response(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
