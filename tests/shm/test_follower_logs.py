"""A follower's log: what it takes over from its leader, where it may be cut, and what a start finds afterwards."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.leader_epochs as leader_epochs
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_upkeep, slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import replica_probe, slot_probe
from odradek.shm import epochs, truncation
from odradek.shm.checkpoints import write_checkpoints
from odradek.storage.batch import TRANSACTIONAL, read_batch
from odradek.storage.checkpoints import read_gap_limit, read_offset_checkpoint, write_leader_epochs
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.shm.one_broker import OneBroker, batch


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made


def follower(broker: OneBroker, **settings: int) -> int:
    slot = broker.create(alone=False, **settings)
    broker.obey(slot, 1)
    return slot


def sent(offset: int, count: int = 10, epoch: int = 1, **fields: int) -> bytes:
    return batch(count, base_offset=offset, partition_leader_epoch=epoch, **fields)


def refusal(slot: int, data: bytes) -> AppendResult | None:
    with pytest.raises(slots.SlotChanged) as raised:
        slots.follow(slot, data, 0)
    return raised.value.result


def test_the_leaders_log_start_comes_with_a_new_generation_and_settles_the_last_stable_offset(
    broker: OneBroker,
) -> None:
    slot = follower(broker)
    identity = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    slots.follow(slot, sent(0, **identity) + sent(10), 20)
    before = slot_facts.describe(slot)
    assert (before.last_stable_offset, before.first_unstable_offset) == (0, 0)
    slots.follow(slot, b"", 20, leader_log_start_offset=15)
    after = slot_facts.describe(slot)
    assert after.log_start_offset == 15
    assert after.generation > before.generation
    assert after.last_stable_offset == 15, "the beginning of the open transaction is deleted"


def test_a_log_start_above_the_high_watermark_waits(broker: OneBroker) -> None:
    slot = follower(broker)
    slots.follow(slot, sent(0), 5, leader_log_start_offset=8)
    assert slot_facts.describe(slot).log_start_offset == 0
    slots.follow(slot, b"", 9, leader_log_start_offset=8)
    assert slot_facts.describe(slot).log_start_offset == 8


def test_a_damaged_batch_is_told_from_one_that_does_not_fit(broker: OneBroker) -> None:
    slot = follower(broker)
    damaged = bytearray(sent(10))
    damaged[-1] ^= 1
    assert refusal(slot, sent(0) + damaged + sent(20)) == AppendResult.APPEND_CORRUPT
    assert slot_facts.describe(slot).log_end_offset == 10, "the batches before it were appended"
    assert refusal(slot, sent(5)) == AppendResult.APPEND_OUT_OF_RANGE


def test_a_log_that_begins_inside_a_batch_of_the_leader_is_begun_at_that_batch(broker: OneBroker) -> None:
    slot = follower(broker)
    slots.follow(slot, sent(0), 10)
    assert truncation.start_at(broker.shm, [broker.path], slot, 105) == 105
    assert slot_facts.describe(slot).log_start_offset == 105
    assert refusal(slot, sent(90)) == AppendResult.APPEND_OUT_OF_RANGE
    assert refusal(slot, sent(100)) == AppendResult.APPEND_BEFORE_LOG
    assert truncation.start_at(broker.shm, [broker.path], slot, 100) == 100
    assert slots.follow(slot, sent(100), 110, leader_log_start_offset=105) == 110
    facts = slot_facts.describe(slot)
    assert (facts.log_start_offset, facts.high_watermark) == (105, 110)


@pytest.mark.parametrize("offset", [500, 5, 0])
def test_a_restarted_log_is_empty_and_a_start_finds_it_so(broker: OneBroker, tmp_path: Path, offset: int) -> None:
    slot = follower(broker, segment_bytes=300)
    for number in range(6):
        slots.follow(slot, sent(10 * number, epoch=number), 10 * number)
    flushing.flush(slot, whole=True)
    write_checkpoints(broker.shm, [broker.path])
    assert slot_facts.describe(slot).recovery_point > 5
    assert truncation.start_at(broker.shm, [broker.path], slot, offset) == offset
    facts = slot_facts.describe(slot)
    assert (facts.log_start_offset, facts.log_end_offset, facts.high_watermark, facts.flushed_offset) == (offset,) * 4
    assert facts.epochs == [] and facts.producer_count == 0 and facts.gap_limit <= offset
    assert [path.name for path in broker.table.path(slot).glob("*.log")] == [f"{offset:020d}.log"]
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT)["t", 0] <= offset
    assert slots.follow(slot, sent(offset, epoch=7), offset + 10) == offset + 10
    shutil.copytree(broker.table.path(slot), tmp_path / "copy")
    loaded = load_log(tmp_path / "copy")
    assert (loaded.log_end_offset, loaded.base_offset, loaded.epochs) == (offset + 10, offset, [(7, offset)])


def test_a_truncation_does_not_go_below_the_log_start(broker: OneBroker) -> None:
    slot = follower(broker)
    slots.follow(slot, sent(0) + sent(10) + sent(20), 25, leader_log_start_offset=14)
    assert truncation.truncate(broker.shm, [broker.path], slot, 3) == 14
    facts = slot_facts.describe(slot)
    assert (facts.log_start_offset, facts.log_end_offset) == (14, 14)
    assert refusal(slot, sent(10)) == AppendResult.APPEND_BEFORE_LOG


def test_nothing_is_appended_after_a_truncation_that_comes_between_the_reading_and_the_writing_of_the_recovery_points(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file then contains a recovery point beyond records that are appended below it, and that no device has."""
    slot = follower(broker)
    slots.follow(slot, sent(0), 10)
    flushing.flush(slot, whole=True)
    write_checkpoints(broker.shm, [broker.path])
    slots.follow(slot, sent(10) + sent(20), 10)
    flushing.flush(slot, whole=True)
    announce = slot_upkeep.announce_recovery_point

    def announced(*given: int) -> object:
        try:
            return announce(*given)
        finally:
            slots.truncate(slot, 20)

    monkeypatch.setattr(slot_upkeep, "announce_recovery_point", announced)
    write_checkpoints(broker.shm, [broker.path])
    monkeypatch.undo()
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT) == {("t", 0): 30}
    assert refusal(slot, sent(20)) == AppendResult.APPEND_UNSETTLED
    assert truncation.settle(broker.shm, [broker.path], slot) == 20
    assert read_offset_checkpoint(broker.path / RECOVERY_POINT_CHECKPOINT)["t", 0] <= 20
    slots.follow(slot, sent(20), 30)


def test_a_recovery_point_read_before_a_truncation_is_not_written_after_it(broker: OneBroker) -> None:
    slot = follower(broker)
    slots.follow(slot, sent(0) + sent(10), 10)
    flushing.flush(slot, whole=True)
    read = slot_facts.describe(slot).flushed_offset
    slots.truncate(slot, 10)
    assert slot_upkeep.announce_recovery_point(slot, read)[0] == 10
    slots.follow(slot, sent(10), 10)


def test_a_flush_of_the_records_after_a_gap_covers_the_gap_limit(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a recovery after a power loss would cut a log there although its recovery point is beyond."""
    slot = follower(broker)
    slots.follow(slot, sent(0), 10)
    flushing.flush(slot, whole=True)
    path = broker.table.path(slot)
    slots.follow(slot, sent(17), 10)
    assert read_gap_limit(path) == 17
    from tests.shm.test_recovery_point import dirty_pages

    (limit,) = path.glob("odradek-gaps-*")
    flushing.flush(slot)
    assert slot_facts.describe(slot).flushed_offset == 27
    assert dirty_pages(limit) == 0


def test_gaps_of_the_leader_are_kept_without_a_pass_of_the_own_cleaner(broker: OneBroker, tmp_path: Path) -> None:
    """The policy may have changed to delete before this broker's cleaner ever ran."""
    slot = follower(broker, compact=0, delete_=1)
    slots.follow(slot, sent(0) + sent(40) + sent(77), 10)
    flushing.flush(slot)
    shutil.copytree(broker.table.path(slot), tmp_path / "copy")
    assert load_log(tmp_path / "copy").log_end_offset == 87


# -- leader epochs -----------------------------------------------------------------------------------------------------


def led(broker: OneBroker, count: int) -> int:
    """A leader with `count` epochs, 2 to 2 * count, of 10 records each."""
    slot = broker.create()
    for number in range(1, count + 1):
        broker.lead(slot, 2 * number)
        slot_probe.append(slot, [batch(10)])
    return slot


def test_end_offsets_of_epochs(broker: OneBroker) -> None:
    slot = led(broker, 4)
    find = epochs.end_offset_for
    assert [find(slot, epoch) for epoch in (2, 3, 4, 7, 8)] == [(2, 10), (2, 10), (4, 20), (6, 30), (8, 40)]
    assert find(slot, 9) == find(slot, -1) == (-1, -1)
    assert find(slot, 1) == (1, 0)
    broker.lead(slot, 10)
    assert (find(slot, 8), find(slot, 9), find(slot, 10)) == ((8, 40), (8, 40), (10, 40))


def test_end_offsets_of_epochs_that_only_the_file_has(broker: OneBroker) -> None:
    slot = led(broker, 20)
    assert leader_epochs.find_end_offset(slot, 24) is None
    assert leader_epochs.find_end_offset(slot, 26) == (26, 130)
    assert [epochs.end_offset_for(slot, epoch) for epoch in (1, 2, 9, 24, 25)] == [
        (1, 0), (2, 10), (8, 40), (24, 120), (24, 120)]  # fmt: skip


def test_epochs_before_the_log_start_are_ignored(broker: OneBroker) -> None:
    slot = broker.create(alone=False)
    broker.obey(slot, 9)
    slots.follow(slot, b"".join(sent(10 * number, epoch=number) for number in range(1, 5)), 50)
    slots.follow(slot, b"", 50, leader_log_start_offset=25)
    find = leader_epochs.find_end_offset
    assert [find(slot, epoch) for epoch in (0, 1, 2, 3, 4)] == [(0, 25), (1, 25), (2, 30), (3, 40), (4, 50)]
    for number in range(5, 16):
        slots.follow(slot, sent(10 * number, epoch=number), 160, leader_log_start_offset=25)
    assert epochs.end_offset_for(slot, 1) == (1, 25)
    slots.follow(slot, b"", 160, leader_log_start_offset=125)
    assert find(slot, 1) == (1, 125), "no need of the file: the older epochs have no records"


def test_no_reader_gets_a_wrong_end_of_an_epoch_while_the_epochs_are_read_again(broker: OneBroker) -> None:
    """Each recovery, truncation, and epoch that replaces another one empties the slot's epochs for a moment."""
    slot = broker.create(alone=False)
    broker.obey(slot, 3)
    slots.follow(slot, sent(0, epoch=1) + sent(10, epoch=2) + sent(20, epoch=3), 0)
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            for epoch, right in ((1, (1, 10)), (2, (2, 20))):
                found = leader_epochs.find_end_offset(slot, epoch)
                if found not in (right, None):
                    wrong.append((epoch, found))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        slots.truncate(slot, 20)
        slots.follow(slot, sent(20, epoch=3), 0)
    stop.set()
    reader.join()
    assert wrong == []


def test_the_position_of_a_follower(broker: OneBroker) -> None:
    slot = follower(broker)
    found = replica_probe.position(slot)
    assert (found["log_end_offset"], found["last_epoch"], found["leader_id"], found["leader_epoch"]) == (0, -1, 2, 1)
    slots.follow(slot, sent(0, epoch=1), 4)
    broker.lead(slot, 5, alone=False)  # it leaves an epoch without a batch
    broker.obey(slot, 6)
    found = replica_probe.position(slot)
    assert (found["log_end_offset"], found["last_epoch"], found["high_watermark"]) == (10, 1, 4)
    slots.follow(slot, sent(10, epoch=6), 4)
    assert replica_probe.position(slot)["last_epoch"] == 6


def test_epochs_of_a_file_with_older_entries_than_the_log(broker: OneBroker) -> None:
    slot = led(broker, 12)
    write_leader_epochs(broker.table.path(slot) / LEADER_EPOCH_CHECKPOINT, [(4, 5), *slot_facts.describe(slot).epochs])
    assert epochs.end_offset_for(slot, 6) == (4, 40)
    assert read_batch(broker.log_bytes(slot))[0].partition_leader_epoch == 2
