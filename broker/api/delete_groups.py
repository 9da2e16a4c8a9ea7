"""DeleteGroups (42): groups without members are deleted, with their offsets. Executed by the coordinator, in its loop."""

import asyncio
from typing import Any

from broker.api.group_call import GroupCall, answered
from broker.protocol import delete_groups
from broker.protocol.errors import ErrorCode

Response = delete_groups.Response
AT_ONCE = 100


async def handle(request: Any, call: GroupCall) -> Any:
    """Each for itself."""

    async def delete(group_id: str) -> ErrorCode:
        return await answered(lambda then: call.view.groups.delete(group_id, then))

    names = list(dict.fromkeys(request.groups_names))
    errors: list[ErrorCode] = []
    for first in range(0, len(names), AT_ONCE):
        errors += await asyncio.gather(*(delete(name) for name in names[first : first + AT_ONCE]))
    return Response(
        results=[
            Response.DeletableGroupResult(group_id=name, error_code=error)
            for name, error in zip(names, errors, strict=True)
        ]
    )
