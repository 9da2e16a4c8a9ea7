"""What a flush syncs and records: only records, or indexes and names too; one slot, many, or a whole file system."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.shm.slot import SlotState
from odradek._ext.testing import flush_probe, replica_probe, slot_probe
from odradek.cleaner import upkeep
from odradek.shm.partition_table import PartitionTable
from odradek.storage import file_names
from odradek.storage.checkpoints import read_offset_checkpoint
from tests.shm.one_broker import SETTINGS, OneBroker, batch
from tests.waiting import until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, max_slots=256) as made:
        yield made


def state(slot: int, *names: str) -> tuple[object, ...]:
    facts = slot_facts.describe(slot)
    return tuple(getattr(facts, name) for name in names)


def recovery_point(broker: OneBroker) -> int:
    upkeep.write_checkpoints(broker.shm, [broker.path])
    return read_offset_checkpoint(broker.path / file_names.RECOVERY_POINT_CHECKPOINT)["t", 0]


def test_the_first_flush_of_a_segment_syncs_all_and_the_next_its_records(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(3)])
    assert flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") == (3, 0, 3, 1)
    slot_probe.append(slot, [batch(2)])
    assert flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") == (5, 0, 3, 2)
    assert not flushing.flush(slot)
    assert flushing.flush(slot, True)
    assert state(slot, "synced_end", "flushes") == (5, 3)


def test_the_recovery_point_stays_where_indexes_are_not_synced(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(3)])
    flushing.flush(slot)
    slot_probe.append(slot, [batch(2)])
    flushing.flush(slot)
    assert recovery_point(broker) == 5
    slot_probe.roll(slot)  # the segment at 0 is closed, its records are synced and its indexes are not
    assert state(slot, "flushed_offset", "segment_base") == (5, 5)
    assert recovery_point(broker) == 0
    assert flushing.rolled_since_flush() == [slot]
    upkeep.checkpoint(broker.shm, [broker.path])
    assert read_offset_checkpoint(broker.path / file_names.RECOVERY_POINT_CHECKPOINT)["t", 0] == 5
    assert flushing.rolled_since_flush() == []


def test_a_roll_makes_the_next_flush_a_whole_one(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(3)])
    flushing.flush(slot)
    slot_probe.roll(slot)
    slot_probe.append(slot, [batch(1)])
    flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end") == (4, 3, 4)


def test_a_truncation_invalidates_synced_offsets(broker: OneBroker) -> None:
    slot = broker.create()
    for _ in range(3):
        slot_probe.append(slot, [batch(2)])
    flushing.flush(slot)
    broker.obey(slot, 1)
    slots.truncate(slot, 2)
    assert state(slot, "flushed_offset", "segment_base", "synced_base", "synced_end") == (2, 2, 0, 2)
    slots.truncate(slot, 0)
    assert state(slot, "flushed_offset", "segment_base", "synced_base") == (0, 0, -1)


def test_an_ordered_stop_syncs_the_indexes_of_a_log_whose_records_are_synced(broker: OneBroker) -> None:
    slot = broker.create()
    for _ in range(2):
        slot_probe.append(slot, [batch(2)])
        flushing.flush(slot)
    assert flushing.to_close() == [slot]
    flush_probe.settle(slot)
    assert flushing.to_close() == []
    assert state(slot, "synced_end", "flushed_offset") == (4, 4)


@pytest.mark.parametrize("all_from", [1, 1000])
def test_many_logs_are_synced_together(broker: OneBroker, all_from: int) -> None:
    made = [broker.create("t", number) for number in range(50)]
    beats = []
    for slot in made:
        slot_probe.append(slot, [batch(2)])
    assert flushing.flush_many(made, all_from=all_from, beat=lambda: beats.append(1)) == []
    assert {state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") for slot in made} == {(2, 0, 2, 1)}
    assert flushing.flush_many(made, all_from=all_from) == []
    assert {state(slot, "flushes") for slot in made} == {(1,)}


def test_one_deleted_log_of_many_fails_alone(broker: OneBroker) -> None:
    gone, sound = (broker.create(name) for name in ("gone", "sound"))
    for slot in (gone, sound):
        slot_probe.append(slot, [batch()])
    (broker.table.path(gone) / f"{0:020d}.log").unlink()
    failed = flushing.flush_many([gone, sound], all_from=1000)
    assert [slot for slot, _ in failed] == [gone]
    assert state(gone, "state") == (SlotState.SLOT_OFFLINE,)
    assert state(sound, "state", "flushed_offset") == (SlotState.SLOT_ONLINE, 1)
    assert not broker.shm.log_dir_offline(0)


class FewThreads(threading.Thread):
    """As if the system gave no more than `left` threads."""

    left = 0

    def start(self) -> None:
        if not FewThreads.left:
            raise RuntimeError("can't start new thread")
        FewThreads.left -= 1
        super().start()


@pytest.mark.parametrize("all_from", [3, 1000])
@pytest.mark.parametrize("threads", [0, 1, 2])
def test_logs_are_synced_or_reported_with_too_few_threads(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, threads: int, all_from: int
) -> None:
    gone, *sound = (broker.create("t", number) for number in range(8))
    for slot in (gone, *sound):
        slot_probe.append(slot, [batch()])
    (broker.table.path(gone) / f"{0:020d}.log").unlink()
    monkeypatch.setattr(FewThreads, "left", threads)
    monkeypatch.setattr(threading, "Thread", FewThreads)
    failed = flushing.flush_many([gone, *sound], all_from=all_from)
    if all_from == 1000:
        assert [slot for slot, _ in failed] == [gone]
        assert state(gone, "flushed_offset", "flushes") == (0, 0)
    assert {state(slot, "flushed_offset", "flushes") for slot in sound} == {(1, 1)}


def test_a_flusher_without_a_thread_fails_no_request(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = broker.create(flush_messages=1)
    slot_probe.append(slot, [batch()])
    flusher = Flusher()
    monkeypatch.setattr(FewThreads, "left", 0)
    monkeypatch.setattr(threading, "Thread", FewThreads)
    for _ in range(10):
        flusher.ask(slot)
    assert (flush_probe.thread_count(flusher), state(slot, "flushed_offset")) == (0, (0,))
    assert flushing.flush_due() == [slot]  # as the cleaner sees it
    monkeypatch.undo()
    flusher.ask(slot)
    assert flush_probe.thread_count(flusher) == 1
    flusher.close()
    assert state(slot, "flushed_offset") == (1,)


# -- what consumers may read ----------------------------------------------------------------------------------------------


def test_the_high_watermark_of_a_log_with_flush_messages_moves_with_the_flush(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=1)
    slot_probe.append(slot, [batch(3)])
    assert state(slot, "log_end_offset", "high_watermark", "last_stable_offset") == (3, 0, 0)
    assert slots.awaits_flush(slot)
    flushing.flush(slot)
    assert state(slot, "high_watermark", "last_stable_offset", "high_watermark_base") == (3, 3, 0)
    assert not slots.awaits_flush(slot)


def test_only_an_append_that_reaches_flush_messages_holds_the_high_watermark_back(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=3)
    for end, seen in ((1, 1), (2, 2), (3, 2), (4, 2)):
        slot_probe.append(slot, [batch()])
        assert state(slot, "log_end_offset", "high_watermark") == (end, seen)
    flushing.flush(slot)
    assert state(slot, "high_watermark") == (4,)
    slot_probe.append(slot, [batch(2)])
    assert state(slot, "high_watermark") == (6,)


@pytest.mark.parametrize("flush_messages", [1, 3])
def test_a_leader_with_followers_counts_its_own_records_when_they_are_on_its_device(
    broker: OneBroker, flush_messages: int
) -> None:
    """All replicas may lose power at the same moment, and any of the in-sync replicas may lead afterwards."""
    replica_probe.cluster([1, 2])
    slot = broker.create(flush_messages=flush_messages, alone=False)
    broker.lead(slot, 1, alone=False)
    slot_probe.append(slot, [batch(2)])
    slot_probe.append(slot, [batch(2)])
    assert replica_probe.note_fetch(slot, 2, 4) == 0
    assert state(slot, "high_watermark", "log_end_offset") == (0, 4)
    flushing.flush(slot)
    assert state(slot, "high_watermark") == (4,)


def test_a_new_leader_counts_what_it_received_as_a_follower_when_it_is_on_its_device(broker: OneBroker) -> None:
    replica_probe.cluster([1, 2])
    slot = broker.create(flush_messages=1, alone=False)
    broker.lead(slot, 1, alone=False)
    slot_probe.append(slot, [batch(2)])
    broker.obey(slot, 2)
    broker.lead(slot, 3, alone=False)
    assert replica_probe.note_fetch(slot, 2, 2) == 0
    assert state(slot, "high_watermark", "log_end_offset") == (0, 2)
    flushing.flush(slot)
    assert state(slot, "high_watermark") == (2,)


def test_reducing_flush_messages_moves_the_high_watermark(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=1)
    slot_probe.append(slot, [batch(3)])
    broker.table.configure(slot, {"flush_messages": 3})
    assert state(slot, "high_watermark") == (0,)
    broker.table.configure(slot, {"flush_messages": 4})
    assert state(slot, "high_watermark", "last_stable_offset") == (3, 3)
    broker.table.configure(slot, {"flush_messages": 1})
    assert state(slot, "high_watermark") == (3,)


@pytest.mark.parametrize(("alone", "seen"), [(True, 2), (False, 2)])
def test_the_high_watermark_of_a_new_leader_is_its_synced_end(broker: OneBroker, alone: bool, seen: int) -> None:
    slot = broker.create(flush_messages=1)
    slot_probe.append(slot, [batch(2)])
    flushing.flush(slot)
    broker.obey(slot, 1)
    assert slots.follow(slot, batch(3, base_offset=2, partition_leader_epoch=1), 0) == 5
    broker.lead(slot, 2, alone=alone)
    assert state(slot, "log_end_offset", "high_watermark") == (5, seen)
    flushing.flush(slot)
    assert state(slot, "high_watermark") == (5 if alone else 2,)
    if not alone:
        slots.raise_high_watermark(slot, 5)
        assert state(slot, "high_watermark", "last_stable_offset") == (5, 5)


def test_a_flush_that_rolls_were_quicker_than_shows_its_end(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=1, segment_bytes=len(batch(2)) + 1)
    for _ in range(4):
        slot_probe.append(slot, [batch(2)])
    assert state(slot, "segment_base", "high_watermark") == (6, 0)
    flushing.flush(slot)
    assert state(slot, "high_watermark", "high_watermark_base", "high_watermark_position") == (8, 6, len(batch(2)))


def test_a_flush_that_moves_nothing_wakes_a_process_whose_request_it_may_have_dropped(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=1)
    slot_probe.append(slot, [batch()])
    flushing.flush(slot)
    slots.await_committed(slot)
    assert broker.shm.take_ready() == []
    assert flushing.flush(slot, True)
    assert broker.shm.take_ready() == [slot]
    slot_probe.append(slot, [batch()])
    slots.await_committed(slot)
    flushing.flush(slot)
    assert broker.shm.take_ready() == [slot]


def test_a_log_that_is_recovered_is_synced_before_consumers_see_its_end(broker: OneBroker) -> None:
    slot = broker.create(flush_messages=1)
    for count in (2, 3):
        slot_probe.append(slot, [batch(count)])
    shutil.copytree(broker.table.path(slot), broker.path / "t-1")
    for partition, flush_messages, flushed in ((1, 1, 5), (2, 4, 2)):
        shutil.copytree(broker.table.path(slot), broker.path / f"t-{partition}", dirs_exist_ok=True)
        again = broker.create("t", partition, opened=False, flush_messages=flush_messages)
        broker.table.open(again, recovery_point=2, clean=False)
        assert state(again, "flushed_offset", "high_watermark", "last_stable_offset") == (flushed, 5, 5)


def test_a_failed_directory_is_not_synced_again(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch()])
    broker.shm.set_log_dir_offline(0)
    with pytest.raises(OSError, match="Input/output error"):
        flushing.flush(slot)
    assert state(slot, "flushed_offset", "flushes") == (0, 0)


def test_a_flusher_starts_threads_on_demand_and_completes_its_requests(broker: OneBroker) -> None:
    made = [broker.create("t", number, flush_messages=1) for number in range(40)]
    for slot in made:
        slot_probe.append(slot, [batch()])
    flusher = Flusher()
    assert flush_probe.thread_count(flusher) == 0
    for slot in made:
        flusher.ask(slot)
    assert 1 <= flush_probe.thread_count(flusher) <= 4
    flusher.close()
    assert {state(slot, "flushed_offset") for slot in made} == {(1,)}


def in_directory(broker: OneBroker, table: PartitionTable, log_dir: int, partition: int) -> int:
    """A partition in a log directory, with one record that is not synced; its slot."""
    slot = table.create(
        "t", bytes(15) + b"t", partition, log_dir=log_dir, replicas=[1], in_sync=[1], leader_id=1, leader_epoch=0,
        partition_epoch=0, settings=SETTINGS | {"flush_messages": 1},
    )  # fmt: skip
    table.open(slot)
    assert slot_probe.append(slot, [batch()])[0][0] == 0
    return slot


def test_each_log_directory_has_a_thread_even_if_others_hang(tmp_path: Path) -> None:
    """A FIFO takes the place of a log's file: a thread that opens it to sync it waits until somebody opens it for writing."""
    paths = [tmp_path / f"{number}" for number in range(16)]
    for path in paths:
        path.mkdir()
    with OneBroker(paths[0], max_slots=256) as broker, ExitStack() as stack:
        for path in paths[1:]:
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            broker.shm.add_log_dir(descriptor)
        table = PartitionTable(broker.shm, paths)
        hanging = [in_directory(broker, table, number // 6, number) for number in range(15 * 6)]
        files = [table.path(slot) / f"{0:020d}.log" for slot in hanging]
        for file in files:
            file.unlink()
            os.mkfifo(file)
        quick = [in_directory(broker, table, 15, 1000 + number) for number in range(6)]
        flusher = Flusher()
        for slot in hanging + quick:
            flusher.ask(slot)
        assert flush_probe.thread_count(flusher) == 20
        until(
            lambda: {state(slot, "flushed_offset") for slot in quick} == {(1,)}, "the last directory's logs are synced"
        )
        assert {state(slot, "flushed_offset") for slot in hanging} == {(0,)}
        for file in files:
            stack.callback(os.close, os.open(file, os.O_RDWR))
        flusher.close()
