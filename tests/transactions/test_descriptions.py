"""Descriptions and lists of transactions."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import ListFilter, Owner
from odradek.transactions.states import State
from tests.transactions.by_hand import ID, NONE, ORDERS, Reply


@pytest.fixture
def several(process):
    """Ids in several states; `idle` is packed."""
    process.init("idle")
    process.coordinator.abort_timed_out()
    process.coordinator.abort_timed_out()
    process.init("ongoing")
    process.add(ID + 1, 0, name="ongoing")
    process.timers.advance(1000)
    process.init("done")
    process.add(ID + 2, 0, name="done")
    process.end(ID + 2, 0, name="done")
    return process


def listed(process, **filters):
    code, unknown, found = process.coordinator.list(ListFilter(**filters))
    assert code == NONE
    return unknown, sorted(row.transactional_id for row in found if row is not None)


@pytest.mark.parametrize(
    ("filters", "unknown", "expected"),
    [
        ({}, [], ["done", "idle", "ongoing"]),
        ({"states": ["Empty"]}, [], ["idle"]),
        ({"states": ["Empty", "CompleteCommit"]}, [], ["done", "idle"]),
        ({"states": ["Dead", "PrepareEpochFence"]}, [], []),
        ({"states": ["Nothing", "Ongoing", "empty"]}, ["Nothing", "empty"], ["ongoing"]),
        ({"states": ["Nothing"]}, ["Nothing"], []),
        ({"producer_ids": [ID, ID + 2, 5]}, [], ["done", "idle"]),
        ({"longer_than_ms": 0}, [], ["idle", "ongoing"]),
        ({"longer_than_ms": 999}, [], ["idle", "ongoing"]),
        ({"longer_than_ms": 1000}, [], ["idle"]),
        ({"matches": lambda name: "o" in name}, [], ["done", "ongoing"]),
        ({"states": ["Ongoing"], "producer_ids": [ID]}, [], []),
    ],
)
def test_filters_of_lists(several, filters, unknown, expected):
    assert listed(several, **filters) == (unknown, expected)


def test_descriptions(several):
    now = several.timers.now_ms()
    assert several.coordinator.describe("idle")[1] == ("Empty", 60_000, -1, ID, 0, ())
    assert several.coordinator.describe("ongoing")[1] == ("Ongoing", 60_000, now - 1000, ID + 1, 0, (ORDERS,))
    assert several.coordinator.describe("done")[1] == ("CompleteCommit", 60_000, now, ID + 2, 1, ())
    assert several.coordinator.describe("no")[0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_owners_of_producer_ids(several):
    several.held = True
    several.init("ending")
    several.add(ID + 3, 0, name="ending")
    several.end(ID + 3, 0, name="ending")
    ongoing = Owner("ongoing", ID + 1, 0, "Ongoing", (ORDERS,))
    ending = Owner("ending", ID + 3, 1, "PrepareCommit", (ORDERS,))
    assert several.coordinator.open_transactions() == {ID + 1: ongoing, ID + 3: ending}
    assert several.coordinator.owner_of(ID + 1) == ongoing
    assert several.coordinator.owner_of(ID) == Owner("idle", ID, 0, "Empty", ())
    assert several.coordinator.owner_of(5) is None
    assert several.coordinator.known(ID, 0)
    assert not several.coordinator.known(ID, 1)
    assert several.coordinator.completing == 1
    several.write_markers()
    assert several.coordinator.completing == 0


def test_states_are_members_of_the_enumeration(ongoing):
    """A comparison by identity must also hold for states that were read."""
    ongoing.load()
    facts = ongoing.coordinator.shards.by_partition[0].active["t"].facts
    assert facts.state is State.ONGOING


def test_replies_are_given_once():
    reply = Reply()
    reply(1)
    with pytest.raises(AssertionError):
        reply(2)


def test_only_some_ids_are_packed_at_once(process, monkeypatch):
    monkeypatch.setattr("odradek.transactions.coordinator.MOST_PACKED", 2)
    for name in ("a", "b", "c"):
        process.init(name)
    shard = process.coordinator.shards.by_partition[0]
    sizes = []
    for _ in range(3):
        process.coordinator.abort_timed_out()
        sizes.append((len(shard.active), len(shard.idle)))
    assert sizes == [(3, 0), (1, 2), (0, 3)]
