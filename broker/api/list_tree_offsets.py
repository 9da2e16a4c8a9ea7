"""ListTreeOffsets (20102, private): the groups in the metadata tree. Executed by the coordinator, in its controller thread."""

from collections.abc import Generator
from typing import Any

from broker.api.coordinator_call import CoordinatorCall
from broker.api.stepwise import Pace, Steps
from broker.metadata import group_offsets
from broker.metadata.store import Store
from broker.protocol import list_tree_offsets

STEP = 500
Response = list_tree_offsets.Response


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """The names of all groups; or the offsets of those that are named, without the groups that are not in the tree."""
    store = call.view.store
    if request.group_ids is None:
        return Response(groups=[Response.Group(group_id=name) for name in (yield from _names(store))])
    groups = []
    pace = Pace(STEP)
    for name in dict.fromkeys(request.group_ids):
        topics: dict[str, list[Any]] = {}
        found = (yield from group_offsets.describe(store, name)) if group_offsets.may_be_in_tree(name) else {}
        if pace.over(1 + len(found)):
            yield
        for (topic, partition), offset in sorted(found.items()):
            one = Response.Partition(partition_index=partition, committed_offset=offset)
            topics.setdefault(topic, []).append(one)
        if topics:
            listed = [Response.Topic(name=topic, partitions=ones) for topic, ones in topics.items()]
            groups.append(Response.Group(group_id=name, topics=listed))
    return Response(groups=groups)


def _names(store: Store) -> Generator[None, None, list[str]]:
    names: list[str] = []
    while some := group_offsets.groups(store, names[-1] if names else "", STEP):
        names += some
        yield
    return names
