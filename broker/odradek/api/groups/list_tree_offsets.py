"""ListTreeOffsets (20102, private): lists the groups in the metadata tree, or their offsets. Executed by the coordinator, in
its store thread.
"""

from collections.abc import Generator
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    Asked,
    Merged,
    Refused,
    Verdict,
    shown_in_steps,
)
from odradek.metadata import group_offsets
from odradek.metadata.store import Store
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_tree_offsets
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    TOPIC,
    each,
)
from odradek.stepwise import Pace, Steps

STEP = 500
OF_GROUP = 30
"""What a group counts in a step, besides its offsets: some calls of the store."""
Response = list_tree_offsets.Response
API = Api(
    list_tree_offsets.SCHEMA,
    versions=(0, 0),
    place=Place.COORDINATOR,
    rights=each(
        (Operation.DESCRIBE, GROUP),
        (Operation.DESCRIBE, TOPIC),
        refused=GROUP_DENIED,
        note="hidden topics are left out",
    ),
    private=True,
)


def guard(asked: Asked) -> Verdict:
    """DESCRIBE on the groups, and on the topics: what is denied is left out; without a right for a named group, 30."""
    request, permits = asked.request, asked.permits
    if request.group_ids and permits.denied(Operation.DESCRIBE, ResourceType.GROUP, request.group_ids):
        return Refused(list_tree_offsets.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))

    def merge(response: Any) -> Steps:
        response.groups = yield from shown_in_steps(
            response.groups, lambda group: permits.group(Operation.DESCRIBE, group.group_id, quiet=True)
        )
        for group in response.groups:
            group.topics = yield from shown_in_steps(
                group.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.name, quiet=True)
            )
            yield
        return response

    return Merged(merge)


def handle(request: list_tree_offsets.Request, call: CoordinatorCall) -> Steps:
    """List the names of all groups; or, if groups are named, their offsets, without groups that are not in the tree."""
    store = call.view.store
    if request.group_ids is None:
        return Response(groups=(yield from _all_groups(store)))
    groups = []
    pace = Pace(STEP)
    for name in dict.fromkeys(request.group_ids):
        topics: dict[str, list[Any]] = {}
        offsets = (yield from group_offsets.describe(store, name)) if group_offsets.may_be_in_tree(name) else {}
        if pace.over(OF_GROUP + len(offsets)):
            yield
        for (topic, partition), offset in sorted(offsets.items()):
            row = Response.Partition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(row)
        if topics:
            listed = [Response.Topic(name=topic, partitions=rows) for topic, rows in topics.items()]
            groups.append(Response.Group(group_id=name, topics=listed))
    return Response(groups=groups)


def _all_groups(store: Store) -> Generator[None, None, list[Any]]:
    groups: list[Any] = []
    after = ""
    while names := group_offsets.groups(store, after, STEP):
        groups += [Response.Group(group_id=name) for name in names]
        after = names[-1]
        yield
    return groups
