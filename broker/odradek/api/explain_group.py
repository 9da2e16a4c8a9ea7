"""ExplainGroup (20101, private): returns the last events of a group, and its pending offsets. Executed by the coordinator,
in its loop."""

from typing import Any

from odradek.api.group_call import GroupCall, Pause
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import explain_group

Response = explain_group.Response
NO_DURATION = -1


async def handle(request: Any, call: GroupCall) -> Any:
    """Return the group's events, oldest first, that the coordinator has kept since it began to serve the group's partition."""
    if not request.group_id:
        return Response(error_code=ErrorCode.INVALID_GROUP_ID)
    error, group = call.view.groups.shards.find(request.group_id)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if group is None:
        return Response(error_code=error, group_id=request.group_id)
    return Response(
        group_id=request.group_id,
        events=[
            Response.Event(
                at_ms=event.at_ms,
                kind=event.kind,
                member_id=event.member,
                client=event.client,
                why=event.why,
                took_ms=NO_DURATION if event.took_ms is None else event.took_ms,
            )
            for event in group.protocol.history
        ],
        pending_offsets=[
            Response.PendingOffset(
                topic=pending.place[0],
                partition=pending.place[1],
                offset=pending.committed.offset,
                producer_id=pending.producer_id,
                overtaken=pending.overtaken,
            )
            async for pending in Pause().between(list(group.pending))
        ],
    )
