"""Logs that lost records at their ends, in a broker of a cluster [R 13]: when the slot says so, and until when."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.partition import roles, slots
from odradek._ext.partition.lost_tails import LostRecords, lost_tail
from odradek._ext.shm.slot import LostTail, SlotState
from odradek._ext.testing import replica_probe, slot_probe
from tests.shm.one_broker import OneBroker, batch

COMPLETE, LOST, LED = LostTail.TAIL_COMPLETE, LostTail.TAIL_LOST, LostTail.TAIL_LOST_LED
TORN = 10
"""Bytes that are missing of the last batch."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory with a partition of three batches of ten records."""
    with OneBroker(tmp_path) as broker:
        slot = broker.create()
        for _ in range(3):
            slot_probe.append(slot, [batch(10)])
    return tmp_path


@pytest.fixture
def broker(directory: Path) -> Iterator[OneBroker]:
    """The next start, in a cluster."""
    with OneBroker(directory) as made:
        brokers.begin_cluster(30_000)
        yield made


def log_file(directory: Path) -> Path:
    (path,) = directory.glob("t-0/*.log")
    return path


def tear(directory: Path) -> int:
    """Cut the last bytes off the log. Returns the number of bytes that remain of the last batch."""
    path = log_file(directory)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - TORN)
    return size // 3 - TORN


def load(broker: OneBroker, **options: int) -> int:
    slot = broker.create(opened=False)
    broker.table.open(slot, clean=False, **options)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    return slot


def follow(broker: OneBroker, slot: int, epoch: int = 5) -> None:
    broker.obey(slot, epoch)


# -- loading -----------------------------------------------------------------------------------------------------------


def test_a_complete_log_lost_nothing(broker: OneBroker) -> None:
    slot = load(broker, high_watermark=30, recovery_point=30)
    assert lost_tail(slot).state == COMPLETE


def test_a_torn_log_lost_its_end(broker: OneBroker, directory: Path) -> None:
    left = tear(directory)
    slot = load(broker)
    assert lost_tail(slot) == LostRecords(LOST, left, 20)


@pytest.mark.parametrize("checkpoint", ["recovery_point", "high_watermark"])
def test_a_log_that_ends_before_its_checkpoint_lost_its_end(
    broker: OneBroker, directory: Path, checkpoint: str
) -> None:
    path = log_file(directory)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 3 * 2)  # at the end of a batch: nothing must be cut off
    slot = load(broker, **{checkpoint: 21})
    assert lost_tail(slot) == LostRecords(LOST, 0, 20)


def test_a_broker_without_a_cluster_notes_nothing(directory: Path) -> None:
    tear(directory)
    with OneBroker(directory) as alone:
        assert lost_tail(load(alone)).state == COMPLETE


# -- until when ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def slot(broker: OneBroker, directory: Path) -> int:
    """A log that lost its end; it ends at offset 20."""
    tear(directory)
    return load(broker)


def test_a_leader_without_the_records_is_one_until_it_follows(broker: OneBroker, slot: int) -> None:
    broker.lead(slot, 5)
    assert lost_tail(slot).state == LED
    broker.lead(slot, 6)
    replica_probe.catch_up(slot, 6, 20)
    assert lost_tail(slot).state == LED, "a leader has nobody to get the records from"
    follow(broker, slot, 7)
    assert lost_tail(slot).state == LED
    replica_probe.catch_up(slot, 7, 20)
    assert lost_tail(slot).state == COMPLETE


def test_a_partition_with_one_replica_has_nothing_to_say_when_it_leads(broker: OneBroker, slot: int) -> None:
    roles.become_leader(
        slot, slot_probe.incarnation_of(slot), leader_id=1, leader_epoch=5, partition_epoch=5, controller_epoch=1,
        replicas=[1], in_sync=[1],
    )  # fmt: skip
    assert lost_tail(slot).state == COMPLETE


def test_a_follower_that_has_all_records_of_its_leader_is_complete(broker: OneBroker, slot: int) -> None:
    follow(broker, slot)
    replica_probe.catch_up(slot, 5, 20)
    assert lost_tail(slot).state == COMPLETE


def test_what_the_leader_has_committed_and_the_log_has_not_is_missing(broker: OneBroker, slot: int) -> None:
    follow(broker, slot)
    replica_probe.catch_up(slot, 5, 30)
    assert lost_tail(slot).state == LOST
    slots.follow(slot, batch(10, base_offset=20, partition_leader_epoch=5), 30)
    replica_probe.catch_up(slot, 5, 29)
    assert lost_tail(slot).state == LOST, "the leader knows less than this log: it was elected just now"
    replica_probe.catch_up(slot, 5, 30)
    assert lost_tail(slot).state == COMPLETE


def test_a_response_to_a_former_role_says_nothing(broker: OneBroker, slot: int) -> None:
    follow(broker, slot)
    replica_probe.catch_up(slot, 4, 20)
    replica_probe.catch_up(slot, 5, 20, incarnation=slot_probe.incarnation_of(slot) + 1)
    assert lost_tail(slot).state == LOST
