"""Transactions that exceed their timeout, and transactional ids that expire."""

import pytest

from odradek.protocol.errors import ErrorCode
from tests.transactions.by_hand import ID, NONE, Process

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(("version", "epoch"), [(0, 1), (1, 1), (2, 1)])
def test_transactions_that_exceed_their_timeout_are_aborted(ongoing, version, epoch):
    ongoing.settings.transaction_version = version
    ongoing.timers.advance(60_000)
    assert ongoing.coordinator.abort_timed_out() == 0
    ongoing.timers.advance(1)
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.coordinator.abort_timed_out() == 0
    assert ongoing.state() == "CompleteAbort"
    assert {(m.producer_epoch, m.commits, m.transaction_version) for m in ongoing.sent[0]} == {
        (epoch, False, 2 if version == 2 else 0)
    }
    assert ongoing.end(ID, 0).code == FENCED
    assert ongoing.end(ID, 0, version=0).code == FENCED
    assert ongoing.coordinator.counts.timed_out == 1


def test_a_pending_transaction_does_not_time_out(ongoing):
    ongoing.log.held = True
    ongoing.end(ID, 0)
    ongoing.timers.advance(60_001)
    assert ongoing.coordinator.abort_timed_out() == 0


def test_a_timeout_whose_append_fails_is_repeated(ongoing):
    ongoing.timers.advance(60_001)
    ongoing.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.state() == "Ongoing"
    ongoing.log.failing = None
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.written()[-1].epoch == 1, "the epoch does not grow twice"


def test_without_a_new_id_a_timeout_waits(ongoing):
    ongoing.settings.transaction_version = 2
    ongoing.coordinator.shards.by_partition[0].active["t"].facts = ongoing.written()[-1]._replace(epoch=32766)
    ongoing.ids.clear()
    ongoing.timers.advance(60_001)
    assert ongoing.coordinator.abort_timed_out() == 0
    ongoing.ids.append(5)
    assert ongoing.coordinator.abort_timed_out() == 1
    assert ongoing.written()[-1].producer_id == 5


def test_two_phase_commit_has_no_timeout():
    process = Process(two_phase_commit=True)
    process.init(enable_2pc=True)
    process.add(ID, 0)
    process.timers.advance(10**9)
    assert process.coordinator.abort_timed_out() == 0
    assert process.coordinator.describe("t")[1].timeout_ms == 2**31 - 1


def test_a_new_producer_ends_the_transaction_of_its_predecessor(ongoing):
    assert ongoing.init().code == CONCURRENT
    assert ongoing.state() == "CompleteAbort"
    assert ongoing.init().answer == (NONE, ID, 2)
    assert ongoing.end(ID, 0).code == FENCED
    assert ongoing.coordinator.counts.fenced == 1


def test_idle_ids_are_packed_and_used_again(process):
    process.init()
    process.init(producer_id=ID, epoch=0)
    shard = process.coordinator.shards.by_partition[0]
    process.coordinator.abort_timed_out()
    assert set(shard.active) == {"t"}, "used since the last time"
    process.coordinator.abort_timed_out()
    assert not shard.active
    assert process.state() == "Empty"
    assert not shard.active, "a description unpacks nothing"
    assert process.init(producer_id=ID, epoch=0).answer == (NONE, ID, 1), "a retry: the last epoch is packed too"
    assert not shard.idle


WEEK = 604_800_000


def test_unused_ids_expire(process):
    for name in ("a", "b", "c"):
        process.init(name)
    process.add(ID + 2, 0, name="c")
    process.coordinator.abort_timed_out()
    process.coordinator.abort_timed_out()
    process.timers.advance(WEEK - 1)
    assert process.coordinator.expire() == 0
    process.init("b")
    process.timers.advance(1)
    assert process.coordinator.expire() == 1
    assert process.state("a") == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert process.written("a")[-1] is None
    assert process.state("b") == "Empty"
    assert process.state("c") == "Ongoing"
    assert process.coordinator.counts.expired == 1


@pytest.mark.parametrize("packed", [True, False])
def test_an_expiring_id_waits_for_its_tombstone(process, packed):
    process.init()
    for _ in range(2 if packed else 0):
        process.coordinator.abort_timed_out()
    process.timers.advance(WEEK)
    process.log.held = True
    assert process.coordinator.expire() == 1
    assert process.coordinator.expire() == 0
    assert process.add(ID, 0).code == process.init().code == CONCURRENT
    patient = process.add(ID, 0, patience_ms=100)
    process.log.held = False
    process.log.acknowledge()
    assert patient.code == MAPPING
    assert process.init().answer == (NONE, ID + 1, 0)


@pytest.mark.parametrize("packed", [True, False])
def test_an_id_whose_tombstone_is_not_written_stays(process, packed):
    process.init()
    for _ in range(2 if packed else 0):
        process.coordinator.abort_timed_out()
    process.timers.advance(WEEK)
    process.log.held = True
    process.coordinator.expire()
    patient = process.add(ID, 0, patience_ms=100)
    [(_, then)] = process.log.waiting
    process.log.waiting.clear()
    process.log.held = False
    assert process.coordinator.not_expired == {}
    then(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert patient.code == NONE
    reason = "cannot write the tombstones of expired transactional ids: NOT_ENOUGH_REPLICAS"
    assert process.coordinator.not_expired == {"__transaction_state-0": reason}
    process.timers.advance(WEEK)
    process.coordinator.expire()
    assert process.coordinator.not_expired == {}


def test_a_tombstone_of_unknown_outcome_loads_the_partition_again(process):
    process.init()
    process.timers.advance(WEEK)
    process.log.failing = AWAY
    process.coordinator.expire()
    assert process.diverged == [0]


def test_tombstones_are_written_in_batches_and_ids_in_use_meanwhile_stay():
    process = Process(tombstones_at_once=2)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        process.init(name)
    process.timers.advance(WEEK)
    process.log.held = True
    assert process.coordinator.expire() == 5
    assert [len(records) for records, _ in process.log.waiting] == [2]
    use = process.init("c")
    process.log.held = False
    process.log.acknowledge()
    assert use.code == NONE
    assert [name for name in names if process.state(name) == "Empty"] == ["c"]


def test_tombstones_have_a_largest_size():
    process = Process(tombstone_bytes=1)
    for name in ("a", "b"):
        process.init(name)
    process.timers.advance(WEEK)
    process.log.held = True
    process.coordinator.expire()
    assert [len(records) for records, _ in process.log.waiting] == [1]
