"""OffsetFetch of a client that requires stable offsets: only a coordinator that is not deposed serves them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.groups.offset_fetch import handle
from odradek.groups.offsets import CommittedOffset, Offsets
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_fetch
from odradek.stepwise import Steps
from tests.groups.handling import handled

NONE, DEPOSED = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
WITH_GROUPS = 8


def fetch(version: int, stable: bool, confirmation: ErrorCode) -> tuple[int, list[int], list[str]]:
    """The error of a group, its offsets, and the groups for which the coordinator was confirmed."""
    offsets = Offsets()
    offsets.put("orders", 0, CommittedOffset(5))
    confirmed: list[str] = []

    def confirm(group_id: str) -> Steps:
        confirmed.append(group_id)
        return confirmation
        yield

    groups = SimpleNamespace(fetch=lambda *_: (NONE, offsets), unstable_places=lambda _: ())
    call: Any = SimpleNamespace(
        version=version, view=SimpleNamespace(groups=groups, confirm=confirm), topic=lambda _: None
    )
    make = offset_fetch.Request
    if version < WITH_GROUPS:
        topics = [make.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        request = make(group_id="g", topics=topics, require_stable=stable)
        found = asyncio.run(handled(handle, request, call))
    else:
        topics = [make.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
        groups_of_request = [make.OffsetFetchRequestGroup(group_id="g", topics=topics)]
        response = asyncio.run(handled(handle, make(groups=groups_of_request, require_stable=stable), call))
        (found,) = response.groups
    committed = [partition.committed_offset for topic in found.topics for partition in topic.partitions]
    return found.error_code, committed, confirmed


@pytest.mark.parametrize("version", [7, 8, 9])
def test_stable_offsets_are_served_once_the_coordinator_is_confirmed(version: int) -> None:
    assert fetch(version, True, NONE) == (NONE, [5], ["g"])
    assert fetch(version, True, DEPOSED) == (DEPOSED, [], ["g"])
    assert fetch(version, False, DEPOSED) == (NONE, [5], []), "other clients do not wait"
