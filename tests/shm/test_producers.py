"""Producer state in the arena: it grows, evicts the oldest, expires, and is given back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker._ext import slot_upkeep, slots
from broker.storage.batch import TRANSACTIONAL
from tests.shm.one_broker import OneBroker, batch

UNIT_BYTES = 1024
ENTRIES_PER_UNIT = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path) as made:
        yield made


def first(producer: int, *, timestamp: int = 1000, **fields: int) -> bytes:
    return batch(producer_id=producer, producer_epoch=0, base_sequence=0, timestamp=timestamp, **fields)


def test_one_write_may_bring_more_new_producers_than_the_run_holds(broker: OneBroker) -> None:
    slot = broker.create()
    batches = [first(number) for number in range(64)]
    assert [answer[0] for answer in slots.append(slot, batches)] == [0] * 64
    assert slots.append(slot, batches) == [(0, number, True) for number in range(64)]


def test_a_run_grows_and_gives_the_former_back(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(500):
        slots.append(slot, [first(number)])
    assert len(slots.producers(slot)) == 500
    assert slot_upkeep.arena_units_used() == 1024 // ENTRIES_PER_UNIT
    assert slot_upkeep.reclaim_arena() == 0


def test_growth_keeps_producers_without_timestamp(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(20):
        slots.append(slot, [first(number, timestamp=-1)])
    assert slots.append(slot, [first(0, timestamp=-1)]) == [(0, 0, True)]
    assert len(slots.producers(slot)) == 20


def test_expiry_forgets_the_silent_and_shrinks(broker: OneBroker) -> None:
    slot = broker.create()
    for number in range(100):
        slots.append(slot, [first(number, timestamp=1000 + number)])
    assert slot_upkeep.expire(slot, 1095) == 95
    assert set(slots.producers(slot)) == set(range(95, 100))
    assert slot_upkeep.arena_units_used() == 16 // ENTRIES_PER_UNIT
    assert slots.append(slot, [first(99)]) == [(0, 99, True)]
    assert slot_upkeep.expire(slot, 5000) == 5
    assert slot_upkeep.arena_units_used() == 0
    # A producer that was forgotten may go on with any sequence.
    assert slots.append(slot, [batch(producer_id=99, producer_epoch=0, base_sequence=77)])[0][0] == 0


def test_an_open_transaction_does_not_expire(broker: OneBroker) -> None:
    slot = broker.create()
    slots.append(slot, [first(1, attributes=TRANSACTIONAL), first(2)])
    assert slot_upkeep.expire(slot, 10**15) == 1
    assert set(slots.producers(slot)) == {1}
    assert slots.describe(slot)["first_unstable_offset"] == 0


class TestFullArena:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[OneBroker]:
        with OneBroker(tmp_path, arena_bytes=64 * UNIT_BYTES) as made:  # 256 entries: a run of 128 cannot grow
            yield made

    def test_the_oldest_producer_makes_room(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(300):
            assert slots.append(slot, [first(number, timestamp=1000 + number)])[0][0] == 0
        kept = slots.producers(slot)
        assert max(kept) == 299
        assert set(kept) == set(range(300 - len(kept), 300))
        assert len(kept) >= 96
        assert slots.append(slot, [first(299)]) == [(0, 299, True)]

    def test_a_joined_write_of_new_producers_evicts_as_many(self, broker: OneBroker) -> None:
        slot = broker.create()
        for number in range(300):
            slots.append(slot, [first(number, timestamp=1000 + number)])
        fresh = [first(number, timestamp=5000) for number in range(1000, 1064)]
        assert [answer[0] for answer in slots.append(slot, fresh)] == [0] * 64
        assert [answer[2] for answer in slots.append(slot, fresh)] == [True] * 64

    def test_open_transactions_are_not_evicted(self, broker: OneBroker) -> None:
        slot = broker.create()
        errors = [slots.append(slot, [first(number, attributes=TRANSACTIONAL)])[0][0] for number in range(300)]
        taken = errors.index(56)
        assert taken >= 96
        assert set(errors[taken:]) == {56}  # KAFKA_STORAGE_ERROR: to be tried again
        assert set(slots.producers(slot)) == set(range(taken))
        end = slots.describe(slot)["log_end_offset"]
        assert end == taken, "a refused batch is in the log"

    def test_a_deleted_partition_gives_its_run_back(self, broker: OneBroker) -> None:
        slot = broker.create()
        slots.append(slot, [first(number) for number in range(10)])
        used = slot_upkeep.arena_units_used()
        broker.table.delete(slot)
        assert slot_upkeep.reclaim_arena() == used > 0
        assert slot_upkeep.arena_units_used() == 0
