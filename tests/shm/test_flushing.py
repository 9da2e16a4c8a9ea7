"""What a flush syncs and says of it: records alone, or indexes and names too; one slot, many, or a whole file system."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker._ext.shared import SlotState

from broker._ext import flushing, slots
from broker.shm import upkeep
from broker.storage import file_names
from broker.storage.checkpoints import read_offset_checkpoint
from tests.shm.one_broker import OneBroker, batch


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, max_slots=256) as made:
        yield made


def state(slot: int, *names: str) -> tuple[object, ...]:
    described = slots.describe(slot)
    return tuple(described[name] for name in names)


def recovery_point(broker: OneBroker) -> int:
    upkeep.write_checkpoints(broker.shm, [broker.path])
    return read_offset_checkpoint(broker.path / file_names.RECOVERY_POINT_CHECKPOINT)["t", 0]


def test_the_first_flush_of_a_segment_syncs_all_and_the_next_its_records(broker: OneBroker) -> None:
    slot = broker.create()
    slots.append(slot, [batch(3)])
    assert flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") == (3, 0, 3, 1)
    slots.append(slot, [batch(2)])
    assert flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") == (5, 0, 3, 2)
    assert not flushing.flush(slot)
    assert flushing.flush(slot, True)
    assert state(slot, "synced_end", "flushes") == (5, 3)


def test_the_recovery_point_stays_where_indexes_are_not_synced(broker: OneBroker) -> None:
    slot = broker.create()
    slots.append(slot, [batch(3)])
    flushing.flush(slot)
    slots.append(slot, [batch(2)])
    flushing.flush(slot)
    assert recovery_point(broker) == 5
    slots.roll(slot)  # the segment at 0 is closed, its records are synced and its indexes are not
    assert state(slot, "flushed_offset", "segment_base") == (5, 5)
    assert recovery_point(broker) == 0
    assert flushing.rolled_since_flush() == [slot]
    upkeep.checkpoint(broker.shm, [broker.path])
    assert read_offset_checkpoint(broker.path / file_names.RECOVERY_POINT_CHECKPOINT)["t", 0] == 5
    assert flushing.rolled_since_flush() == []


def test_a_roll_makes_the_next_flush_a_whole_one(broker: OneBroker) -> None:
    slot = broker.create()
    slots.append(slot, [batch(3)])
    flushing.flush(slot)
    slots.roll(slot)
    slots.append(slot, [batch(1)])
    flushing.flush(slot)
    assert state(slot, "flushed_offset", "synced_base", "synced_end") == (4, 3, 4)


def test_a_truncation_takes_back_what_was_said_to_be_synced(broker: OneBroker) -> None:
    slot = broker.create()
    for _ in range(3):
        slots.append(slot, [batch(2)])
    flushing.flush(slot)
    broker.obey(slot, 1)
    slots.truncate(slot, 2)
    assert state(slot, "flushed_offset", "segment_base", "synced_base", "synced_end") == (2, 2, 0, 2)
    slots.truncate(slot, 0)
    assert state(slot, "flushed_offset", "segment_base", "synced_base") == (0, 0, -1)


def test_an_ordered_stop_syncs_the_indexes_of_a_log_whose_records_are_synced(broker: OneBroker) -> None:
    slot = broker.create()
    for _ in range(2):
        slots.append(slot, [batch(2)])
        flushing.flush(slot)
    assert flushing.to_close() == [slot]
    flushing.settle(slot)
    assert flushing.to_close() == []
    assert state(slot, "synced_end", "flushed_offset") == (4, 4)


@pytest.mark.parametrize("all_from", [1, 1000])
def test_many_logs_are_synced_together(broker: OneBroker, all_from: int) -> None:
    made = [broker.create("t", number) for number in range(50)]
    beats = []
    for slot in made:
        slots.append(slot, [batch(2)])
    assert flushing.flush_many(made, all_from=all_from, beat=lambda: beats.append(1)) == []
    assert {state(slot, "flushed_offset", "synced_base", "synced_end", "flushes") for slot in made} == {(2, 0, 2, 1)}
    assert flushing.flush_many(made, all_from=all_from) == []
    assert {state(slot, "flushes") for slot in made} == {(1,)}


def test_one_of_many_that_is_gone_fails_alone(broker: OneBroker) -> None:
    gone, sound = (broker.create(name) for name in ("gone", "sound"))
    for slot in (gone, sound):
        slots.append(slot, [batch()])
    (broker.table.path(gone) / f"{0:020d}.log").unlink()
    failed = flushing.flush_many([gone, sound], all_from=1000)
    assert [slot for slot, _ in failed] == [gone]
    assert state(gone, "state") == (SlotState.SLOT_OFFLINE,)
    assert state(sound, "state", "flushed_offset") == (SlotState.SLOT_ONLINE, 1)
    assert not broker.shm.log_dir_offline(0)


def test_a_directory_out_of_use_is_not_asked_again(broker: OneBroker) -> None:
    slot = broker.create()
    slots.append(slot, [batch()])
    broker.shm.set_log_dir_offline(0)
    with pytest.raises(OSError, match="Input/output error"):
        flushing.flush(slot)
    assert state(slot, "flushed_offset", "flushes") == (0, 0)


def test_a_flusher_has_no_thread_before_it_is_asked_and_ends_what_it_was_asked_for(broker: OneBroker) -> None:
    made = [broker.create("t", number, flush_messages=1) for number in range(40)]
    for slot in made:
        slots.append(slot, [batch()])
    flusher = flushing.Flusher()
    assert flusher.thread_count == 0
    for slot in made:
        flusher.ask(slot)
    assert 1 <= flusher.thread_count <= 4
    flusher.close()
    assert {state(slot, "flushed_offset") for slot in made} == {(1,)}
