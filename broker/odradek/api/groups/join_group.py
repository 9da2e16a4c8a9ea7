"""JoinGroup (11): a member joins or rejoins a classic group. Executed by the coordinator, in its loop."""

from typing import Any

from odradek._ext.api.group_requests import join_response, read_join
from odradek.api.api import LONG_PATIENCE_S, Api, Place
from odradek.api.groups.group_call import (
    GroupCall,
    GroupView,
    PlainRequest,
    answer_encoded,
    host_of,
    may_read,
)
from odradek.api.guarding import (
    of_whole,
)
from odradek.groups.classic_member import JoinRequest, JoinResult
from odradek.protocol import LARGE_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import join_group
from odradek.security.needs import (
    OF_MEMBER,
)
from odradek.stepwise import Later, Steps

FIRST_WITH_MEMBER_ID_REQUIRED = 4
FIRST_NULLABLE_PROTOCOL = 7
FIRST_SKIP_ASSIGNMENT = 9
API = Api(
    join_group.SCHEMA,
    versions=(0, 9),
    place=Place.GROUPS,
    rights=OF_MEMBER,
    elements=1000,
    patience_s=LONG_PATIENCE_S,
)
guard = of_whole(API)


def refuse(_request: join_group.Request, version: int, code: ErrorCode, _message: str | None) -> Any:
    """See `odradek.api.api`."""
    return join_group.Response(error_code=code, generation_id=-1, protocol_name=None if version >= 7 else "")


def at_once(request: PlainRequest, view: GroupView) -> bool:
    """Serve a request without decoding it to objects. Returns False for requests that need `handle`."""
    if len(request.payload) > LARGE_BYTES:
        return False
    read = read_join(request.payload)
    if read is None:
        return False
    version, correlation_id, group_id, session_ms, rebalance_ms, member_id, instance_id, kind, protocols, reason = read
    if not may_read(request, view, join_group.API_KEY, group_id):
        return False

    def joined(result: JoinResult) -> None:
        answer_encoded(
            request, "JoinGroup", join_response, version, correlation_id, result.error, result.generation_id,
            result.protocol_type, result.protocol_name, result.leader, result.skip_assignment, result.member_id,
            result.members,
        )  # fmt: skip

    context = request.context
    join = JoinRequest(
        member_id,
        session_ms,
        rebalance_ms if rebalance_ms >= 0 else session_ms,
        kind,
        protocols,
        context.client_id or "",
        f"/{host_of(context.peer)}",
        instance_id,
        version >= FIRST_WITH_MEMBER_ID_REQUIRED,
        version >= FIRST_SKIP_ASSIGNMENT,
        reason or "",
        context.principal,
    )
    request.park()
    request.when_gone(lambda: view.groups.members.join_disconnected(group_id, joined))
    view.groups.members.join(group_id, join, joined)
    return True


def handle(request: join_group.Request, call: GroupCall) -> Steps:
    """Join the group; the response is sent when the rebalance that this may cause has ended."""
    timeout_ms = request.rebalance_timeout_ms
    members = call.view.groups.members
    subscribed = None
    if request.protocols and members.reads_subscriptions(request.group_id):
        subscribed = yield from members.subscribed_in_steps(bytes(request.protocols[0].metadata))
    join = JoinRequest(
        member_id=request.member_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=timeout_ms if call.version >= 1 and timeout_ms >= 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        instance_id=request.group_instance_id,
        id_required=call.version >= FIRST_WITH_MEMBER_ID_REQUIRED,
        skip_assignment=call.version >= FIRST_SKIP_ASSIGNMENT,
        reason=request.reason or "",
        principal=call.principal,
        subscribed=subscribed,
    )
    later, group_id = Later(), request.group_id
    then = later.set
    call.park()
    members.join(group_id, join, then)
    del request, join, subscribed  # a waiting request keeps nothing in memory that the group does not keep
    if not later.done:
        try:
            yield later
        finally:
            if not later.done:  # the client has disconnected
                members.join_disconnected(group_id, then)
    joined: JoinResult = later.value
    name = joined.protocol_name
    return join_group.Response(
        error_code=joined.error,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=name if name is not None or call.version >= FIRST_NULLABLE_PROTOCOL else "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            join_group.Response.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ],
    )
