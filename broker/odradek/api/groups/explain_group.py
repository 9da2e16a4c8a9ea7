"""ExplainGroup (20101, private): returns the last events of a group, and its pending offsets. Executed by the coordinator,
in its loop."""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.groups.group_call import GroupCall
from odradek.api.guarding import (
    Asked,
    Merged,
    Refused,
    Verdict,
    shown_in_steps,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import explain_group
from odradek.security.acl import Operation
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    need,
)
from odradek.stepwise import Pace, Steps

Response = explain_group.Response
NO_DURATION = -1
OFFSETS_A_STEP = 500
API = Api(
    explain_group.SCHEMA,
    versions=(0, 1),
    place=Place.GROUPS,
    rights=need(Operation.DESCRIBE, GROUP, GROUP_DENIED, "pending offsets of topics without DESCRIBE are left out"),
    private=True,
)


def guard(asked: Asked) -> Verdict:
    """DESCRIBE on the group. Pending offsets of topics without DESCRIBE are left out, as OffsetFetch leaves them out."""
    permits = asked.permits
    if not permits.group(Operation.DESCRIBE, asked.request.group_id):
        return Refused(
            explain_group.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=asked.request.group_id)
        )

    def merge(response: Any) -> Steps:
        response.pending_offsets = yield from shown_in_steps(
            response.pending_offsets, lambda pending: permits.topic(Operation.DESCRIBE, pending.topic, quiet=True)
        )
        return response

    return Merged(merge)


def handle(request: explain_group.Request, call: GroupCall) -> Steps:
    """Return the group's events, oldest first, that the coordinator has kept since it began to serve the group's partition."""
    if not request.group_id:
        return Response(error_code=ErrorCode.INVALID_GROUP_ID)
    error, group = call.view.groups.shards.find(request.group_id)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if group is None:
        return Response(error_code=error, group_id=request.group_id)
    response = Response(
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
    )
    pace = Pace(OFFSETS_A_STEP)
    for pending in list(group.pending):
        if pace.over():
            yield
        response.pending_offsets.append(
            Response.PendingOffset(
                topic=pending.place[0],
                partition=pending.place[1],
                offset=pending.committed.offset,
                producer_id=pending.producer_id,
                overtaken=pending.overtaken,
            )
        )
    return response
