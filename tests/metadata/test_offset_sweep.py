"""Offsets of deleted topics in the metadata tree: not returned, and deleted later, in steps of limited length."""

import random

import pytest

from odradek.metadata import group_offsets, offset_sweep, znodes
from odradek.metadata.offset_sweep import OffsetSweep
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import StoreError, delete_tree


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "tree.db")
    store.create("/consumers")
    store.create(znodes.TOPICS, make_parents=True)
    yield store
    store.close()


def create(store, *topics):
    for topic in topics:
        store.create(znodes.topic_path(topic))


def delete(store, topic):
    delete_tree(store, znodes.topic_path(topic))


def offsets_of(store, group):
    """The offsets of a group that clients receive."""
    steps = group_offsets.describe(store, group)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def paths(store, path="/consumers"):
    """All nodes below a node."""
    return [
        below
        for name in store.children(path)
        for below in (f"{path}/{name}", *paths(store, f"{path}/{name}"))
    ]  # fmt: skip


def sweep(store):
    sweeper = OffsetSweep(store)
    while sweeper.step():
        pass


def test_the_offsets_of_a_portion_are_stored_in_one_transaction(store):
    create(store, "a", "b")
    statements = []
    store._db.set_trace_callback(statements.append)
    for number in (0, 7):
        statements.clear()
        offsets = {(topic, partition): number + partition for topic in "ab" for partition in range(100)}
        group_offsets.write(store, "g", offsets)
        assert statements.count("COMMIT") == 1
        assert offsets_of(store, "g") == offsets


def test_an_offset_of_a_deleted_topic_is_not_returned_for_a_new_topic_of_that_name(store):
    create(store, "t")
    group_offsets.write(store, "g", {("t", 0): 5, ("t", 1): 6})
    delete(store, "t")
    assert offsets_of(store, "g") == {}
    create(store, "t")
    assert group_offsets.read(store, "g", [("t", 0), ("t", 1)]) == {}
    group_offsets.write(store, "g", {("t", 1): 7})
    assert group_offsets.read(store, "g", [("t", 0), ("t", 1)]) == offsets_of(store, "g") == {("t", 1): 7}


def test_nodes_of_deleted_topics_are_deleted_and_all_others_are_kept(store):
    create(store, "kept", "gone", "new")
    group_offsets.write(store, "both", {("kept", 0): 1, ("gone", 0): 2, ("gone", 1): 3, ("new", 0): 4, ("new", 1): 5})
    group_offsets.write(store, "alone", {("gone", 0): 6})
    group_offsets.write(store, "renewed", {("new", 0): 7})
    group_offsets.write(store, "member", {("gone", 0): 8})
    store.create("/consumers/member/ids/consumer-1", make_parents=True)
    store.create("/consumers/both/owners/gone/0", make_parents=True)
    store.create("/consumers/both/owners/kept/0", make_parents=True)
    delete(store, "gone")
    delete(store, "new")
    create(store, "new")
    group_offsets.write(store, "both", {("new", 1): 9})
    sweep(store)
    below = [
        "",
        "/offsets",
        "/offsets/kept",
        "/offsets/kept/0",
        "/offsets/new",
        "/offsets/new/1",
        "/owners",
        "/owners/kept",
    ]
    assert paths(store) == [
        *(f"/consumers/both{path}" for path in [*below, "/owners/kept/0"]),
        "/consumers/member",
        "/consumers/member/ids",
        "/consumers/member/ids/consumer-1",
        "/consumers/member/offsets",
    ]
    assert offsets_of(store, "both") == {("kept", 0): 1, ("new", 1): 9}


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("seed", range(8))
def test_a_sweep_between_other_changes_deletes_no_valid_offset(store, monkeypatch, seed, step):
    monkeypatch.setattr(offset_sweep, "STEP", step)
    monkeypatch.setattr(group_offsets, "PORTION", 3)
    rng = random.Random(seed)
    sweeper, topics, expected = OffsetSweep(store), set(), {}
    for _ in range(150):
        topic, group = rng.choice("abc"), rng.choice("xyz")
        act = rng.randrange(5)
        if act == 0 and topic in topics:
            topics.discard(topic)
            delete(store, topic)
            sweeper.request()
            expected = {key: offset for key, offset in expected.items() if key[1] != topic}
        elif act == 1 and topic not in topics:
            topics.add(topic)
            create(store, topic)
        elif act == 2 and topics:
            offsets = {(rng.choice(sorted(topics)), rng.randrange(4)): rng.randrange(100) for _ in range(3)}
            group_offsets.write(store, group, offsets)
            expected |= {(group, *place): offset for place, offset in offsets.items()}
        else:
            sweeper.step()
        stored = {(group, *place): at for group in "xyz" for place, at in offsets_of(store, group).items()}
        assert stored == expected
    while sweeper.step():
        pass
    assert sum(path.count("/") == 5 for path in paths(store)) == len(expected)
    assert set(group_offsets.groups(store)) == {group for group, _, _ in expected}


def test_the_steps_of_a_sweep_do_not_grow_with_the_number_of_groups_or_offsets(store):
    create(store, "kept", "gone")
    places = [
        (f"{group}/offsets/{topic}/{p}", b"1", 0) for group in range(600) for topic in ("kept", "gone") for p in (0, 1)
    ]
    places += [(f"wide/offsets/gone/{partition}", b"1", 0) for partition in range(2000)]
    store.fill([(f"/consumers/{path}", data, version) for path, data, version in places])
    delete(store, "gone")
    statements = []
    store._db.set_trace_callback(statements.append)
    sweeper = OffsetSweep(store)
    max_statements, more = 0, True
    while more:
        statements.clear()
        more = sweeper.step()
        max_statements = max(max_statements, len(statements))
        assert statements.count("COMMIT") <= 3
    store._db.set_trace_callback(None)
    assert max_statements <= 20 * offset_sweep.STEP
    assert len(group_offsets.groups(store, limit=10_000)) == 600
    assert sum(path.count("/") == 5 for path in paths(store)) == 1200


def test_a_sweep_that_fails_begins_again(store):
    create(store, "gone")
    group_offsets.write(store, "g", {("gone", 0): 1})
    delete(store, "gone")
    sweeper = OffsetSweep(store)
    store._db.execute("CREATE TRIGGER full BEFORE DELETE ON node BEGIN SELECT RAISE(FAIL, 'full'); END")
    with pytest.raises(StoreError):
        sweeper.step()
    store._db.execute("DROP TRIGGER full")
    while sweeper.step():
        pass
    assert paths(store) == []
