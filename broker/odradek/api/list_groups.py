"""ListGroups (16): the groups that this broker coordinates. Executed by the coordinator, in its loop."""

from typing import Any

from odradek.api.group_call import GroupCall, Pause
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_groups

Response = list_groups.Response


async def handle(request: Any, call: GroupCall) -> Any:
    """All, or those in the states and of the types asked for; case does not matter."""
    if call.view.groups.loading:
        return Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    answer = Response()
    pause = Pause()
    for group in list(call.view.groups.groups()):
        await pause.after()
        if (not states or group.state_name.lower() in states) and (not types or group.type_name in types):
            answer.groups.append(
                Response.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state_name,
                    group_type=group.type_name,
                )
            )
    return answer
