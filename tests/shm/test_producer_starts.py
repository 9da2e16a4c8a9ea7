"""The producers that a start restores: a retry is recognized afterwards, or the broker logs the loss."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import owner_counts, slot_life, slot_loading, slot_upkeep, slots, snapshot_publishing
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import flush_probe, lock_probe, producer_memory, slot_probe
from odradek.cleaner import upkeep
from odradek.storage.batch import TRANSACTIONAL
from odradek.storage.producer_snapshot import ProducerState, read_snapshot
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_producers import first, monotonic_ms, wait_for_the_clock
from tests.storage.log_files import write_snapshot
from tests.waiting import until

NOW = int(time.time() * 1000)
A_DAY_AGO = NOW - 86_400_000
NEVER_MS = -(1 << 63)
TIMESTAMPS = (-1, 0, A_DAY_AGO - 86_400_000, NOW + 10 * 365 * 86_400_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path, processes=2) as made:
        yield made


def bring(slot: int, numbers: range, **fields: int) -> None:
    for start in range(numbers.start, numbers.stop, 50):
        batches = [first(number, **fields) for number in range(start, min(start + 50, numbers.stop))]
        assert {error for error, *_ in slot_probe.append(slot, batches)} == {0}


def start_again(
    broker: OneBroker, slot: int, *, clean: bool = False, before_ms: int = NEVER_MS, at_start: bool = True
) -> list[tuple[str, int]]:
    """Load the slot's log into it, as a start does; what `fill` says."""
    loaded = load_log(broker.table.path(slot), 0, 0, clean, producer_limit=broker.shm.producer_limit)
    return slot_loading.fill(slot, loaded, clean, before_ms, at_start)


class TestABusyArena:
    """Two loaders meet in the arena, and the system takes the processor from the one that holds its mutex."""

    def test_the_other_loader_waits_and_loses_nothing(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(10))
        repeated = batch(producer_id=3, producer_epoch=0, base_sequence=1)
        ((error, offset, _),) = slot_probe.append(slot, [repeated])
        assert error == 0
        ready, go = os.pipe(), os.pipe()

        def hold() -> None:
            lock_probe.lock_and_hold_arena()
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            lock_probe.release_arena()

        child = broker.fork(1, hold)
        os.read(ready[0], 1)
        loader = threading.Thread(target=start_again, args=(broker, slot))
        loader.start()
        until(lambda: broker.shm.process(0).locked_slot == slot + 1, "the loader has the slot's lock")
        for _ in range(100):  # longer than an append tries
            os.sched_yield()
        assert loader.is_alive()
        os.write(go[1], b"x")
        loader.join()
        assert broker.reap(child, 1) == 0
        assert len(slot_probe.producers(slot)) == 10
        assert slot_probe.append(slot, [repeated]) == [(0, offset, True)]

    def test_a_loader_that_dies_with_the_mutex_blocks_no_other(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(10))
        child = broker.fork(1, lock_probe.lock_and_hold_arena)
        assert broker.reap(child, 1) == 0
        assert start_again(broker, slot) == []
        assert len(slot_probe.producers(slot)) == 10


class TestOldTimestamps:
    """Producers of records of long ago, or of the future: when the broker heard of them is what counts."""

    @pytest.mark.parametrize("timestamp", TIMESTAMPS, ids=("none", "1970", "two days old", "years ahead"))
    def test_producers_replayed_from_the_log_stay(self, broker: OneBroker, timestamp: int) -> None:
        slot = broker.create()
        bring(slot, range(5), timestamp=timestamp)
        assert start_again(broker, slot, before_ms=A_DAY_AGO) == []
        assert set(slot_probe.producers(slot)) == set(range(5))
        assert slot_probe.append(slot, [first(4, timestamp=timestamp)]) == [(0, 4, True)]
        assert slot_upkeep.expire(slot, monotonic_ms() - 60_000) == 0
        assert slot_upkeep.expire(slot, monotonic_ms() + 60_000) == 5

    @pytest.mark.parametrize("timestamp", TIMESTAMPS, ids=("none", "1970", "two days old", "years ahead"))
    def test_a_snapshot_contains_when_the_broker_received_their_last_batch(
        self, broker: OneBroker, timestamp: int
    ) -> None:
        slot = broker.create()
        bring(slot, range(5), timestamp=timestamp)
        flush_probe.settle(slot)
        assert snapshot_publishing.publish() == {}
        states = read_snapshot(broker.table.path(slot) / f"{5:020d}.snapshot")
        assert all(abs(state.last_timestamp - time.time() * 1000) < 60_000 for state in states)
        assert start_again(broker, slot, clean=True, before_ms=A_DAY_AGO) == []
        assert set(slot_probe.producers(slot)) == set(range(5))
        assert start_again(broker, slot, clean=True, before_ms=int(time.time() * 1000) + 1000) == []
        assert slot_probe.producers(slot) == {}

    def test_with_log_append_time_a_snapshot_keeps_it(self, broker: OneBroker) -> None:
        slot = broker.create(log_append_time=1)
        slot_probe.append(slot, [first(1)], wall_ms=A_DAY_AGO)
        slot_probe.roll(slot)
        assert snapshot_publishing.publish() == {}
        (state,) = read_snapshot(broker.table.path(slot) / f"{1:020d}.snapshot")
        assert state.last_timestamp == A_DAY_AGO

    def test_of_a_snapshot_the_age_is_kept(self, broker: OneBroker) -> None:
        slot = broker.create()
        path = broker.table.path(slot)
        ages = {1: 0, 2: 3_600_000, 3: 7_200_000, 4: -(10**12)}
        states = [ProducerState(i, 0, last_timestamp=int(time.time() * 1000) - age) for i, age in ages.items()]
        write_snapshot(path / f"{0:020d}.snapshot", states)
        assert start_again(broker, slot, clean=True) == []
        now = monotonic_ms()
        heard = {number: ms for number, (_, ms) in slot_probe.producers_heard(slot).items()}
        for number, age in ages.items():
            assert abs(now - heard[number] - max(age, 0)) < 60_000, "a time in the future would never expire"


def test_producers_of_a_snapshot_that_wrote_again_keep_both(broker: OneBroker) -> None:
    slot = broker.create()
    bring(slot, range(3))
    slot_probe.roll(slot)
    slot_probe.append(slot, [batch(producer_id=1, producer_epoch=0, base_sequence=1)])
    assert snapshot_publishing.publish() == {}
    assert start_again(broker, slot, before_ms=1 << 62) == []
    assert set(slot_probe.producers(slot)) == {0, 1, 2}  # the recovery began before the snapshot
    path = broker.table.path(slot)
    loaded = load_log(path, 0, 4, False)
    slot_loading.fill(slot, loaded, False, 1 << 62)
    assert slot_probe.producers(slot) == {1: (0, [(1, 1, 3, 3), (0, 0, 1, 1)])}


class TestTheLastFiveBatches:
    """A snapshot has the last batch of a producer. Those that it may repeat besides are found at the end of the log."""

    def write(self, slot: int, sequences: range, *producers: int, epoch: int = 0, size: int = 20) -> None:
        for sequence in sequences:
            for producer in producers:
                fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
                assert slot_probe.append(slot, [batch(value=b"v" * size, **fields)])[0][0] == 0

    def stop(self, broker: OneBroker, slot: int) -> None:
        flush_probe.settle(slot)
        assert snapshot_publishing.publish() == {}

    def stopped(self, broker: OneBroker, slot: int) -> dict[int, Any]:
        """The producers after an ordered stop and a start."""
        self.stop(broker, slot)
        assert start_again(broker, slot, clean=True) == []
        return slot_probe.producers(slot)

    def test_after_an_ordered_stop(self, broker: OneBroker) -> None:
        slot = broker.create()
        self.write(slot, range(7), 1, 2)
        self.write(slot, range(3), 3)
        before = slot_probe.producers(slot)
        assert self.stopped(broker, slot) == before
        for sequence in range(2, 7):
            repeated = batch(producer_id=1, producer_epoch=0, base_sequence=sequence)
            assert slot_probe.append(slot, [repeated]) == [(0, 2 * sequence, True)]
        self.write(slot, range(7, 8), 1)

    def test_after_a_kill_behind_a_roll(self, broker: OneBroker) -> None:
        slot = broker.create()
        self.write(slot, range(7), 1, 2)
        slot_probe.roll(slot)
        assert snapshot_publishing.publish() == {}
        self.write(slot, range(7, 9), 2)
        before = slot_probe.producers(slot)
        for recovery_point in (14, 15):  # the recovery begins before the roll, and after it
            loaded = load_log(broker.table.path(slot), 0, recovery_point, False)
            slot_loading.fill(slot, loaded, False, NEVER_MS)
            assert slot_probe.producers(slot) == before

    def test_in_several_segments(self, broker: OneBroker) -> None:
        slot = broker.create()
        for sequence in range(7):
            self.write(slot, range(sequence, sequence + 1), 1)
            slot_probe.roll(slot)
        before = slot_probe.producers(slot)
        assert self.stopped(broker, slot) == before

    def test_of_large_batches(self, broker: OneBroker) -> None:
        slot = broker.create(segment_bytes=1 << 20)
        self.write(slot, range(7), 1, size=200_000)
        before = slot_probe.producers(slot)
        assert self.stopped(broker, slot) == before

    def test_only_of_the_present_epoch_and_without_a_gap(self, broker: OneBroker) -> None:
        slot = broker.create()
        self.write(slot, range(3), 1)
        self.write(slot, range(2), 1, epoch=1)
        self.write(slot, range(4), 2)
        before = slot_probe.producers(slot)
        assert self.stopped(broker, slot) == before
        path = broker.table.path(slot)
        (snapshot,) = path.glob("*.snapshot")
        states = read_snapshot(snapshot)
        changed = [
            replace(state, batches=tuple(replace(last, last_sequence=9) for last in state.batches)) for state in states
        ]
        write_snapshot(snapshot, changed)
        assert start_again(broker, slot, clean=True) == []
        assert {len(batches) for _, batches in slot_probe.producers(slot).values()} == {1}

    def test_the_look_back_is_bounded_and_reads_nothing_for_idle_producers(self, broker: OneBroker) -> None:
        slot = broker.create(segment_bytes=1 << 26)
        self.write(slot, range(4), 1)
        for _ in range(30):
            assert {error for error, *_ in slot_probe.append(slot, [batch(100) for _ in range(50)])} == {0}
        self.write(slot, range(4, 6), 1)
        self.stop(broker, slot)
        path = broker.table.path(slot)
        loaded = load_log(path, 0, 0, True)
        assert [len(producer.batches) for producer in loaded.producers] == [2], "the others are too far away"
        assert 0 < loaded.scanned_bytes <= (16 + 64 + 256 + 3) * 8192 < loaded.size
        self.write(slot, range(6, 9), 1)
        self.stop(broker, slot)
        loaded = load_log(path, 0, 0, True)
        assert [len(producer.batches) for producer in loaded.producers] == [5]
        assert loaded.scanned_bytes <= 17 * 8192, "all were found in the first part"
        snapshot = max(path.glob("*.snapshot"))
        write_snapshot(snapshot, [replace(state, last_timestamp=NOW - 7_200_000) for state in read_snapshot(snapshot)])
        loaded = load_log(path, 0, 0, True)
        assert [len(producer.batches) for producer in loaded.producers] == [1]
        assert loaded.scanned_bytes < 4096, "the end of the active segment, as at every start"


class TestTooMany:
    """More producers than there is memory for."""

    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[OneBroker]:
        """1 MiB: 256 producers of a partition, in 128 KiB, which is an eighth of all."""
        with OneBroker(tmp_path, max_slots=256, silent_ms=-1000) as made:
            yield made

    def flooded(self, broker: OneBroker, partitions: int) -> list[int]:
        made = [broker.create("flood", number) for number in range(partitions)]
        for slot in made:
            bring(slot, range(250))
            slot_upkeep.expire(slot, 1 << 62)
        return made

    def test_a_start_drops_producers_of_the_partitions_with_the_most(self, broker: OneBroker) -> None:
        """A flood of made-up ids, then a crash: the log brings back what was evicted."""
        flood = self.flooded(broker, 10)
        honest = [broker.create("honest", number) for number in range(20)]
        for slot in honest:
            bring(slot, range(3))
        dropped = [loss for slot in flood + honest for loss in start_again(broker, slot)]
        for slot in honest:
            assert set(slot_probe.producers(slot)) == {0, 1, 2}
        assert dropped
        assert {name.rpartition("-")[0] for name, _ in dropped} == {"flood"}
        kept = [set(slot_probe.producers(slot)) for slot in flood]
        for numbers in kept:
            assert len(numbers) >= 100
            assert numbers == set(range(250 - len(numbers), 250)), "those that wrote the longest ago are dropped first"
        assert broker.shm.producer_state["dropped_at_start"] == sum(number for _, number in dropped)
        assert sum(number for _, number in dropped) == 2500 - sum(map(len, kept))
        # There is room for those who come now.
        assert slot_probe.append(broker.create("new"), [first(1)], owner=1)[0][0] == 0

    def test_a_log_opened_later_drops_no_producers_of_other_logs(self, broker: OneBroker) -> None:
        flood = self.flooded(broker, 6)
        for slot in flood[:5]:
            assert start_again(broker, slot) == []
        before = [slot_probe.producers(slot) for slot in flood[:5]]
        filling = [broker.create("filling", number) for number in range(120)]
        for slot in filling:
            bring(slot, range(3))
        ((name, number),) = start_again(broker, flood[5], at_start=False)
        assert name == "flood-5"
        assert number == 250 - len(slot_probe.producers(flood[5])) > 0
        assert [slot_probe.producers(slot) for slot in flood[:5]] == before

    def test_open_transactions_are_not_dropped_but_the_log_stays_closed(self, broker: OneBroker) -> None:
        flood = self.flooded(broker, 5)
        slot = broker.create("open")
        bring(slot, range(250), attributes=TRANSACTIONAL)
        copy = broker.path / "copy"
        shutil.copytree(broker.table.path(slot), copy)
        broker.table.delete(slot)
        for other in flood:
            bring(other, range(1000, 1250))
        others = [broker.create("others", number) for number in range(3)]
        for other in others:
            bring(other, range(250))
        again = broker.create("again")
        shutil.rmtree(broker.table.path(again))
        shutil.copytree(copy, broker.table.path(again))
        with pytest.raises(OSError, match="no memory for the 250 producers of again-0"):
            start_again(broker, again, at_start=False)
        slot_life.set_offline(again)
        assert slots.state_of(again) == SlotState.SLOT_OFFLINE
        slot_upkeep.expire(flood[0], 1 << 62)
        assert start_again(broker, again, at_start=False) == []
        assert len(slot_probe.producers(again)) == 250
        assert slot_facts.describe(again).last_stable_offset == 0

    def test_a_log_of_more_than_a_partition_may_have(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(600))
        assert start_again(broker, slot) == []
        assert set(slot_probe.producers(slot)) == set(range(600 - 256, 600))
        assert broker.shm.producer_state["dropped_at_start"] == 600 - 256


class TestSnapshotsOnDisk:
    def snapshots(self, broker: OneBroker, slot: int) -> list[str]:
        return sorted(path.name.lstrip("0") for path in broker.table.path(slot).glob("*snapshot*"))

    def test_old_snapshots_are_removed(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(10):
            slot_probe.append(slot, [first(number)])
            assert start_again(broker, slot) == []
            snapshot_publishing.publish()
        assert self.snapshots(broker, slot) == []
        for number in range(10, 20):
            slot_probe.append(slot, [first(number)])
            flush_probe.settle(slot)
            snapshot_publishing.publish()
            assert start_again(broker, slot, clean=True) == []
        assert self.snapshots(broker, slot) == ["20.snapshot"]
        assert set(slot_probe.producers(slot)) == set(range(20))

    def test_a_recovery_that_had_to_replay_older_segments_leaves_one(self, broker: OneBroker) -> None:
        slot = broker.create()
        for _ in range(3):
            slot_probe.append(slot, [batch()])
            slot_probe.roll(slot)
        slot_probe.append(slot, [batch()])
        assert self.snapshots(broker, slot) == []  # nobody needs one as long as nobody starts
        assert start_again(broker, slot) == []
        assert self.snapshots(broker, slot) == ["4.snapshot.tmp"]
        snapshot_publishing.publish()
        assert self.snapshots(broker, slot) == ["4.snapshot"]
        assert read_snapshot(broker.table.path(slot) / f"{4:020d}.snapshot") == []
        slot_probe.append(slot, [batch()])
        assert start_again(broker, slot) == []
        assert self.snapshots(broker, slot) == ["4.snapshot"]

    def test_a_deleted_partition_with_an_unpublished_snapshot_is_skipped(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(3))
        slot_probe.roll(slot)
        broker.table.delete(slot)
        assert snapshot_publishing.pending() == []
        assert snapshot_publishing.publish() == {}

    def test_a_snapshot_written_again_during_the_sync_is_published_by_the_next_pass(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(3))
        slot_probe.roll(slot)
        path = broker.table.path(slot) / f"{3:020d}.snapshot.tmp"
        assert path.exists()
        synced: list[int] = []

        def written_again() -> None:
            if not synced:
                slot_upkeep.expire(slot, 1 << 62)
                assert slot_upkeep.snapshot(slot)
                synced.append(1)

        assert snapshot_publishing.publish(written_again) == {}
        assert self.snapshots(broker, slot) == ["3.snapshot.tmp"], "what was not synced is in place"
        assert snapshot_publishing.publish() == {}
        assert self.snapshots(broker, slot) == ["3.snapshot"]
        assert read_snapshot(path.with_suffix("")) == []

    def test_after_a_truncation_it_is_written_again(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(3))
        slot_upkeep.snapshot(slot)
        bring(slot, range(3, 5))
        broker.obey(slot, 1)
        slots.truncate(slot, 3)
        assert slot_upkeep.snapshot(slot)
        assert snapshot_publishing.publish() == {}
        assert len(read_snapshot(broker.table.path(slot) / f"{3:020d}.snapshot")) == 3

    def test_a_published_snapshot_is_not_published_again(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, range(3))
        slot_probe.roll(slot)
        assert snapshot_publishing.pending() == [slot]
        assert snapshot_publishing.publish() == {}
        assert snapshot_publishing.pending() == []
        inode = (broker.table.path(slot) / f"{3:020d}.snapshot").stat().st_ino
        assert snapshot_publishing.publish() == {}
        assert (broker.table.path(slot) / f"{3:020d}.snapshot").stat().st_ino == inode

    def test_more_snapshots_than_one_pass_publishes(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(40):
            slot_probe.append(slot, [first(number % 3)] if number < 3 else [batch()])
            slot_probe.roll(slot)
        assert snapshot_publishing.publish() == {}
        assert snapshot_publishing.pending() == []
        assert len(self.snapshots(broker, slot)) == 40
        assert all(name.endswith(".snapshot") for name in self.snapshots(broker, slot))

    def test_many_logs_are_synced_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "many").mkdir()
        with OneBroker(tmp_path / "many", max_slots=256) as broker:
            made = [broker.create("many", number) for number in range(100)]
            for slot in made:
                bring(slot, range(2))
                slot_probe.roll(slot)
            beats: list[int] = []
            assert snapshot_publishing.publish(lambda: beats.append(1)) == {}
            assert beats
            assert all(self.snapshots(broker, slot) == ["2.snapshot"] for slot in made)

    def test_a_roll_during_the_sync_delays_only_the_newest_snapshots(self, broker: OneBroker) -> None:
        slot = broker.create()
        for start in (0, 2):
            bring(slot, range(start, start + 2))
            slot_probe.roll(slot)
        beats: list[int] = []

        def beat() -> None:
            if not beats:
                bring(slot, range(4, 6))
                slot_probe.roll(slot)
            beats.append(1)

        assert snapshot_publishing.publish(beat) == {}
        assert self.snapshots(broker, slot) == ["2.snapshot", "4.snapshot.tmp", "6.snapshot.tmp"]
        assert snapshot_publishing.pending() == [slot]
        assert snapshot_publishing.publish() == {}
        assert self.snapshots(broker, slot) == ["2.snapshot", "4.snapshot", "6.snapshot"]
        assert snapshot_publishing.pending() == []


class TestANearlyFullArena:
    def test_the_cleaner_expires_idle_producers_early(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
        monkeypatch.setattr(upkeep, "SILENT_MS", 0)
        with OneBroker(tmp_path) as broker:
            made = [broker.create("t", number) for number in range(7)]
            for slot in made[:5]:
                bring(slot, range(250))
            wait_for_the_clock()
            upkeep.relieve_arena(broker.shm, 86_400_000)
            assert caplog.records == []
            for slot in made[5:]:
                bring(slot, range(250))
            upkeep.relieve_arena(broker.shm, 86_400_000)
            state = broker.shm.producer_state
            assert state["used_bytes"] <= 0.75 * state["max_bytes"]
            assert state["forgotten_early"] == 7 * 250 - state["producers"] >= 250
            (record,) = caplog.records
            expected = f"the memory for producer state was 87 % full: expired {state['forgotten_early']} producers"
            assert expected in record.getMessage()

    def test_no_producer_that_wrote_recently_expires_early(self, tmp_path: Path) -> None:
        with OneBroker(tmp_path) as broker:
            made = [broker.create("t", number) for number in range(7)]
            for slot in made:
                bring(slot, range(250))
            upkeep.relieve_arena(broker.shm, 86_400_000)
            assert broker.shm.producer_state["producers"] == 7 * 250


def test_counts_by_owner_are_corrected_from_the_entries(broker: OneBroker) -> None:
    slot, other = broker.create(), broker.create("other")
    slot_probe.append(slot, [first(number) for number in range(5)], owner=7)
    slot_probe.append(other, [first(number) for number in range(4)], owner=7)
    assert producer_memory.producers_of(7) == 9
    broker.table.delete(slot)
    assert owner_counts.count_again()
    assert producer_memory.producers_of(7) == 4
    assert not owner_counts.count_again()
