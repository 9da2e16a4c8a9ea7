"""A kill between every two steps: the next process finds all acknowledged changes, and no partial ones.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_upkeep, slots, snapshot_publishing
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import flush_probe, lock_probe, producer_memory, slot_probe
from odradek.cleaner.retention import Retention
from odradek.protocol.schemas import fetch
from odradek.shm.checkpoints import read_checkpoints, write_checkpoints
from odradek.shm.log_starts import Deletion, delete_records
from odradek.storage.batch import ABORT, TRANSACTIONAL, build_end_marker, read_batch
from tests.api.worker_harness import HandWorker, nothing_came
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import PRODUCER, OneBroker, batch, numbered, retain_at_once
from tests.shm.test_compaction_faults import AROUND_THE_SWAPS, SWAP
from tests.shm.test_producer_faults import ARENA, PUBLISH
from tests.shm.test_replication_faults import REPLICATION
from tests.shm.test_transaction_faults import FIRST_BATCH, MARKERS_APPLIED, MARKERS_WRITTEN
from tests.storage.old_writer import message, wrapper
from tests.wire import fetch_request

pytestmark = pytest.mark.faults
require_fault_points()

SMALL_INTERVAL = 1  # every batch but the first gets its entries in the indexes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=3) as made:
        yield made


def check(
    broker: OneBroker, slot: int, scratch: Path, *, index_interval: int = SMALL_INTERVAL, cut: bool = False
) -> list[tuple[int, int]]:
    """The slot, its files and what a start would find agree; [(base offset, base sequence)] of the log.

    :param cut: after a truncation less of each producer is known: one batch before the snapshot it began with.
    """
    state = slot_facts.describe(slot)
    assert state.state == SlotState.SLOT_ONLINE
    assert state.intent == 0
    found, at, end, data = [], 0, 0, broker.log_bytes(slot)
    while at < len(data):
        one, size = read_batch(data, at)
        assert one.base_offset == end, "offsets have a gap or overlap"
        end = one.last_offset + 1
        found.append((one.base_offset, one.base_sequence))
        at = size
    assert end == state.log_end_offset
    assert state.applied_position == state.size
    path = broker.table.path(slot)
    base = f"{state.segment_base:020d}"
    assert (path / f"{base}.log").stat().st_size == state.size
    assert (path / f"{base}.index").stat().st_size == state.index_entries * 8
    assert (path / f"{base}.timeindex").stat().st_size == state.timeindex_entries * 12
    before = {p.name: p.read_bytes() for p in path.glob("*.index")} | {
        p.name: p.read_bytes() for p in path.glob("*.txnindex")
    }
    loaded = broker.reload(slot, scratch / "copy", index_interval_bytes=index_interval)
    assert loaded.log_end_offset == end
    assert loaded.base_offset == state.segment_base
    assert [entry for entry in loaded.epochs if entry[1] < end] == [entry for entry in state.epochs if entry[1] < end]
    shown = {
        one.producer_id: (one.producer_epoch, [(b[0], b[1], b[2], b[3]) for b in reversed(one.batches)])
        for one in loaded.producers
    }
    known = slot_probe.producers(slot)
    if cut:
        assert all(batches for _, batches in known.values())
        shown = {number: (epoch, batches[: len(known[number][1])]) for number, (epoch, batches) in shown.items()}
    assert shown == known
    assert before == {name: (scratch / "copy" / name).read_bytes() for name in before}
    return found


ACKNOWLEDGED = [numbered(0), numbered(2)]
JOINED = [numbered(4), batch(3, timestamp=2000), numbered(6)]
UNPUBLISHED = [
    FaultPoint.APPEND_LOCKED,
    FaultPoint.APPEND_EPOCH_FILE_WRITTEN,
    FaultPoint.APPEND_LOG_WRITTEN,
    FaultPoint.APPEND_INDEX_WRITTEN,
    FaultPoint.APPEND_TIME_INDEX_WRITTEN,
    FaultPoint.APPEND_BLOCK_FILLED,
]
PUBLISHED = [
    (FaultPoint.APPEND_COMMITTED, 1),
    (FaultPoint.APPEND_PRODUCER_APPLIED, 1),
    (FaultPoint.APPEND_PRODUCER_APPLIED, 3),
    (FaultPoint.APPEND_APPLIED, 1),
    (FaultPoint.APPEND_RECENT_HALF_WRITTEN, 1),
    (FaultPoint.APPEND_BEFORE_UNLOCK, 1),
    (FaultPoint.APPEND_UNLOCKED, 1),
    (FaultPoint.APPEND_WOKEN, 1),
]


def begun(broker: OneBroker) -> int:
    """A partition with two acknowledged batches, and a newer leader epoch that has none yet."""
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL)
    assert slot_probe.append(slot, ACKNOWLEDGED) == [(0, 0, False), (0, 2, False)]
    return slot


def new_epoch(broker: OneBroker, slot: int) -> None:
    """A newer leader epoch that the append is the first to note."""
    epochs = broker.table.path(slot) / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    broker.lead(slot, 1)
    assert epochs.read_bytes() != before


@pytest.mark.parametrize("point", UNPUBLISHED, ids=lambda point: FaultPoint(point).name)
def test_an_append_killed_before_its_commit_is_absent(broker: OneBroker, tmp_path: Path, point: FaultPoint) -> None:
    slot = begun(broker)
    if point == FaultPoint.APPEND_EPOCH_FILE_WRITTEN:
        # Becoming leader notes the epoch; it dies in there, and the coordinator's successor does it again.
        broker.die(lambda: broker.lead(slot, 1), point)
        broker.lead(slot, 1)
    else:
        broker.die(lambda: slot_probe.append(slot, JOINED), point)
    assert slot_probe.append(slot, JOINED) == [(0, 4, False), (0, 6, False), (0, 9, False)]
    assert slot_probe.append(slot, JOINED[::2]) == [(0, 4, True), (0, 9, True)]
    assert check(broker, slot, tmp_path) == [(0, 0), (2, 2), (4, 4), (6, -1), (9, 6)]
    assert slot_facts.describe(slot).lock_recoveries == 1


@pytest.mark.parametrize(
    ("point", "countdown"), PUBLISHED, ids=lambda value: FaultPoint(value).name if value > 3 else str(value)
)
def test_an_append_killed_after_its_commit_is_whole(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, countdown: int
) -> None:
    slot = begun(broker)
    broker.die(lambda: slot_probe.append(slot, JOINED), point, countdown=countdown)
    # The producer had no answer, and sends the same again.
    assert slot_probe.append(slot, [JOINED[0], JOINED[2]]) == [(0, 4, True), (0, 9, True)]
    assert slot_probe.append(slot, [numbered(8)]) == [(0, 11, False)]
    assert check(broker, slot, tmp_path) == [(0, 0), (2, 2), (4, 4), (6, -1), (9, 6), (11, 8)]
    assert slot_facts.describe(slot).high_watermark == 13


@pytest.mark.parametrize(
    "recovery", [FaultPoint.RECOVER_STARTED, FaultPoint.RECOVER_FILES_CUT, FaultPoint.RECOVER_BEFORE_CONSISTENT],
    ids=lambda point: point.name,
)  # fmt: skip
@pytest.mark.parametrize("first", [*UNPUBLISHED[2:], FaultPoint.APPEND_COMMITTED], ids=lambda p: p.name)
def test_a_recovery_that_is_killed_is_done_by_the_next(
    broker: OneBroker, tmp_path: Path, first: FaultPoint, recovery: FaultPoint
) -> None:
    slot = begun(broker)
    broker.die(lambda: slot_probe.append(slot, JOINED), first)
    broker.die(lambda: slot_probe.append(slot, JOINED), recovery, place=2)
    broker.die(lambda: slot_probe.append(slot, JOINED), recovery, place=2)
    published = first == FaultPoint.APPEND_COMMITTED
    assert slot_probe.append(slot, JOINED[::2])[0] == (0, 4, published)
    assert slot_facts.describe(slot).lock_recoveries == 3
    assert check(broker, slot, tmp_path)[:3] == [(0, 0), (2, 2), (4, 4)]


@pytest.mark.parametrize("countdown", [1, 2, 3])
def test_a_redo_that_is_killed_between_batches_is_redone(broker: OneBroker, tmp_path: Path, countdown: int) -> None:
    slot = begun(broker)
    broker.die(lambda: slot_probe.append(slot, JOINED), FaultPoint.APPEND_COMMITTED)
    broker.die(lambda: slot_probe.append(slot, JOINED), FaultPoint.RECOVER_APPLIED_ONE, place=2, countdown=countdown)
    assert slot_probe.append(slot, JOINED[::2]) == [(0, 4, True), (0, 9, True)]
    assert check(broker, slot, tmp_path) == [(0, 0), (2, 2), (4, 4), (6, -1), (9, 6)]


ROLL = [point for point in FaultPoint if point.name.startswith("ROLL_")]


@pytest.mark.parametrize("point", ROLL, ids=lambda point: point.name)
def test_a_roll_killed_anywhere_happens_or_not(broker: OneBroker, tmp_path: Path, point: FaultPoint) -> None:
    slot = begun(broker)
    generation = slot_facts.describe(slot).generation
    broker.die(lambda: slot_probe.roll(slot), point)
    assert slot_probe.append(slot, JOINED) == [(0, 4, False), (0, 6, False), (0, 9, False)]
    assert check(broker, slot, tmp_path) == [(0, 0), (2, 2), (4, 4), (6, -1), (9, 6)]
    state = slot_facts.describe(slot)
    assert state.segment_base == (4 if point == FaultPoint.ROLL_COMMITTED else 0)
    assert state.generation > generation, "who keeps descriptors by generation would not see the new segment"
    slot_probe.roll(slot)
    assert slot_probe.append(slot, [numbered(8)]) == [(0, 11, False)]
    check(broker, slot, tmp_path)


@pytest.mark.parametrize("point", ROLL, ids=lambda point: point.name)
def test_an_append_that_rolls_and_is_killed_in_the_roll(broker: OneBroker, tmp_path: Path, point: FaultPoint) -> None:
    size = len(numbered(0))
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL, segment_bytes=3 * size)
    slot_probe.append(slot, ACKNOWLEDGED)
    joined = [numbered(4), numbered(6), numbered(8)]
    broker.die(lambda: slot_probe.append(slot, joined), point)
    # The first was committed with the old segment; nobody was told so.
    assert slot_probe.append(slot, joined) == [(0, 4, True), (0, 6, False), (0, 8, False)]
    assert check(broker, slot, tmp_path) == [(0, 0), (2, 2), (4, 4), (6, 6), (8, 8)]
    assert slot_facts.describe(slot).segment_base == 6


def killed_truncation(broker: OneBroker, offset: int, point: FaultPoint) -> int:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL, segment_bytes=3 * len(numbered(0)))
    slot_probe.append(slot, [numbered(2 * i) for i in range(8)])
    broker.obey(slot, 1)
    broker.die(lambda: slots.truncate(slot, offset), point)
    return slot


TRUNCATE = [point for point in FaultPoint if point.name.startswith("TRUNCATE_")]


@pytest.mark.parametrize("offset", [0, 2, 6, 8, 12, 14])
@pytest.mark.parametrize("point", TRUNCATE, ids=lambda point: point.name)
def test_a_truncation_killed_anywhere_is_finished(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, offset: int
) -> None:
    if point == FaultPoint.TRUNCATE_FILE_CUT and offset in (0, 6, 12):
        return  # at the beginning of a segment no file is cut
    slot = killed_truncation(broker, offset, point)
    # A follower that takes the lock next: what it appends must land behind the cut.
    more = batch(2, timestamp=9000, base_offset=offset, partition_leader_epoch=1)
    assert slots.follow(slot, more, 0) == offset + 2
    found = check(broker, slot, tmp_path, cut=True)
    assert found == [(2 * i, 2 * i) for i in range(offset // 2)] + [(offset, -1)]
    assert slot_facts.describe(slot).epochs == ([(0, 0), (1, offset)] if offset else [(1, 0)])


@pytest.mark.parametrize("again", TRUNCATE, ids=lambda point: point.name)
def test_a_truncation_may_be_killed_twice(broker: OneBroker, tmp_path: Path, again: FaultPoint) -> None:
    slot = killed_truncation(broker, 8, FaultPoint.TRUNCATE_INTENT_STORED)
    more = batch(2, timestamp=9000, base_offset=8, partition_leader_epoch=1)
    if again != FaultPoint.TRUNCATE_INTENT_STORED:
        broker.die(lambda: slots.follow(slot, more, 0), again, place=2)
    assert slots.follow(slot, more, 0) == 10
    assert check(broker, slot, tmp_path, cut=True) == [(0, 0), (2, 2), (4, 4), (6, 6), (8, -1)]


REMOVE = [point for point in FaultPoint if point.name.startswith("REMOVE_")]
OLD_STAY = REMOVE[:3]  # before the first file is renamed


def begun_to_age(broker: OneBroker, **settings: int) -> int:
    """Four segments of two records each; the snapshots of the second and later ones."""
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL, segment_bytes=len(numbered(0)), **settings)
    slot_probe.append(slot, [numbered(2 * i) for i in range(4)])
    snapshot_publishing.publish()
    return slot


def check_aged(broker: OneBroker, slot: int, scratch: Path) -> None:
    """Slot and files agree on a log that begins behind its first offset; a start, too, finds just that."""
    state = slot_facts.describe(slot)
    assert (state.state, state.intent) == (SlotState.SLOT_ONLINE, 0)
    start = read_checkpoints(broker.path)[1].get(("t", 0), 0)
    for one, name in ((start, "copy"), (0, "copy-without-checkpoint")):
        shutil.rmtree(scratch / name, ignore_errors=True)
        shutil.copytree(broker.table.path(slot), scratch / name)
        loaded = load_log(scratch / name, one, 0, False, SMALL_INTERVAL)
        assert loaded.log_end_offset == state.log_end_offset
        assert loaded.log_start_offset <= state.log_start_offset
        assert loaded.base_offset == state.segment_base
    assert {one.producer_id: one.batches[-1][3] for one in loaded.producers} == {
        PRODUCER: slot_probe.producers(slot)[PRODUCER][1][0][3]
    }


@pytest.mark.parametrize("point", REMOVE[:2], ids=lambda point: point.name)
def test_a_deletion_of_records_killed_anywhere_is_whole_once_it_is_told(
    broker: OneBroker, tmp_path: Path, point: FaultPoint
) -> None:
    slot = begun_to_age(broker)
    deletion = Deletion(slot, slot_probe.incarnation_of(slot), 5)
    broker.die(lambda: delete_records(broker.shm, [broker.path], [deletion], 1000), point)
    check_aged(broker, slot, tmp_path)
    assert read_checkpoints(broker.path)[1] == ({} if point == REMOVE[0] else {("t", 0): 5})
    # The client had no answer, and asks again.
    assert delete_records(broker.shm, [broker.path], [deletion], 1000) == [(AppendResult.APPEND_OK, 5)]
    assert read_checkpoints(broker.path)[1] == {("t", 0): 5}
    state = slot_facts.describe(slot)
    assert (state.log_start_offset, state.last_stable_offset) == (5, 8)
    check_aged(broker, slot, tmp_path)


@pytest.mark.parametrize("point", REMOVE[:2], ids=lambda point: point.name)
def test_exact_retention_killed_anywhere_is_done_by_the_next_pass_or_the_next_checkpoint(
    broker: OneBroker, tmp_path: Path, point: FaultPoint
) -> None:
    slot = begun_to_age(broker, exact_retention=1, retention_ms=1000)
    first = slot_facts.describe(slot).max_timestamp
    broker.table.configure(slot, {"segment_bytes": 1 << 20})
    slot_probe.append(slot, [numbered(8), batch(2, timestamp=first + 5000)])
    broker.die(lambda: Retention(broker.shm, [broker.path]).run(first + 5500), point)
    check_aged(broker, slot, tmp_path)
    assert read_checkpoints(broker.path)[1] == ({} if point == REMOVE[0] else {("t", 0): 10})
    Retention(broker.shm, [broker.path]).run(first + 5500)
    write_checkpoints(broker.shm, [broker.path])
    state = slot_facts.describe(slot)
    assert (state.log_start_offset, read_checkpoints(broker.path)[1]) == (10, {("t", 0): 10})
    check_aged(broker, slot, tmp_path)


@pytest.mark.parametrize("countdown", [1, 2])
@pytest.mark.parametrize("point", REMOVE, ids=lambda point: point.name)
def test_a_removal_of_segments_killed_anywhere_is_finished(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, countdown: int
) -> None:
    met_twice = {FaultPoint.REMOVE_INDEX_RENAMED, FaultPoint.REMOVE_LOG_RENAMED, FaultPoint.REMOVE_SNAPSHOT_RENAMED}
    if countdown == 2 and point not in met_twice | {FaultPoint.REMOVE_FILE_UNLINKED}:
        return  # met once in all
    slot = begun_to_age(broker, retention_bytes=len(numbered(0)))
    generation = slot_facts.describe(slot).generation
    broker.die(lambda: retain_at_once(broker), point, countdown=countdown)
    # A start of the whole broker now would find a log that is in order ...
    shutil.copytree(broker.table.path(slot), tmp_path / "at-once")
    start = read_checkpoints(broker.path)[1].get(("t", 0), 0)
    loaded = load_log(tmp_path / "at-once", start, 0, False, SMALL_INTERVAL)
    assert loaded.log_end_offset == 8
    assert loaded.log_start_offset == (0 if point == FaultPoint.REMOVE_LOG_START_STORED else 6)
    # ... and whoever takes the lock next goes on with it.
    assert slot_probe.append(slot, [numbered(8)]) == [(0, 8, False)]
    check_aged(broker, slot, tmp_path)
    path = broker.table.path(slot)
    left = sorted(int(one.stem) for one in path.glob("*.log"))
    assert left == ([0, 2, 4, 6, 8] if point in OLD_STAY[:2] else [6, 8])
    assert {int(one.stem) for one in path.glob("*.*index")} == set(left)
    assert slot_facts.describe(slot).generation > generation
    # The cleaner's successor removes what is left of them.
    broker.table.configure(slot, {"retention_bytes": 2 * len(numbered(0))})
    retain_at_once(broker)
    assert not list(path.glob("*.deleted"))
    assert sorted(int(one.stem) for one in path.glob("*.log")) == [6, 8]
    snapshot_publishing.publish()
    assert sorted(int(one.stem) for one in path.glob("*.snapshot")) == [6, 8]
    assert slot_probe.append(slot, [numbered(6), numbered(8)]) == [(0, 6, True), (0, 8, True)]
    check_aged(broker, slot, tmp_path)


@pytest.mark.parametrize("again", REMOVE[3:8], ids=lambda point: point.name)
def test_a_removal_may_be_killed_twice(broker: OneBroker, tmp_path: Path, again: FaultPoint) -> None:
    slot = begun_to_age(broker, retention_bytes=len(numbered(0)))
    retention = Retention(broker.shm, [broker.path])
    broker.die(retention.run, FaultPoint.REMOVE_INTENT_STORED)
    broker.die(lambda: slot_probe.append(slot, [numbered(8)]), again, place=2)
    assert slot_probe.append(slot, [numbered(8)]) == [(0, 8, False)]
    assert sorted(int(one.stem) for one in broker.table.path(slot).glob("*.log")) == [6, 8]
    check_aged(broker, slot, tmp_path)


@pytest.mark.parametrize("point", ROLL, ids=lambda point: point.name)
def test_an_expired_active_segment_is_rolled_and_the_roll_killed(
    broker: OneBroker, tmp_path: Path, point: FaultPoint
) -> None:
    slot = begun_to_age(broker, retention_ms=0)
    broker.die(lambda: Retention(broker.shm, [broker.path]).run(), point)
    retain_at_once(broker)
    state = slot_facts.describe(slot)
    assert (state.log_start_offset, state.log_end_offset, state.segment_base) == (8, 8, 8)
    assert [int(one.stem) for one in broker.table.path(slot).glob("*.log")] == [8]
    assert slot_probe.append(slot, [numbered(8), numbered(6)]) == [(0, 8, False), (0, 6, True)]
    check_aged(broker, slot, tmp_path)


DELETE = [point for point in FaultPoint if point.name.startswith("DELETE_")]


@pytest.mark.parametrize("point", DELETE, ids=lambda point: point.name)
def test_a_deletion_killed_anywhere_is_finished_by_a_successor(broker: OneBroker, point: FaultPoint) -> None:
    slot = begun(broker)
    path = broker.table.path(slot)

    def delete() -> None:
        broker.table.delete(slot)
        broker.table.announce([slot])

    broker.die(delete, point)
    # A worker comes before the successor: it must not create anything, nor acknowledge into a directory that is gone.
    if point >= FaultPoint.DELETE_RENAMED:
        with pytest.raises(slots.SlotChanged, match=r"stale|offline"):
            slot_probe.append(slot, [numbered(4)])
    delete()
    assert slots.state_of(slot) == SlotState.SLOT_DELETED
    assert not path.exists()
    assert len(list(broker.path.glob("t-0.*-delete"))) == 1
    assert broker.table.topics() == {}
    fresh = broker.create()
    assert slot_probe.append(fresh, [numbered(0)]) == [(0, 0, False)]


@pytest.mark.parametrize(
    "point",
    [FaultPoint.APPEND_LOG_WRITTEN, FaultPoint.APPEND_TXN_INDEX_WRITTEN, FaultPoint.APPEND_COMMITTED,
     FaultPoint.PRODUCER_MARKER_HALF_STORED, FaultPoint.APPEND_PRODUCER_APPLIED, FaultPoint.APPEND_APPLIED],
    ids=lambda point: point.name,
)  # fmt: skip
def test_a_killed_abort_marker_is_indexed_once(broker: OneBroker, tmp_path: Path, point: FaultPoint) -> None:
    slot = begun(broker)
    broker.obey(slot, 1)
    place = {"partition_leader_epoch": 0, "producer_id": PRODUCER, "producer_epoch": 0}
    opened = batch(1, base_offset=4, base_sequence=4, attributes=TRANSACTIONAL, timestamp=3000, **place)
    marker = build_end_marker(ABORT, base_offset=5, coordinator_epoch=1, timestamp=3001, **place)
    assert slots.follow(slot, opened, 5) == 5
    assert slot_facts.describe(slot).last_stable_offset == 4
    broker.die(lambda: slots.follow(slot, marker, 6), point)
    # An empty fetch takes the lock; the leader sends what is missing.
    end = slots.follow(slot, b"", 6)
    if end == 5:
        end = slots.follow(slot, marker, 6)
    assert end == 6
    state = slot_facts.describe(slot)
    assert (state.high_watermark, state.last_stable_offset, state.txnindex_entries) == (6, 6, 1)
    check(broker, slot, tmp_path)


def test_a_transaction_opened_by_the_dead_holds_the_last_stable_offset(broker: OneBroker, tmp_path: Path) -> None:
    slot = begun(broker)
    opened = numbered(4, count=1, attributes=TRANSACTIONAL)
    broker.die(lambda: slot_probe.append(slot, [opened]), FaultPoint.PRODUCER_BATCH_STORED)
    assert slot_probe.append(slot, [opened]) == [(0, 4, True)]
    state = slot_facts.describe(slot)
    assert (state.high_watermark, state.last_stable_offset, state.producer_count) == (5, 4, 1)
    check(broker, slot, tmp_path)


def test_a_new_producer_of_the_dead_is_counted_once(broker: OneBroker, tmp_path: Path) -> None:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL)
    broker.die(lambda: slot_probe.append(slot, [numbered(0)]), FaultPoint.PRODUCER_BATCH_STORED)
    assert slot_probe.append(slot, [numbered(0)]) == [(0, 0, True)]
    assert slot_facts.describe(slot).producer_count == 1
    check(broker, slot, tmp_path)


def test_a_run_of_producers_lost_in_its_growth_is_reclaimed(broker: OneBroker, tmp_path: Path) -> None:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL)
    firsts = [batch(1, producer_id=i, producer_epoch=0, base_sequence=0, timestamp=5) for i in range(12)]
    slot_probe.append(slot, firsts[:3])
    used = producer_memory.arena_units_used()
    broker.die(lambda: slot_probe.append(slot, firsts[3:]), FaultPoint.PRODUCER_RUN_FILLED)
    assert producer_memory.arena_units_used() > used
    assert [answer[2] for answer in slot_probe.append(slot, firsts)] == [True] * 3 + [False] * 9
    assert slot_upkeep.reclaim_arena() > 0
    assert producer_memory.arena_units_used() == 4
    assert set(slot_probe.producers(slot)) == set(range(12))
    assert [answer[2] for answer in slot_probe.append(slot, firsts)] == [True] * 12
    check(broker, slot, tmp_path)


def test_a_waker_killed_before_it_writes_silences_nobody(broker: OneBroker) -> None:
    """It has announced a wake-up to this process, and died: the next wake-up must come through all the same."""
    broker.shm.drain_event()
    broker.die(lambda: broker.shm.wake(0), FaultPoint.WAKE_PENDING_SET)
    assert os.eventfd_read(broker.shm.event_fd()) > 0
    assert broker.shm.take_full_look()


def held_by(broker: OneBroker, slot: int) -> Callable[[], None]:
    def hold() -> None:
        lock_probe.lock_and_hold(slot)
        os.kill(os.getpid(), signal.SIGSTOP)

    return hold


def test_a_stopped_holder_is_waited_for_until_it_is_killed(broker: OneBroker, tmp_path: Path) -> None:
    slot = begun(broker)
    pid = broker.fork(1, held_by(broker, slot))
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    with pytest.raises(slots.SlotChanged, match="busy"):
        slot_probe.append(slot, JOINED)
    assert broker.shm.process(1).locked_slot == slot + 1
    os.kill(pid, signal.SIGKILL)
    assert broker.reap(pid, 1) == -signal.SIGKILL
    assert slot_probe.append(slot, JOINED) == [(0, 4, False), (0, 6, False), (0, 9, False)]
    assert slot_facts.describe(slot).lock_recoveries == 1
    check(broker, slot, tmp_path)


def test_every_point_is_met_by_some_test() -> None:
    met = {*UNPUBLISHED, *(point for point, _ in PUBLISHED), *ROLL, *TRUNCATE, *REMOVE, *DELETE, *SWAP}
    met |= {point for point in FaultPoint if point.name.startswith("RECOVER_")}
    met |= {FaultPoint.APPEND_TXN_INDEX_WRITTEN, FaultPoint.WAKE_PENDING_SET, *ARENA, *PUBLISH}
    met |= {point for point in FaultPoint if point.name.startswith(("PRODUCER_", "FLUSH_"))}
    met |= set(AROUND_THE_SWAPS)
    met |= {FaultPoint.HIGH_WATERMARK_PUBLISHED, *REPLICATION, *MARKERS_WRITTEN, *MARKERS_APPLIED, *FIRST_BATCH}
    assert set(FaultPoint) - met == {FaultPoint.FAULT_NONE}


FLUSH = [point for point in FaultPoint if point.name.startswith("FLUSH_")]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("point", FLUSH, ids=lambda point: point.name)
def test_a_death_amid_a_flush_leaves_it_to_the_next(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, whole: bool
) -> None:
    slot = begun(broker)
    flushing.flush(slot)
    slot_probe.append(slot, JOINED)
    broker.die(lambda: flushing.flush(slot, whole), point)
    before = slot_facts.describe(slot)
    assert before.flushed_offset == (11 if point == FaultPoint.FLUSH_ADVANCED else 4)
    assert flushing.flush(slot) is (point != FaultPoint.FLUSH_ADVANCED)
    assert slot_facts.describe(slot).flushed_offset == 11
    flush_probe.settle(slot)
    check(broker, slot, tmp_path)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("point", [*FLUSH, FaultPoint.HIGH_WATERMARK_PUBLISHED], ids=lambda point: point.name)
def test_a_death_amid_a_flush_shows_consumers_nothing_that_is_not_synced(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, rolled: bool
) -> None:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL, flush_messages=1)
    slot_probe.append(slot, ACKNOWLEDGED)
    flushing.flush(slot)
    slot_probe.append(slot, JOINED)
    if rolled:
        slot_probe.roll(slot)
    broker.die(lambda: flushing.flush(slot), point)
    seen = slot_facts.describe(slot).high_watermark
    assert seen == (4 if point in FLUSH[:2] else 11)
    slot_upkeep.recover_dead()
    state = slot_facts.describe(slot)
    assert (state.high_watermark, state.last_stable_offset) == (seen, seen)
    assert slots.awaits_flush(slot) is (point != FaultPoint.FLUSH_ADVANCED)
    flushing.flush(slot)
    state = slot_facts.describe(slot)
    assert (state.high_watermark, state.last_stable_offset, state.flushed_offset) == (11, 11, 11)
    slot_probe.append(slot, [numbered(8)])
    assert slot_facts.describe(slot).high_watermark == 11
    flushing.flush(slot)
    assert slot_facts.describe(slot).high_watermark == 13
    check(broker, slot, tmp_path)


@pytest.mark.parametrize(
    ("point", "countdown"), PUBLISHED, ids=lambda value: FaultPoint(value).name if value > 3 else str(value)
)
def test_an_append_killed_anywhere_shows_consumers_nothing_that_is_not_synced(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, countdown: int
) -> None:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL, flush_messages=1)
    slot_probe.append(slot, ACKNOWLEDGED)
    flushing.flush(slot)
    broker.die(lambda: slot_probe.append(slot, JOINED), point, countdown=countdown)
    slot_upkeep.recover_dead()
    state = slot_facts.describe(slot)
    assert (state.log_end_offset, state.high_watermark, state.last_stable_offset) == (11, 4, 4)
    assert flushing.flush_due() == [slot]  # by which the cleaner has it synced if nobody else does
    flushing.flush(slot)
    assert slot_facts.describe(slot).high_watermark == 11
    assert slot_probe.append(slot, [JOINED[0]]) == [(0, 4, True)]
    check(broker, slot, tmp_path)


# -- a death in a log that nobody appends to any more -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", [FaultPoint.APPEND_COMMITTED, FaultPoint.APPEND_PRODUCER_APPLIED], ids=lambda p: p.name
)
def test_the_last_stable_offset_follows_a_death_without_another_append(broker: OneBroker, point: FaultPoint) -> None:
    slot, idle = begun(broker), broker.create("idle")
    broker.die(lambda: slot_probe.append(slot, JOINED), point)
    slot_upkeep.recover_dead()
    state = slot_facts.describe(slot)
    assert (state.high_watermark, state.last_stable_offset, state.lock_recoveries) == (11, 11, 1)
    assert slot_facts.describe(idle).lock_recoveries == 0


def test_a_high_watermark_killed_before_the_last_stable_offset_is_followed_by_it(broker: OneBroker) -> None:
    slot = broker.create(alone=False)
    slot_probe.append(slot, ACKNOWLEDGED)
    broker.die(lambda: slots.raise_high_watermark(slot, 2), FaultPoint.HIGH_WATERMARK_PUBLISHED)
    assert slot_facts.describe(slot).last_stable_offset == 0
    slot_upkeep.recover_dead()
    assert slot_facts.describe(slot).last_stable_offset == 2


def test_a_lock_whose_owner_lives_is_left_to_it(broker: OneBroker) -> None:
    slot = begun(broker)
    reading, writing = os.pipe()

    def hold() -> None:
        lock_probe.lock_and_hold(slot)
        os.write(writing, b"!")
        signal.pause()

    pid = broker.fork(1, hold)
    os.read(reading, 1)
    slot_upkeep.recover_dead()
    assert broker.shm.process(1).locked_slot == slot + 1
    os.kill(pid, signal.SIGKILL)
    broker.reap(pid, 1)
    slot_upkeep.recover_dead()
    assert slot_facts.describe(slot).lock_recoveries == 1


def test_a_reader_of_committed_records_is_woken_after_a_death_in_a_log_that_is_idle(tmp_path: Path) -> None:
    worker = HandWorker(tmp_path, processes=3)
    try:
        slot = worker.create("idle", index_interval_bytes=SMALL_INTERVAL)
        wire = worker.connect()
        wire.send(fetch_request([("idle", 0, 0)], wait_ms=600_000, isolation_level=1), fetch.API_KEY, 12)
        worker.turn()
        assert nothing_came(wire)
        worker.broker.die(lambda: slot_probe.append(slot, [ACKNOWLEDGED[0]]), FaultPoint.APPEND_COMMITTED)
        worker.turn()
        assert nothing_came(wire)
        assert worker.broker.shm.take_full_look()
        worker.room.look_at_all()
        worker.turn()
        answer = wire.receive().responses[0].partitions[0]
        assert (answer.high_watermark, answer.last_stable_offset) == (2, 2)
        assert answer.records
    finally:
        worker.close()


# -- messages of format v0 and v1 ----------------------------------------------------------------------------------------

OLD = [
    message(0, b"zero", magic=0),
    wrapper(1, [(None, b"a"), (None, b"b")], codec=1, magic=0),
    wrapper(3, [(None, b"x"), (None, b"y")], codec=2, magic=1, timestamps=[2000, 3000]),
    message(5, b"one", magic=1, timestamp=4000),
]
OLD_ENDS = [0, 1, 3, 5, 6]
FOLLOWED = UNPUBLISHED[2:]  # a follower has no point right after the lock, and old messages bring no epoch
FOLLOWED += [FaultPoint.APPEND_COMMITTED, FaultPoint.APPEND_APPLIED, FaultPoint.APPEND_RECENT_HALF_WRITTEN]


def check_old(broker: OneBroker, slot: int, scratch: Path) -> int:
    """How many of OLD the log holds, behind which nothing is; its files, the slot and a start agree."""
    data = broker.log_bytes(slot)
    state = slot_facts.describe(slot)
    kept = OLD_ENDS.index(state.log_end_offset)
    assert data == b"".join(OLD[:kept])
    assert (state.applied_position, state.state) == (state.size, SlotState.SLOT_ONLINE)
    path = broker.table.path(slot)
    before = {one.name: one.read_bytes() for one in path.glob("*.index")}
    loaded = broker.reload(slot, scratch / "copy", index_interval_bytes=SMALL_INTERVAL)
    assert all(event.message.startswith("rebuilt the indexes of ") for event in loaded.events)
    assert (loaded.log_end_offset, loaded.size) == (state.log_end_offset, state.size)
    assert before == {name: (scratch / "copy" / name).read_bytes() for name in before}
    return kept


@pytest.mark.parametrize("point", FOLLOWED, ids=lambda point: point.name)
def test_a_follower_of_old_messages_killed_anywhere(broker: OneBroker, tmp_path: Path, point: FaultPoint) -> None:
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL)
    broker.obey(slot, 1)
    slots.follow(slot, OLD[0], 0)
    broker.die(lambda: slots.follow(slot, b"".join(OLD[1:]), 0), point)
    try:  # whoever comes next finishes or undoes it; then it is found again from where the log ends
        slots.follow(slot, b"", 0)
    finally:
        kept = check_old(broker, slot, tmp_path)
    assert kept == (1 if point in UNPUBLISHED else 4)
    assert slots.follow(slot, b"".join(OLD[kept:]), 0) == 6
    assert check_old(broker, slot, tmp_path) == 4


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("point", TRUNCATE, ids=lambda point: point.name)
def test_a_truncation_of_old_messages_killed_anywhere(
    broker: OneBroker, tmp_path: Path, point: FaultPoint, kept: int
) -> None:
    if point == FaultPoint.TRUNCATE_FILE_CUT and kept == 0:
        return  # at the beginning of a segment no file is cut
    slot = broker.create(index_interval_bytes=SMALL_INTERVAL)
    broker.obey(slot, 1)
    slots.follow(slot, b"".join(OLD), 0)
    broker.die(lambda: slots.truncate(slot, OLD_ENDS[kept]), point)
    assert slots.follow(slot, b"".join(OLD[kept:]), 0) == 6
    assert check_old(broker, slot, tmp_path) == 4
