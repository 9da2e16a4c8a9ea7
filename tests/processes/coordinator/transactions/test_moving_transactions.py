"""The transactional ids of a broker in a cluster: they follow the role of the partitions of `__transaction_state`, and
nothing is answered or done that a successor does not know.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.partition import slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.groups.group_call import OffsetTree
from odradek.config.broker_config import load
from odradek.controller.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.coordination.environment import EndMarker
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn
from odradek.processes.coordinator.transactions.service import TransactionService
from odradek.protocol.errors import ErrorCode
from odradek.storage.batch import TRANSACTIONAL
from odradek.transactions.environment import Mark
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until_async as until

LEADER, FOLLOWER = 1, 2
NONE = ErrorCode.NONE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
ORDERS = ("orders", 0)
FIRST = 1000


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        brokers.begin_cluster(30_000)
        brokers.publish_brokers([brokers.BrokerInfo(broker_id, -1, None, ()) for broker_id in (LEADER, FOLLOWER)])
        yield made


@pytest.fixture
def state(broker):
    """The partition of `__transaction_state`, with a follower in sync."""
    slot = made(broker, TRANSACTION_STATE, 1)
    broker.lead(slot, 1, alone=False)
    return slot


@pytest.fixture
def orders(broker):
    """A partition of records that this broker leads, alone in sync."""
    return made(broker, ORDERS[0], 2)


def made(broker, topic, number):
    slot = broker.create(topic, topic_id=bytes(15) + bytes([number]), announce=False)
    broker.lead(slot, 0)
    views.publish_view(slot, leader_id=LEADER, leader_epoch=0, partition_epoch=0, replicas=[1, 2], in_sync=[1, 2])
    broker.table.announce([slot])
    return slot


class Ids:
    """Producer ids in hand."""

    def __init__(self):
        self.following = FIRST

    def next(self):
        self.following += 1
        return self.following - 1

    def close(self):
        pass


class Coordinating:
    """The coordinator of a broker, and what it answered, by the name of the request."""

    def __init__(self, service, state):
        self.service = service
        self.state = state
        self.answers = {}

    def follow(self):
        self.service._groups.follow()
        self.service.follow()

    def copied(self):
        """The follower has everything."""
        assert replica_probe.note_fetch(self.state, FOLLOWER, self.end) == 0
        self.service.look([self.state])

    @property
    def has_read(self):
        """Whether everything is loaded, or read and not served yet."""
        partition_log = self.service._state.log_of(0)
        return not self.service.coordinator.loading or bool(partition_log and partition_log._unacknowledged)

    @property
    def end(self):
        return slot_facts.describe(self.state).log_end_offset

    async def written(self, end):
        await until(lambda: self.end >= end, f"{end} records are written")

    def init(self, name="init"):
        self.service.coordinator.init_producer_id("t", 60_000, -1, -1, False, False, self._then(name))

    def add(self, name="add"):
        self.service.coordinator.add_partitions("t", FIRST, 0, (ORDERS,), 0, self._then(name))

    def end_transaction(self, commits=True, name="end"):
        self.service.coordinator.end("t", FIRST, 0, commits, 0, self._then(name))

    def _then(self, name):
        return lambda code, *_: self.answers.update({name: code})

    async def begin_transaction(self):
        self.init()
        await self.written(1)
        self.copied()
        self.add()
        await self.written(2)
        self.copied()
        assert self.answers == {"init": NONE, "add": NONE}


@asynccontextmanager
async def coordinating(broker, state, **more):
    async def nothing(*_):
        return {}

    values = {"metadata.store": "zookeeper", "zookeeper.connect": "127.0.0.1:1", "broker.id": LEADER} | more
    config = load(None, [f"{name}={value}" for name, value in values.items()])
    turn, flusher = AppendTurn(asyncio.get_running_loop()), Flusher()
    tree = OffsetTree(nothing, nothing, nothing, nothing)
    groups = GroupService(config, [broker.path], tree, lambda: None, turn, flusher)
    service = TransactionService(config, [broker.path], groups, Ids(), turn, flusher)
    groups.transactions = service
    groups.start()
    service.start()
    try:
        yield Coordinating(service, state)
    finally:
        service.close()
        groups.close()


async def loaded(process):
    await until(lambda: not process.service.coordinator.loading, "the partition is loaded")


def open_transactions(slot):
    return [one["producer_id"] for one in slots.transactions_of(slot)]


def slot_append(slot):
    """The first batch of the transaction, which its mark allows."""
    record = batch(producer_id=FIRST, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    assert slot_probe.append(slot, [record], trusted=False, transactional_id="t")[0][0] == 0


def test_a_decision_that_the_followers_do_not_have_yet_is_not_executed(broker, state, orders):
    """If this leader fails, too, a follower without the decision may lead, and the transaction may end otherwise: with markers
    of both kinds."""

    async def run():
        async with coordinating(broker, state) as first:
            await loaded(first)
            await first.begin_transaction()
            slot_append(orders)
            first.end_transaction()
            await first.written(3)
            assert "end" not in first.answers and open_transactions(orders) == [FIRST]
        broker.obey(state, 2)
        broker.lead(state, 3, alone=False)
        broker.table.announce([state])
        async with coordinating(broker, state) as second:
            await until(lambda: second.has_read, "the log is read")
            assert second.service.coordinator.error_of("t") is LOADING
            assert open_transactions(orders) == [FIRST]
            second.copied()
            await loaded(second)
            await until(lambda: not open_transactions(orders), "the transaction is committed")

    asyncio.run(run())


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_transaction_ends_in_a_new_epoch_of_the_same_leader(broker, state, orders, looks_first):
    """Nothing is failed or loaded again. The markers have the new epoch: another broker may have led in between without this
    broker's knowledge, and may have repeated decided markers."""

    async def run():
        async with coordinating(broker, state) as process:
            await loaded(process)
            await process.begin_transaction()
            slot_append(orders)
            process.end_transaction()
            await process.written(3)
            broker.lead(state, 4, alone=False)
            broker.table.announce([state])
            if looks_first:
                process.follow()
                assert process.service.coordinator.error_of("t") is NONE
            process.service.look([state])
            assert "end" not in process.answers and open_transactions(orders) == [FIRST]
            process.copied()
            await process.written(4)
            process.copied()
            assert process.answers["end"] is NONE and open_transactions(orders) == []
            if looks_first:
                assert slots.active_producers(orders)[0]["coordinator_epoch"] == 4

    asyncio.run(run())


@pytest.mark.parametrize("deposed", [False, True])
def test_a_repeated_commit_is_acknowledged_only_by_a_coordinator_that_is_not_deposed(broker, state, orders, deposed):
    """The commit in memory may be that of the transaction before: the successor has the present one."""

    async def run():
        async with coordinating(broker, state) as process:
            await loaded(process)
            await process.begin_transaction()
            process.end_transaction()
            await process.written(3)
            process.copied()
            await process.written(4)
            process.copied()
            assert process.answers["end"] is NONE
            process.end_transaction(name="again")
            await process.written(5)
            assert "again" not in process.answers
            if deposed:
                broker.obey(state, 2)
                broker.table.announce([state])
                process.follow()
            else:
                process.copied()
            await until(lambda: "again" in process.answers, "the answer")
            assert process.answers["again"] is (ErrorCode.NOT_COORDINATOR if deposed else NONE)

    asyncio.run(run())


@pytest.mark.parametrize("topic", ["orders", CONSUMER_OFFSETS])
def test_a_deposed_coordinator_allows_no_transaction_that_its_successor_has_ended(broker, state, topic):
    slot = made(broker, topic, 3)

    async def run():
        async with coordinating(broker, state) as process:
            await loaded(process)
            marks = process.service._marks
            assert marks.allow([(topic, 0)], Mark("t", FIRST, 0, 1, 0)) == [NONE]
            slot_append(slot)
            ends = [EndMarker(FIRST, 0, 2, True, 0)]
            assert slots.append_markers(slot, slot_probe.incarnation_of(slot), -1, ends) == [(0, 1)]
            assert marks.allow([(topic, 0)], Mark("t", FIRST, 0, 1, 0)) == [ErrorCode.NOT_COORDINATOR]
            assert marks.allow([(topic, 0)], Mark("t", FIRST, 0, 2, 0)) == [NONE]

    asyncio.run(run())


@pytest.mark.parametrize("lower", [False, True])
def test_the_largest_transaction_can_be_aborted(broker, state, lower):
    """The record of its decision is larger than the one with its partitions. And `message.max.bytes` may have been lowered."""

    async def run():
        async with coordinating(broker, state, **{"message.max.bytes": 600}) as process:
            await loaded(process)
            coordinator, settings = process.service.coordinator, process.service._settings
            settings.transaction_version = 2
            await process.begin_transaction()

            async def copied_until(done):
                while not done():
                    await asyncio.sleep(0)
                    process.copied()

            for number in range(200):
                process.answers.clear()
                place = ("deleted", number)
                coordinator.add_partitions("t", FIRST, 0, (place,), 0, process._then("add"))
                await copied_until(lambda: process.answers)
                if process.answers["add"]:
                    break
            assert process.answers == {"add": ErrorCode.UNKNOWN_SERVER_ERROR}
            assert 90 < number < 150
            if lower:
                settings.max_batch_bytes = 300
            process.answers.clear()
            coordinator.init_producer_id("t", 60_000, -1, -1, False, False, process._then("init"))
            await copied_until(lambda: process.answers)
            assert process.answers == {"init": ErrorCode.CONCURRENT_TRANSACTIONS}
            await copied_until(lambda: coordinator.describe("t")[1].state == "CompleteAbort")

    asyncio.run(run())
