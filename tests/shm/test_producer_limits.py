"""Limits of producers: the shares of a client, a partition and the broker, and which producers are evicted."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.owners as owners
from odradek._ext.partition import slot_upkeep, slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.testing import producer_memory, slot_probe
from odradek.storage.batch import TRANSACTIONAL
from tests.shm.one_broker import OneBroker, batch
from tests.shm.test_producers import first

NOT_ENOUGH_REPLICAS, RECORD_LIST_TOO_LARGE = 19, 18
NOBODY, ALICE, BOB, CAROL, DAVE, ERIN = range(6)


def opened(path: Path, **more: int) -> OneBroker:
    """1 MiB: 2,048 producers in all, 512 of a client; 256 of a partition, 64 of them of a client."""
    return OneBroker(path, arena_bytes=1 << 20, **more)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[OneBroker]:
    """A producer that was not heard of at once may be evicted for others."""
    with opened(tmp_path, silent_ms=-1000) as made:
        yield made


def following_of(number: int) -> bytes:
    return batch(producer_id=number, producer_epoch=0, base_sequence=1)


def bring(slot: int, owner: int, numbers: range) -> list[int]:
    """The errors of a batch each."""
    return [slot_probe.append(slot, [first(number)], owner=owner)[0][0] for number in numbers]


def mark(slot: int, owner: int, numbers: range) -> list[int]:
    """The errors of a mark each, which lets a producer open a transaction."""
    expected = slot_probe.incarnation_of(slot)
    return [slots.allow_transaction(slot, expected, -1, "id", number, 0, 2, owner) for number in numbers]


class TestMarks:
    def test_they_take_room_from_the_share_of_their_client(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, BOB, range(50))
        assert set(mark(slot, ALICE, range(1000, 1300))) == {0}
        assert set(slot_probe.producers(slot)) == {*range(50), *range(1236, 1300)}
        assert producer_memory.producers_of(ALICE) == 64
        assert set(bring(slot, CAROL, range(50, 60))) == {0}

    @pytest.mark.parametrize("owner", [NOBODY, ALICE])
    def test_in_a_full_partition_they_do_not_evict_producers_that_a_start_restored(
        self, broker: OneBroker, owner: int
    ) -> None:
        slot = broker.create()
        bring(slot, NOBODY, range(256))
        assert set(mark(slot, owner, range(1000, 1100))) == {NOT_ENOUGH_REPLICAS}
        assert set(slot_probe.producers(slot)) == {*range(256)}
        assert set(mark(slot, owner, range(256))) == {0}, "known producers need no room"
        assert producer_memory.producers_of(ALICE) == (256 if owner == ALICE else 0)

    @pytest.mark.parametrize("owner", [NOBODY, ALICE])
    def test_they_evict_producers_that_are_silent(self, hasty: OneBroker, owner: int) -> None:
        slot = hasty.create()
        bring(slot, BOB, range(60))
        bring(slot, NOBODY, range(100, 296))
        assert set(mark(slot, owner, range(1000, 1010))) == {0}
        assert set(slot_probe.producers(slot)) >= {*range(1000, 1010)}


class TestOfAClient:
    def test_above_its_share_of_a_partition_its_own_oldest_producers_are_evicted(self, broker: OneBroker) -> None:
        slot = broker.create()
        assert set(bring(slot, BOB, range(50))) == {0}
        assert set(bring(slot, ALICE, range(1000, 1300))) == {0}
        assert set(slot_probe.producers(slot)) == {*range(50), *range(1236, 1300)}
        assert broker.shm.producer_state["evicted_for_client"] == 300 - 64
        assert producer_memory.producers_of(ALICE) == 64

    def test_a_producer_that_wrote_again_stays(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, ALICE, range(64))
        before = slot_probe.producers_heard(slot)[0][1]
        while slot_probe.producers_heard(slot)[0][1] == before:
            slot_probe.append(slot, [first(0)], owner=ALICE)
        bring(slot, ALICE, range(1000, 1063))
        assert set(slot_probe.producers(slot)) == {0, *range(1000, 1063)}

    def beyond_its_share(self, broker: OneBroker) -> list[int]:
        """Alice has all 512 producers that a client may have, in eight partitions; one more partition."""
        made = [broker.create("t", number) for number in range(9)]
        for slot in made[:8]:
            assert set(bring(slot, ALICE, range(64))) == {0}
        assert producer_memory.producers_of(ALICE) == 512
        return made

    def test_beyond_its_share_of_all_it_has_three_in_each_other_partition(self, broker: OneBroker) -> None:
        *flooded, other = self.beyond_its_share(broker)
        assert bring(other, BOB, range(50, 53)) == [0] * 3
        assert bring(other, ALICE, range(10)) == [0] * 10
        assert set(slot_probe.producers(other)) == {50, 51, 52, 7, 8, 9}
        assert bring(flooded[0], ALICE, range(100, 103)) == [0] * 3
        assert len(slot_probe.producers(flooded[0])) == 61
        assert producer_memory.producers_of(ALICE) == 512

    def test_in_a_nearly_full_arena_it_is_refused_where_it_has_none(self, broker: OneBroker) -> None:
        *flooded, other = self.beyond_its_share(broker)
        full = 0
        while (state := broker.shm.producer_state)["used_bytes"] <= 0.75 * state["max_bytes"]:
            full += 1
            bring(broker.create("full", full), 100 + full, range(64))
        assert bring(other, ALICE, range(3)) == [NOT_ENOUGH_REPLICAS] * 3
        assert slot_facts.describe(other).log_end_offset == 0, "a refused batch is in the log"
        assert bring(flooded[0], ALICE, range(100, 103)) == [0] * 3
        assert producer_memory.producers_of(ALICE) == 512
        assert bring(other, BOB, range(3)) == [0] * 3
        assert broker.shm.producer_state["refused_client"] == 3

    def test_a_known_producer_continues_at_the_limit(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, ALICE, range(64))
        assert slot_probe.append(slot, [first(63)], owner=ALICE) == [(0, 63, True)]
        assert set(bring(slot, ALICE, range(63, 64))) == {0}

    def test_open_transactions_are_not_evicted(self, broker: OneBroker) -> None:
        slot = broker.create()
        errors = [
            slot_probe.append(slot, [first(number, attributes=TRANSACTIONAL)], owner=ALICE)[0][0]
            for number in range(100)
        ]
        assert errors == [0] * 64 + [NOT_ENOUGH_REPLICAS] * 36
        assert set(slot_probe.producers(slot)) == set(range(64))

    def test_producers_that_were_restored_are_its_own_once_it_goes_on_with_them(self, broker: OneBroker) -> None:
        slot = broker.create()
        bring(slot, 0, range(3))
        assert producer_memory.producers_of(ALICE) == 0
        for number in range(3):
            slot_probe.append(slot, [first(number)], owner=ALICE)  # a repetition says nothing of whose it is
        assert producer_memory.producers_of(ALICE) == 0
        following = [slot_probe.append(slot, [following_of(number)], owner=ALICE)[0] for number in range(3)]
        assert [error for error, *_ in following] == [0] * 3
        assert producer_memory.producers_of(ALICE) == 3
        assert {owner for owner, _ in slot_probe.producers_heard(slot).values()} == {ALICE}


class TestOfAPartition:
    def test_one_that_is_full_of_producers_in_use_refuses_others(self, broker: OneBroker) -> None:
        slot = broker.create()
        for owner in (ALICE, BOB, CAROL, DAVE):
            assert set(bring(slot, owner, range(1000 * owner, 1000 * owner + 64))) == {0}
        before = slot_probe.producers(slot)
        assert bring(slot, ERIN, range(3)) == [NOT_ENOUGH_REPLICAS] * 3
        assert slot_probe.producers(slot) == before
        assert broker.shm.producer_state["refused_partition"] == 3
        assert bring(slot, BOB, range(5)) == [0] * 5

    def test_idle_producers_are_evicted_for_other_clients(self, hasty: OneBroker) -> None:
        slot = hasty.create()
        for owner in (ALICE, BOB, CAROL, DAVE):
            bring(slot, owner, range(1000 * owner, 1000 * owner + 64))
        assert bring(slot, ERIN, range(64)) == [0] * 64
        assert set(range(64)) < set(slot_probe.producers(slot))
        assert hasty.shm.producer_state["evicted_silent"] == 64
        assert slot_facts.describe(slot).producer_count == 256

    def test_a_joined_write_of_new_producers_evicts_as_many(self, hasty: OneBroker) -> None:
        slot = hasty.create()
        for owner in (ALICE, BOB, CAROL, DAVE):
            bring(slot, owner, range(1000 * owner, 1000 * owner + 64))
        fresh = [first(number) for number in range(64)]
        assert [answer[0] for answer in slot_probe.append(slot, fresh, owner=ERIN)] == [0] * 64
        assert [answer[2] for answer in slot_probe.append(slot, fresh, owner=ERIN)] == [True] * 64

    def full_of_silent(self, broker: OneBroker, busy: tuple[int, ...] = (), **settings: int) -> int:
        """A partition that is full of producers that may be evicted, except those of `busy`, which have open transactions."""
        slot = broker.create(**settings)
        for owner in (ALICE, BOB, CAROL, DAVE):
            fields = {"attributes": TRANSACTIONAL} if owner in busy else {}
            for number in range(1000 * owner, 1000 * owner + 64):
                assert slot_probe.append(slot, [first(number, **fields)], owner=owner)[0][0] == 0
        return slot

    def test_after_a_refused_batch_no_later_batch_of_its_producer_is_appended(self, hasty: OneBroker) -> None:
        """The partition does not know the producer, so it would take the second batch for the first one, and the retry of the
        first for one that is out of order. The search for a silent producer goes on behind the 128 that it looked at."""
        slot = self.full_of_silent(hasty, busy=(ALICE, BOB))
        refused, end = hasty.shm.producer_state["refused_partition"], slot_facts.describe(slot).log_end_offset
        pipelined = [first(1), following_of(1)]
        answers = slot_probe.append(slot, [*pipelined, first(2)], owner=ERIN)
        assert [error for error, *_ in answers] == [NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS, 0]
        assert hasty.shm.producer_state["refused_partition"] == refused + 2
        assert set(slot_probe.producers(slot)) & {1, 2} == {2}
        assert slot_probe.append(slot, pipelined, owner=ERIN) == [(0, end + 1, False), (0, end + 2, False)]

    def test_a_batch_that_is_larger_than_a_segment_evicts_nobody(self, hasty: OneBroker) -> None:
        slot = self.full_of_silent(hasty, segment_bytes=1000)
        before = slot_probe.producers(slot)
        assert slot_probe.append(slot, [first(1, value=b"v" * 2000)], owner=ERIN) == [
            (RECORD_LIST_TOO_LARGE, -1, False)
        ]
        assert slot_probe.producers(slot) == before
        assert hasty.shm.producer_state["evicted_silent"] == 0

    def test_a_batch_that_a_full_disk_refuses_evicts_nobody(self, hasty: OneBroker) -> None:
        slot = self.full_of_silent(hasty)
        before = slot_probe.producers(slot)
        hasty.shm.set_disk(0, DiskState.DISK_FULL, 0, 0)
        assert bring(slot, ERIN, range(3)) == [NOT_ENOUGH_REPLICAS] * 3
        assert slot_probe.producers(slot) == before
        assert hasty.shm.producer_state["evicted_silent"] == 0
        hasty.shm.set_disk(0, DiskState.DISK_ROOMY, 0, 0)
        assert bring(slot, ERIN, range(3)) == [0] * 3


class TestOfTheArena:
    def fill(self, broker: OneBroker) -> list[int]:
        """Partitions until no new one gets memory for a producer."""
        made: list[int] = []
        owner = 10
        while True:
            made.append(broker.create("full", len(made)))
            owner += 1
            errors = bring(made[-1], owner, range(64)) + bring(made[-1], owner + 1000, range(100, 164))
            if errors[0]:
                assert set(errors) == {NOT_ENOUGH_REPLICAS}
                return made[:-1]

    @pytest.fixture
    def full(self, broker: OneBroker) -> list[int]:
        return self.fill(broker)

    def test_a_full_arena_refuses_producers_of_new_partitions_and_reports_it(
        self, broker: OneBroker, full: list[int]
    ) -> None:
        state = broker.shm.producer_state
        assert state["used_bytes"] == state["max_bytes"] == 1 << 20
        assert state["refused_arena"] >= 128
        kept = {slot: slot_probe.producers(slot) for slot in full}
        fresh = broker.create("new")
        assert bring(fresh, ALICE, range(3)) == [NOT_ENOUGH_REPLICAS] * 3
        assert {slot: slot_probe.producers(slot) for slot in full} == kept

    def test_known_producers_continue_and_a_client_replaces_its_own(self, broker: OneBroker, full: list[int]) -> None:
        assert slot_probe.append(full[0], [following_of(5)], owner=11)[0][0] == 0
        assert bring(full[0], 11, range(500, 600)) == [0] * 100

    def test_what_expires_makes_room(self, broker: OneBroker, full: list[int]) -> None:
        fresh = broker.create("new")
        assert slot_upkeep.expire(full[0], 1 << 62) == 128
        assert bring(fresh, ALICE, range(3)) == [0] * 3

    def test_freed_runs_are_merged(self, broker: OneBroker, full: list[int]) -> None:
        random.Random(1).shuffle(full)
        for slot in full:
            slot_upkeep.expire(slot, 1 << 62)
        assert broker.shm.producer_state["used_bytes"] == 0
        assert len(self.fill(broker)) == len(full)


def test_a_run_is_consistent_after_many_additions_and_evictions(hasty: OneBroker) -> None:
    """Whoever the partition knows answers a repetition with its offset; a model of what it may know."""
    source = random.Random(os.environ.get("SEED", "7"))
    slot = hasty.create()
    where: dict[int, int] = {}
    for step in range(6000):
        number = source.randrange(400)
        known = number in slot_probe.producers(slot) if step % 50 == 0 else None
        ((error, offset, repeated),) = slot_probe.append(slot, [first(number)], owner=source.randrange(1, 9))
        assert error == 0
        if repeated:
            assert offset == where[number]
        if known is not None:
            assert repeated == known
        where[number] = offset
        if step % 1000 == 999:
            slot_upkeep.expire(slot, 1 << 62 if step % 2000 == 999 else 0)
    kept = slot_probe.producers(slot)
    assert len(kept) == slot_facts.describe(slot).producer_count <= 256
    assert all(slot_probe.append(slot, [first(number)]) == [(0, where[number], True)] for number in kept)
    counted = [owner for owner, _ in slot_probe.producers_heard(slot).values()]
    assert [producer_memory.producers_of(owner) for owner in range(1, 9)] == [
        counted.count(owner) for owner in range(1, 9)
    ]


def test_an_owner_is_an_address_and_not_a_connection(broker: OneBroker) -> None:
    owner = owners.number_of("192.0.2.7:1000")
    assert owner == owners.number_of("192.0.2.7:2000") == owners.number_of("[::ffff:192.0.2.7]:1")
    assert owner != owners.number_of("192.0.2.8:1000")
    assert owners.number_of("[2001:db8:1:2::1]:1") == owners.number_of("[2001:db8:1:2:ffff::2]:1")
    assert owners.number_of("[2001:db8:1:2::1]:1") != owners.number_of("[2001:db8:1:3::1]:1")
    assert owners.number_of("a name") > 0


def test_owners_have_other_numbers_at_each_boot(tmp_path: Path) -> None:
    seen = set()
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        with opened(tmp_path / str(number)):
            seen.add(owners.number_of("192.0.2.7:1000"))
    assert len(seen) > 1
