"""The producer state of a partition: it grows, is found, expires by the broker's clock, and is freed."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slot_upkeep, slots
from odradek._ext.testing import producer_memory, slot_probe
from odradek.storage.batch import ABORT, TRANSACTIONAL, build_end_marker
from tests.shm.one_broker import OneBroker, batch

UNIT_BYTES = 1024
LATER = 1 << 62


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path, arena_bytes=8 << 20) as made:
        yield made


def first(producer: int, *, timestamp: int = 1000, **fields: int) -> bytes:
    return batch(producer_id=producer, producer_epoch=0, base_sequence=0, timestamp=timestamp, **fields)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wait_for_the_clock() -> int:
    """A time after everything that was heard so far, and before what is heard from now on."""
    now = monotonic_ms()
    while monotonic_ms() <= now + 8:  # the clock of an append is up to a few ms behind
        os.sched_yield()
    return now + 2


def test_one_write_may_contain_more_new_producers_than_the_run_holds(broker: OneBroker) -> None:
    slot = broker.create()
    batches = [first(number) for number in range(64)]
    assert [answer[0] for answer in slot_probe.append(slot, batches)] == [0] * 64
    assert slot_probe.append(slot, batches) == [(0, number, True) for number in range(64)]


def test_a_run_grows_and_the_former_run_is_freed(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(500):
        slot_probe.append(slot, [first(number)])
    assert len(slot_probe.producers(slot)) == 500
    assert producer_memory.arena_units_used() == 256  # of 64 and 256 bytes, and 12 for the index: 977 fit
    assert slot_upkeep.reclaim_arena() == 0
    assert all(slot_probe.append(slot, [first(number)]) == [(0, number, True)] for number in range(500))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 30, 31, 200])
def test_every_producer_is_found_in_a_run_of_any_size(broker: OneBroker, count: int) -> None:
    slot = broker.create()
    ids = [number * 7919 for number in range(count)]
    for offset, number in enumerate(ids):
        assert slot_probe.append(slot, [first(number)]) == [(0, offset, False)]
    for offset, number in enumerate(ids):
        assert slot_probe.append(slot, [first(number)]) == [(0, offset, True)]
    assert slot_probe.append(slot, [first(1)]) == [(0, count, False)]
    assert set(slot_probe.producers(slot)) == {*ids, 1}


def test_the_largest_producer_id_is_valid(broker: OneBroker) -> None:
    slot = broker.create()
    largest = (1 << 63) - 1
    assert slot_probe.append(slot, [first(largest), first(0)]) == [(0, 0, False), (0, 1, False)]
    assert slot_probe.append(slot, [first(largest), first(0)]) == [(0, 0, True), (0, 1, True)]


def test_growth_keeps_producers_without_timestamp(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(20):
        slot_probe.append(slot, [first(number, timestamp=-1)])
    assert slot_probe.append(slot, [first(0, timestamp=-1)]) == [(0, 0, True)]
    assert len(slot_probe.producers(slot)) == 20


class TestExpiry:
    """By when the broker heard of a producer, whatever the timestamps of its records are."""

    def test_idle_producers_expire_and_their_memory_is_freed(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(100):
            slot_probe.append(slot, [first(number)])
        now = wait_for_the_clock()
        for number in range(95, 100):
            slot_probe.append(slot, [batch(producer_id=number, producer_epoch=0, base_sequence=1)])
        assert slot_upkeep.expire(slot, now) == 95
        assert set(slot_probe.producers(slot)) == set(range(95, 100))
        assert producer_memory.arena_units_used() == 2
        assert slot_probe.append(slot, [first(99)]) == [(0, 99, True)]
        assert slot_upkeep.expire(slot, LATER) == 5
        assert producer_memory.arena_units_used() == 0
        # A producer that was forgotten may go on with any sequence.
        assert slot_probe.append(slot, [batch(producer_id=99, producer_epoch=0, base_sequence=77)])[0][0] == 0

    @pytest.mark.parametrize("timestamp", [-1, 0, 1000, 1 << 60])
    def test_timestamps_of_records_do_not_affect_expiry(self, broker: OneBroker, timestamp: int) -> None:
        slot = broker.create()
        slot_probe.append(slot, [first(1, timestamp=timestamp)])
        assert slot_upkeep.expire(slot, monotonic_ms() - 60_000) == 0
        assert set(slot_probe.producers(slot)) == {1}
        assert slot_upkeep.expire(slot, wait_for_the_clock()) == 1
        assert slot_probe.producers(slot) == {}

    def test_a_retried_request_postpones_expiry(self, broker: OneBroker) -> None:
        slot = broker.create()
        slot_probe.append(slot, [first(1), first(2)])
        now = wait_for_the_clock()
        assert slot_probe.append(slot, [first(1)]) == [(0, 0, True)]
        assert slot_upkeep.expire(slot, now) == 1
        assert set(slot_probe.producers(slot)) == {1}

    def test_an_open_transaction_does_not_expire(self, broker: OneBroker) -> None:
        slot = broker.create()
        slot_probe.append(slot, [first(1, attributes=TRANSACTIONAL), first(2)])
        assert slot_upkeep.expire(slot, LATER) == 1
        assert set(slot_probe.producers(slot)) == {1}
        assert slot_facts.describe(slot).first_unstable_offset == 0

    def test_more_than_are_looked_at_in_one_hold_of_the_lock(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        with OneBroker(tmp_path / "more", arena_bytes=32 << 20) as broker:
            slot = broker.create()
            for start in range(0, 3000, 60):
                slot_probe.append(slot, [first(number) for number in range(start, start + 60)])
            now = wait_for_the_clock()
            slot_probe.append(slot, [first(5000)])
            assert slot_upkeep.expire(slot, now) == 3000
            assert set(slot_probe.producers(slot)) == {5000}
            assert producer_memory.arena_units_used() == 1


def test_an_ended_transaction_is_found_among_many_producers(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(100):
        slot_probe.append(slot, [first(number)])
    slot_probe.append(slot, [batch(producer_id=5, producer_epoch=0, base_sequence=1, attributes=TRANSACTIONAL)])
    slot_probe.append(slot, [batch(producer_id=70, producer_epoch=0, base_sequence=1, attributes=TRANSACTIONAL)])
    assert slot_facts.describe(slot).first_unstable_offset == 100
    ended = {"base_offset": 0, "producer_epoch": 0, "coordinator_epoch": 1, "timestamp": 1}
    slot_probe.append(slot, [build_end_marker(ABORT, producer_id=5, **ended)])
    assert slot_facts.describe(slot).first_unstable_offset == 101
    slot_probe.append(slot, [build_end_marker(ABORT, producer_id=70, **ended)])
    assert slot_facts.describe(slot).first_unstable_offset == -1


class TestBatchesWithoutSequence:
    """Coordinators write them with a producer id, as Kafka's do to __consumer_offsets."""

    def test_they_have_no_last_sequence_either(self, broker: OneBroker) -> None:
        slot = broker.create()
        without = batch(3, producer_id=8, producer_epoch=0, base_sequence=-1)
        assert slot_probe.append(slot, [without, without]) == [(0, 0, False), (0, 3, False)]
        assert slot_probe.append(slot, [without]) == [(0, 6, False)], "it was taken for a repetition"
        assert slot_probe.producers(slot)[8] == (0, [(-1, -1, 6, 8), (-1, -1, 3, 5), (-1, -1, 0, 2)])
        (active,) = slots.active_producers(slot)
        assert active["last_sequence"] == -1

    def test_sequences_begin_behind_them_at_0(self, broker: OneBroker) -> None:
        slot = broker.create()
        without = batch(3, producer_id=8, producer_epoch=0, base_sequence=-1)
        assert slot_probe.append(slot, [without, first(8), first(8)])[1:] == [(0, 3, False), (0, 3, True)]
        late = batch(producer_id=8, producer_epoch=0, base_sequence=7)
        assert slot_probe.append(slot, [late])[0][0] == 45
        assert slot_probe.append(slot, [without, late])[1][0] == 45

    def test_an_older_epoch_is_fenced(self, broker: OneBroker) -> None:
        slot = broker.create()
        slot_probe.append(slot, [batch(producer_id=8, producer_epoch=3, base_sequence=-1)])
        assert slot_probe.append(slot, [batch(producer_id=8, producer_epoch=2, base_sequence=-1)])[0][0] == 47

    def test_a_start_finds_the_same(self, broker: OneBroker, tmp_path: Path) -> None:
        slot = broker.create()
        slot_probe.append(slot, [batch(3, producer_id=8, producer_epoch=0, base_sequence=-1)])
        slot_upkeep.snapshot(slot)
        (broker.table.path(slot) / f"{3:020d}.snapshot.tmp").rename(broker.table.path(slot) / f"{3:020d}.snapshot")
        for clean in (True, False):
            (one,) = broker.reload(slot, tmp_path / "copy", clean=clean).producers
            assert [tuple(kept[:4]) for kept in one.batches] == [(-1, -1, 0, 2)]


def test_the_memory_of_a_deleted_partition_is_freed(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [first(number) for number in range(10)])
    assert producer_memory.arena_units_used() > 0
    broker.table.delete(slot)
    assert producer_memory.arena_units_used() == 0
    assert slot_upkeep.reclaim_arena() == 0
    assert broker.shm.producer_state["producers"] == 0
