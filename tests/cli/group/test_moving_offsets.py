"""Commands that compare offsets read one after the other, while the log and its reader move on: no conclusion is invented."""

from types import SimpleNamespace

import pytest

from odradek.cli.group.view import read_view
from odradek.cli.health.groups import examine_groups
from odradek.clients import groups, topics, tree_offsets
from odradek.clients.cluster import Address, Partition, TopicInfo, View
from odradek.clients.groups import CommittedOffset, GroupListing
from odradek.mirror import status
from odradek.mirror.keys import GROUP_PREFIX
from odradek.protocol.errors import ErrorCode

PLACE = ("t", 0)
TOPIC = TopicInfo("t", bytes(16), False, (Partition("t", 0, 1, 0, (1,), (1,), (), ErrorCode.NONE),))
VIEW = View("c", 1, {1: Address("h", 1)}, {}, {"t": TOPIC})
RETAINED = 3
"""The log keeps this many records, and its reader is one record ahead of the deletion, and one behind the end."""


class Moving:
    """Each request finds everything `RETAINED` records further."""

    def __init__(self, monkeypatch):
        self.start = 0
        monkeypatch.setattr(topics, "list_offsets", self.list_offsets)
        monkeypatch.setattr(groups, "fetch_offsets", self.committed)
        monkeypatch.setattr(groups, "list_groups", lambda _: [GroupListing("g", "consumer", "Active", "Classic", 1)])
        monkeypatch.setattr(groups, "pending_offsets", lambda *_: {})
        monkeypatch.setattr(tree_offsets, "groups", lambda _: [])
        monkeypatch.setattr(tree_offsets, "of_groups", lambda *_: {})
        self.cluster = SimpleNamespace(metadata=lambda _=None: VIEW)

    def list_offsets(self, cluster, partitions, time_ms, committed_only=False):
        self.start += RETAINED
        offset = self.start if time_ms == topics.EARLIEST else self.start + RETAINED
        return {PLACE: topics.ListedOffset(offset, -1, ErrorCode.NONE)}

    def committed(self, *_):
        self.start += RETAINED
        return {PLACE: CommittedOffset(self.start + 1)}


@pytest.fixture
def moving(monkeypatch):
    return Moving(monkeypatch)


def test_a_group_that_goes_on_has_lost_nothing_and_is_not_beyond_the_end(moving):
    assert examine_groups(moving.cluster, VIEW) == []


def test_the_description_of_a_group_that_goes_on_notes_nothing(moving, monkeypatch):
    described = groups.GroupDescription("g", "Classic", "Stable", "range", 1)
    monkeypatch.setattr(groups, "described_or_none", lambda *_: described)
    (row,) = read_view(moving.cluster, "g", with_offsets=True).offsets
    assert row["note"] is None and row["lag"] > 0
    (row,) = read_view(moving.cluster, f"{GROUP_PREFIX}a", with_offsets=True).offsets
    assert row["note"] == "a position in the source of a mirror" and row["lag"] is None


def test_a_mirror_that_goes_on_has_lost_nothing(moving, monkeypatch):
    plan = SimpleNamespace(
        topics=[SimpleNamespace(source=TOPIC, target="t")], source_cluster="c", refused={}, warnings=[]
    )
    monkeypatch.setattr(status, "Following", lambda *_: SimpleNamespace(plan=lambda: plan))
    monkeypatch.setattr(status, "read_workers", lambda *_: ("Stable", "", []))
    flow = SimpleNamespace(
        name="f",
        group_id="g",
        positions_group="p",
        lanes=1,
        source=SimpleNamespace(alias="a"),
        target=SimpleNamespace(alias="b"),
    )
    stopped = SimpleNamespace(reasons={})
    (row,) = status.read(flow, (), moving.cluster, moving.cluster, stopped).partitions
    assert row.stopped == "" and row.lag > 0
