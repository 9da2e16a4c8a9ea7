"""DeleteGroups (42): deletes groups without members, with their offsets. Executed by the coordinator, in its loop.

A group may have offsets in `__consumer_offsets`, in the metadata tree, or in both; all of them are deleted.
"""

import asyncio
import logging

from odradek.api.api import Api, Place
from odradek.api.groups.denied import denied_groups
from odradek.api.groups.group_call import GroupCall, answered, result_of
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
)
from odradek.controller.store_errors import code_of
from odradek.metadata.group_offsets import may_be_in_tree
from odradek.metadata.store import StoreError, StoreTimeout, WrongTree
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_groups
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    need,
)
from odradek.stepwise import Steps

log = logging.getLogger("odradek.groups")

Response = delete_groups.Response
AT_ONCE = 100
API = Api(
    delete_groups.SCHEMA,
    versions=(0, 2),
    place=Place.GROUPS,
    rights=need(Operation.DELETE, GROUP, GROUP_DENIED),
)


def guard(asked: Asked) -> VerdictInSteps:
    """DELETE on the groups."""
    request = asked.request
    names = request.groups_names
    denied = yield from asked.permits.denied_in_steps(Operation.DELETE, ResourceType.GROUP, names)
    if not denied:
        return None
    make = delete_groups.Response.DeletableGroupResult
    refused = yield from denied_groups(names, denied, make)
    request.groups_names = [name for name in request.groups_names if name not in denied]
    return Merged(appended("results", refused))


def handle(request: delete_groups.Request, call: GroupCall) -> Steps:
    """Delete each group independently."""
    names = list(dict.fromkeys(request.groups_names))
    errors: list[ErrorCode] = []
    for first in range(0, len(names), AT_ONCE):
        errors += yield from result_of(_deleted(names[first : first + AT_ONCE], call))
    return Response(
        results=[
            Response.DeletableGroupResult(group_id=name, error_code=error)
            for name, error in zip(names, errors, strict=True)
        ]
    )


async def _deleted(names: list[str], call: GroupCall) -> list[ErrorCode]:
    """Delete these groups at the same time."""

    async def delete(group_id: str) -> ErrorCode:
        try:
            return await delete_everywhere(group_id)
        except StoreError as error:
            log.warning("cannot delete group %s from the metadata tree: %s", group_id, error)
            # Clients retry after this error, but not after REQUEST_TIMED_OUT.
            return (
                ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, StoreTimeout | WrongTree) else code_of(error)
            )

    async def delete_everywhere(group_id: str) -> ErrorCode:
        tree = call.view.tree if may_be_in_tree(group_id) else None
        if tree is not None and await tree.has_members(group_id):
            return ErrorCode.NON_EMPTY_GROUP
        outcome: ErrorCode = await answered(lambda then: call.view.groups.delete(group_id, then))
        if tree is not None and outcome in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return ErrorCode.NONE if await tree.delete(group_id) else outcome
        return outcome

    return await asyncio.gather(*(delete(name) for name in names))
