"""Leader epochs without records leave the checkpoint file soon after the log start offset moved."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.log_start as log_start
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.partition.slots import SlotChanged
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe
from odradek.cleaner.leader_epochs import NEW_FILE, LeaderEpochs
from odradek.storage.checkpoints import epochs_from, read_leader_epochs, write_leader_epochs
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT
from tests.shm.one_broker import OneBroker, batch

EPOCHS = [(0, 0), (2, 10), (5, 20)]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, EPOCHS),
        (9, [(0, 9), (2, 10), (5, 20)]),
        (10, [(2, 10), (5, 20)]),
        (15, [(2, 15), (5, 20)]),
        (20, [(5, 20)]),
        (99, [(5, 99)]),
    ],
)
def test_the_epoch_of_the_first_record_begins_with_it_and_older_epochs_are_removed(start, left):
    assert epochs_from(EPOCHS, start) == left


def test_epochs_of_a_log_that_begins_before_its_first_epoch_are_kept():
    assert epochs_from([(3, 50)], 7) == [(3, 50)]
    assert epochs_from([], 7) == []


@pytest.fixture
def broker(tmp_path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path) as one:
        yield one


def led_thrice(broker: OneBroker) -> int:
    slot = broker.create()
    for epoch in (0, 2, 5):
        if epoch:
            broker.lead(slot, epoch)
        slot_probe.append(slot, [batch(10)])
    assert written(broker, slot) == EPOCHS
    return slot


def test_the_refusal_of_an_older_epoch_names_the_partition(broker: OneBroker) -> None:
    slot = led_thrice(broker)
    with pytest.raises(SlotChanged, match=r"^t-0 has a newer epoch than leader epoch 4, partition epoch 4$"):
        broker.lead(slot, 4)


def checkpoint(broker: OneBroker, slot: int) -> Path:
    return broker.table.path(slot) / LEADER_EPOCH_CHECKPOINT


def written(broker: OneBroker, slot: int) -> list[tuple[int, int]]:
    return read_leader_epochs(checkpoint(broker, slot))


def advance(slot: int, offset: int) -> None:
    assert log_start.advance(slot, offset, incarnation=slot_probe.incarnation_of(slot)) == (
        AppendResult.APPEND_OK,
        offset,
    )


def test_epochs_that_end_before_the_log_start_leave_the_file(broker):
    slot, trims = led_thrice(broker), LeaderEpochs(broker.shm, [broker.path])
    trims.run()
    assert written(broker, slot) == EPOCHS
    advance(slot, 9)
    trims.run()
    assert written(broker, slot) == EPOCHS, "the first epoch has a record still"
    advance(slot, 12)
    trims.run()
    assert written(broker, slot) == [(2, 12), (5, 20)]
    advance(slot, 30)
    trims.run()
    assert written(broker, slot) == [(5, 30)]
    assert not list(broker.table.path(slot).glob(f"{NEW_FILE}*"))


def test_the_next_epoch_follows_the_remaining_ones(broker):
    slot = led_thrice(broker)
    advance(slot, 12)
    LeaderEpochs(broker.shm, [broker.path]).run()
    broker.lead(slot, 7)
    slot_probe.append(slot, [batch(10)])
    assert written(broker, slot) == [(2, 12), (5, 20), (7, 30)]


def test_a_new_epoch_is_added_to_the_file_in_place_while_the_header_keeps_its_length(broker: OneBroker) -> None:
    slot = broker.create()
    expected = []
    inodes = []
    for epoch in range(30):
        if epoch:
            broker.lead(slot, epoch)
        slot_probe.append(slot, [batch(10)])
        expected.append((epoch, epoch * 10))
        assert written(broker, slot) == expected
        inodes.append(checkpoint(broker, slot).stat().st_ino)
    assert len(set(inodes[:9])) == len(set(inodes[9:])) == 1 and inodes[8] != inodes[9], "9 and 10 entries"
    assert not list(broker.table.path(slot).glob("*.tmp"))


def test_a_file_with_other_bytes_than_the_lines_is_replaced(broker: OneBroker) -> None:
    slot = led_thrice(broker)
    path = checkpoint(broker, slot)
    path.write_bytes(path.read_bytes() + bytes(20))  # as a loss of power may leave it
    before = path.stat().st_ino
    broker.lead(slot, 7)
    slot_probe.append(slot, [batch(10)])
    assert written(broker, slot) == [*EPOCHS, (7, 30)]
    assert path.stat().st_ino != before


def test_zeros_at_the_end_of_the_file_are_an_epoch_that_was_not_written(broker: OneBroker) -> None:
    slot = led_thrice(broker)
    path = checkpoint(broker, slot)
    data = path.read_bytes()
    flushing.flush(slot, whole=True)
    for zeros in (1, 7, 400):
        path.write_bytes(data + bytes(zeros))
        loaded = load_log(broker.table.path(slot), recovery_point=30)
        assert loaded.epochs == EPOCHS
        assert not [event for event in loaded.events if "epochs" in event.message]
        assert path.read_bytes() == data


def test_a_number_that_is_torn_before_zeros_is_not_taken_for_a_smaller_one(broker: OneBroker) -> None:
    """A start then determines the epochs from the batches, as if there were no file."""
    slot = led_thrice(broker)
    path = checkpoint(broker, slot)
    data = path.read_bytes()
    flushing.flush(slot, whole=True)
    assert data.endswith(b" 20\n")
    for torn in (1, 2):
        path.write_bytes(data[:-torn] + bytes(5))
        loaded = load_log(broker.table.path(slot), recovery_point=0)
        assert loaded.epochs == EPOCHS
        assert path.read_bytes() == data


def test_an_outdated_file_does_not_replace_one_that_changed_meanwhile(broker):
    slot = led_thrice(broker)
    facts = slot_facts.of_open_log(slot)
    write_leader_epochs(broker.table.path(slot) / NEW_FILE, [(5, 20)])
    broker.lead(slot, 7)
    slot_probe.append(slot, [batch(10)])
    told = log_start.put_epochs(
        slot,
        NEW_FILE.encode(),
        incarnation=facts.incarnation,
        generation=facts.generation,
        epoch_count=facts.epoch_count,
    )
    assert told != AppendResult.APPEND_OK
    assert written(broker, slot) == [*EPOCHS, (7, 30)]


def test_a_file_that_cannot_be_read_or_written_stays_and_is_logged(broker, caplog):
    slot, trims = led_thrice(broker), LeaderEpochs(broker.shm, [broker.path])
    path = checkpoint(broker, slot)
    path.write_text("7\n")
    advance(slot, 12)
    trims.run()
    assert path.read_text() == "7\n"
    assert str(path) in caplog.text
    write_leader_epochs(path, EPOCHS)
    (broker.table.path(slot) / (NEW_FILE + ".tmp")).mkdir()
    advance(slot, 13)
    trims.run()
    assert written(broker, slot) == EPOCHS
    assert NEW_FILE in caplog.text


@pytest.mark.parametrize("before", [b"0\n1\n0 0", b"0\n1\n0 0\n", b"0\n2\n0 0\n1 0"])
def test_an_epoch_is_added_to_a_file_whose_last_line_does_not_end(broker: OneBroker, before: bytes) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(10)])
    checkpoint(broker, slot).write_bytes(before)
    broker.lead(slot, 2)
    assert written(broker, slot) == [*((int(epoch), 0) for epoch in range(int(before[2:3]))), (2, 10)]
    slot_probe.append(slot, [batch(10)])
    broker.lead(slot, 5)
    assert written(broker, slot)[-2:] == [(2, 10), (5, 20)]
