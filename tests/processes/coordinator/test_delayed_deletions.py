"""DeleteRecords in a cluster: the response waits for the log start offsets of the live followers."""

import asyncio
import time
from types import SimpleNamespace

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.records import delete_records
from odradek.api.records.delete_records import Deleted
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.processes.coordinator.delayed_deletions import DelayedDeletions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_records as schema
from odradek.shm.partition_table import PartitionTable
from odradek.stepwise import Stepwise
from tests.shm.one_broker import OneBroker, batch

LEADER, FOLLOWER = 1, 2


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        brokers.begin_cluster(30_000)
        publish(LEADER, FOLLOWER)
        yield made


def publish(*alive):
    brokers.publish_brokers([brokers.BrokerInfo(broker_id, -1, None, ()) for broker_id in alive])


@pytest.fixture
def slot(broker):
    """A partition with 4 committed records, all of which its follower has."""
    slot = broker.create("t", alone=False)
    broker.lead(slot, 3, alone=False)
    for _ in range(4):
        assert slot_probe.append(slot, [batch()])[0][0] == 0
    follow(slot, 0)
    return slot


def follow(slot, log_start):
    assert replica_probe.note_fetch(slot, FOLLOWER, 4, log_start_offset=log_start) == 0


def delete(broker, *places, timeout_ms=60_000):
    """What the handler returns for (topic, partition, offset)."""
    make = schema.Request
    table = PartitionTable(broker.shm, [broker.path], writes=False)
    call = SimpleNamespace(view=SimpleNamespace(config=SimpleNamespace(clustered=True), table=table))
    request = make(
        topics=[
            make.DeleteRecordsTopic(
                name=name, partitions=[make.DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
            for name, partition, offset in places
        ],
        timeout_ms=timeout_ms,
    )
    return Stepwise(delete_records.handle(request, call)).finish()


def results(answer):
    response = answer.response if isinstance(answer, Deleted) else answer
    return [(part.error_code, part.low_watermark) for topic in response.topics for part in topic.partitions]


async def waiting(deletions, deleted, seconds=60.0):
    """Begin a wait."""
    task = asyncio.get_running_loop().create_task(deletions.wait(deleted, time.monotonic() + seconds))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(("offset", "low"), [(3, 3), (-1, 4)])
def test_the_response_waits_for_the_follower(broker, slot, offset, low):
    async def run():
        deletions, deleted = DelayedDeletions(), delete(broker, ("t", 0, offset))
        assert results(deleted) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        task = await waiting(deletions, deleted)
        broker.shm.take_ready()
        follow(slot, 1)
        assert list(broker.shm.take_ready()) == [slot], "the coordinator is woken"
        deletions.look(frozenset({slot}))
        await asyncio.sleep(0)
        assert not task.done()
        follow(slot, low)
        assert list(broker.shm.take_ready()) == [slot]
        deletions.look(frozenset({slot}))
        await task
        assert results(deleted) == [(0, low)]

    asyncio.run(run())


def test_followers_that_are_not_alive_do_not_count(broker, slot):
    publish(LEADER)
    assert results(delete(broker, ("t", 0, 2))) == [(0, 2)]


def test_the_death_of_the_follower_ends_the_wait(broker, slot):
    async def run():
        deletions, deleted = DelayedDeletions(), delete(broker, ("t", 0, 2))
        task = await waiting(deletions, deleted)
        publish(LEADER)
        deletions.look_at_all()
        await task
        assert results(deleted) == [(0, 2)]

    asyncio.run(run())


def test_a_follower_that_has_not_fetched_in_this_epoch_is_awaited(broker, slot):
    broker.lead(slot, 4, alone=False)
    deleted = delete(broker, ("t", 0, 0))
    assert isinstance(deleted, Deleted)
    assert results(deleted) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]


def test_a_new_epoch_of_the_same_leader_goes_on_waiting(broker, slot):
    async def run():
        deletions, deleted = DelayedDeletions(), delete(broker, ("t", 0, 2))
        task = await waiting(deletions, deleted)
        follow(slot, 1)
        broker.lead(slot, 4, alone=False)
        for log_start in (None, 1, 2):
            if log_start is not None:
                follow(slot, log_start)
            assert not task.done()
            deletions.look(frozenset({slot}))
            await asyncio.sleep(0)
        await task
        assert results(deleted) == [(0, 2)]

    asyncio.run(run())


@pytest.mark.parametrize("again", [False, True])
def test_the_end_of_the_leadership_ends_the_wait(broker, slot, again):
    async def run():
        deletions, deleted = DelayedDeletions(), delete(broker, ("t", 0, 2))
        task = await waiting(deletions, deleted)
        broker.obey(slot, 5)
        if again:
            broker.lead(slot, 6, alone=False)
        assert slot in broker.shm.take_ready()
        deletions.look(frozenset({slot}))
        await task
        assert results(deleted) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    asyncio.run(run())


@pytest.mark.parametrize(("timeout_ms", "patience_s"), [(0, 60.0), (60_000, 1.0)])
def test_the_wait_ends_with_the_timeout_or_before_the_worker_gives_up(broker, slot, timeout_ms, patience_s):
    async def run():
        deletions, deleted = DelayedDeletions(), delete(broker, ("t", 0, 2), timeout_ms=timeout_ms)
        await deletions.wait(deleted, time.monotonic() + patience_s)
        assert results(deleted) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        follow(slot, 2)
        deletions.look(frozenset({slot}))
        assert results(delete(broker, ("t", 0, 2))) == [(0, 2)], "the leader's records were deleted"

    asyncio.run(run())


def test_partitions_are_answered_one_by_one(broker, slot):
    follower = broker.create("followed", alone=False)
    broker.obey(follower, 1)
    remote = broker.table.create_remote("remote", bytes(15) + b"\1", 0)
    broker.table.announce([follower, remote])
    broker.create(CONSUMER_OFFSETS)

    async def run():
        deletions = DelayedDeletions()
        places = [
            ("t", 0, 2),
            ("followed", 0, 0),
            ("remote", 0, 0),
            ("unknown", 0, 0),
            (CONSUMER_OFFSETS, 0, 0),
            ("t2", 0, 9),
        ]
        late = broker.create("t2", alone=True)  # after this process has seen the other partitions
        broker.lead(late, 0)
        deleted = delete(broker, *places)
        refused = [
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
            (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ]
        assert results(deleted) == [(ErrorCode.REQUEST_TIMED_OUT, 0), *refused]
        task = await waiting(deletions, deleted)
        follow(slot, 2)
        deletions.look(frozenset({slot, late}))
        await task
        assert results(deleted) == [(0, 2), *refused]

    asyncio.run(run())


def test_a_table_that_does_not_write_finds_what_its_writer_created_later(broker):
    table = PartitionTable(broker.shm, [broker.path], writes=False)
    assert table.find("t", 0) == -1
    slot = broker.create("t")
    assert table.find("t", 0) == slot
    broker.table.delete(slot)
    broker.table.announce([slot])
    assert table.find("t", 0) == -1
