"""ListGroups (16): lists the groups that this broker coordinates. Executed by the coordinator, in its loop."""

from odradek.api.api import Api, Guarded, Place
from odradek.api.groups.group_call import GroupCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_groups
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    GROUP,
    either,
)
from odradek.stepwise import Pace, Steps

Response = list_groups.Response
GROUPS_A_STEP = 500
API = Api(
    list_groups.SCHEMA,
    versions=(0, 5),
    place=Place.GROUPS,
    rights=either((Operation.DESCRIBE, CLUSTER), (Operation.DESCRIBE, GROUP), refused="other groups are left out"),
    guarded=Guarded.INSIDE,
)


def handle(request: list_groups.Request, call: GroupCall) -> Steps:
    """List all groups, or those with the requested states and types; both are compared without regard to case. Without DESCRIBE
    on the cluster, only groups with DESCRIBE are listed."""
    if call.view.groups.shards.loading:
        return Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = Response()
    pace = Pace(GROUPS_A_STEP)
    permits = call.permits
    shows_all = permits.cluster(Operation.DESCRIBE, quiet=True)
    for group in list(call.view.groups.shards.groups()):
        if pace.over():
            yield
        if not shows_all and not permits.group(Operation.DESCRIBE, group.group_id, quiet=True):
            continue
        if (not states or group.state_name.lower() in states) and (not types or group.type_name in types):
            response.groups.append(
                Response.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state_name,
                    group_type=group.type_name,
                )
            )
    return response
