"""Heartbeat (12): a member of a classic group is alive. Executed by the coordinator, in its loop."""

from typing import Any

from broker.api.group_call import GroupCall
from broker.protocol import heartbeat


async def handle(request: Any, call: GroupCall) -> Any:
    """At once."""
    error = call.view.groups.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    return heartbeat.Response(error_code=error)
