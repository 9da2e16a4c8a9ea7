"""A kill between every two steps of changes to a partition's producers, their memory, and their snapshots.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import owner_counts, slot_upkeep, slots, snapshot_publishing
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.testing import producer_memory, slot_probe
from odradek.storage.producer_snapshot import read_snapshot
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import OneBroker, batch

pytestmark = pytest.mark.faults
require_fault_points()

ALICE, BOB = 1, 2
ARENA_BYTES = 1 << 20
ARENA = [point for point in FaultPoint if point.name.startswith("ARENA_")]
PUBLISH = [point for point in FaultPoint if point.name.startswith("SNAPSHOT_")]
ENTRY = [
    FaultPoint.PRODUCER_KEY_STORED,
    FaultPoint.PRODUCER_HALF_LISTED,
    FaultPoint.PRODUCER_HALF_DROPPED,
    FaultPoint.PRODUCER_BATCH_STORED,
    FaultPoint.PRODUCER_RUN_FILLED,
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=3, arena_bytes=ARENA_BYTES, silent_ms=-1000) as made:
        yield made


def first(producer: int) -> bytes:
    return batch(1, producer_id=producer, producer_epoch=0, base_sequence=0)


def bring(slot: int, owner: int, numbers: range) -> None:
    for number in numbers:
        assert slot_probe.append(slot, [first(number)], owner=owner)[0][0] == 0


def check(broker: OneBroker, slot: int) -> set[int]:
    """Whom the partition knows. Each of them is found, index, lists, counts and arena agree."""
    known = slot_probe.producers(slot)
    assert slot_facts.describe(slot).producer_count == len(known)
    for number, (_, batches) in known.items():
        assert slot_probe.append(slot, [first(number)], owner=ALICE) == [(0, batches[0][2], True)]
    slot_upkeep.reclaim_arena()
    owner_counts.count_again()
    found = [owner for index in range(broker.shm.slots_used) for owner, _ in slot_probe.producers_heard(index).values()]
    assert (producer_memory.producers_of(ALICE), producer_memory.producers_of(BOB)) == (
        found.count(ALICE),
        found.count(BOB),
    )
    return set(known)


def check_arena(broker: OneBroker, made: list[int]) -> None:
    """All of the memory comes back, in one piece."""
    for slot in made:
        assert slot_upkeep.expire(slot, 1 << 62) >= 0
        assert slot_probe.producers(slot) == {}
    slot_upkeep.reclaim_arena()
    assert broker.shm.producer_state["used_bytes"] == 0
    slot = broker.create("large")
    broker.obey(slot, 1)  # a follower has no limit by client
    for offset in range(250):
        slots.follow(slot, batch(base_offset=offset, producer_id=offset, producer_epoch=0, base_sequence=0), 0)
    assert broker.shm.producer_state["used_bytes"] == ARENA_BYTES // 8


@pytest.mark.parametrize("countdown", [1, 2, 5])
@pytest.mark.parametrize("point", ENTRY, ids=lambda point: point.name)
def test_a_change_of_producers_killed_anywhere(broker: OneBroker, point: FaultPoint, countdown: int) -> None:
    if point == FaultPoint.PRODUCER_RUN_FILLED and countdown > 1:
        return  # met once
    slot = broker.create()
    bring(slot, BOB, range(20))
    if point == FaultPoint.PRODUCER_HALF_DROPPED:
        bring(slot, ALICE, range(1000, 1064))  # as many as a client may have here
    new = range(2000, 2040)
    broker.die(lambda: bring(slot, ALICE, new), point, countdown=countdown)
    bring(slot, ALICE, new)
    known = check(broker, slot)
    assert set(range(20)) < known, "a producer of another client is missing"
    assert set(new) < known
    assert slot_facts.describe(slot).lock_recoveries == 1
    check_arena(broker, [slot])


def test_after_a_death_the_oldest_producers_are_still_evicted_first(broker: OneBroker) -> None:
    """New producers take the places of those that were evicted; the lists are made again by age, not by place."""
    slot = broker.create()
    oldest, newer = range(1000, 1064), range(2000, 2004)
    bring(slot, ALICE, oldest)  # as many as a client may have here
    broker.die(lambda: bring(slot, ALICE, range(2000, 2005)), FaultPoint.PRODUCER_HALF_DROPPED, countdown=5)
    bring(slot, ALICE, range(3000, 3060))
    assert slot_facts.describe(slot).lock_recoveries == 1
    assert check(broker, slot) == {*newer, *range(3000, 3060)}


@pytest.mark.parametrize("countdown", [1, 2, 3, 4])
@pytest.mark.parametrize("point", ARENA, ids=lambda point: point.name)
def test_an_allocation_killed_anywhere(broker: OneBroker, point: FaultPoint, countdown: int) -> None:
    slot, other = broker.create(), broker.create("other")
    bring(other, BOB, range(10))

    def comings_and_goings() -> None:
        bring(slot, ALICE, range(40))
        slot_upkeep.expire(slot, 1 << 62)
        bring(slot, ALICE, range(40))

    broker.die(comings_and_goings, point, countdown=countdown)
    bring(slot, ALICE, range(40))
    assert set(range(40)) <= check(broker, slot)
    assert set(slot_probe.producers(other)) == set(range(10))
    check_arena(broker, [slot, other])


def test_a_repair_of_the_arena_may_be_killed_too(broker: OneBroker) -> None:
    slot = broker.create()
    bring(slot, ALICE, range(3))
    # It dies with the run given back, and not in a list; who takes the mutex next merges it with its neighbour.
    broker.die(lambda: bring(slot, ALICE, range(3, 40)), FaultPoint.ARENA_RUN_GIVEN)
    broker.die(lambda: bring(slot, ALICE, range(3, 40)), FaultPoint.ARENA_RUN_MERGED, place=2)
    bring(slot, ALICE, range(40))
    assert check(broker, slot) == set(range(40))
    check_arena(broker, [slot])


def rolled(broker: OneBroker) -> int:
    slot = broker.create()
    bring(slot, ALICE, range(5))
    slot_probe.roll(slot)
    bring(slot, ALICE, range(5, 8))
    return slot


def sound(broker: OneBroker, slot: int) -> dict[int, int]:
    """Snapshots in place, each of them whole: how many producers."""
    return {int(path.stem): len(read_snapshot(path)) for path in broker.table.path(slot).glob("*.snapshot")}


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("point", PUBLISH, ids=lambda point: point.name)
def test_a_snapshot_is_complete_or_missing_wherever_its_writer_dies(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, again: bool
) -> None:
    slot = rolled(broker)

    def roll_and_publish() -> None:
        slot_probe.roll(slot)
        snapshot_publishing.publish()

    broker.die(roll_and_publish, point)
    there = sound(broker, slot)
    assert there == ({5: 5} if point == FaultPoint.SNAPSHOT_RENAMED else {})
    loaded = broker.reload(slot, tmp_path / "copy")
    assert {one.producer_id for one in loaded.producers} == set(range(8))
    assert not list((tmp_path / "copy").glob("*.tmp"))
    if again:
        slot_probe.roll(slot)
    assert snapshot_publishing.publish() == {}
    assert snapshot_publishing.pending() == []
    # Without another roll there is none of the one that was killed before its segment was committed.
    assert sound(broker, slot) == ({5: 5, 8: 8} if again or point != FaultPoint.SNAPSHOT_WRITTEN else {5: 5})


def test_a_snapshot_left_incomplete_by_a_death_is_not_renamed(broker: OneBroker) -> None:
    """A process died amid its writing, and the log went on without a roll there."""
    slot = rolled(broker)
    half = broker.table.path(slot) / f"{3:020d}.snapshot.tmp"
    half.write_bytes((broker.table.path(slot) / f"{5:020d}.snapshot.tmp").read_bytes()[:-1])
    assert snapshot_publishing.publish() == {}
    assert sound(broker, slot) == {5: 5}
    assert not half.exists()


def test_a_truncation_removes_the_snapshots_after_it(broker: OneBroker) -> None:
    slot = rolled(broker)
    slot_probe.roll(slot)
    broker.obey(slot, 1)
    truncate: Callable[[], None] = lambda: slots.truncate(slot, 6)  # noqa: E731
    broker.die(truncate, FaultPoint.TRUNCATE_SEGMENTS_REMOVED)
    slots.follow(slot, b"", 0)
    assert snapshot_publishing.publish() == {}
    assert sound(broker, slot) == {}
    assert {*slot_probe.producers(slot)} == set(range(6))
    slots.follow(slot, batch(base_offset=6, producer_id=9, producer_epoch=0, base_sequence=0), 0)
    slot_probe.roll(slot)
    assert snapshot_publishing.publish() == {}
    assert sound(broker, slot) == {5: 5, 7: 7}
