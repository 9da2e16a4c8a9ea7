"""The coordinator's groups over partitions of a mapping: the consequences of appends that fail."""

import asyncio
from types import SimpleNamespace

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek.api.groups.group_call import OffsetTree
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.offsets import CommittedOffset
from odradek.processes.coordinator.coordinator import Coordinator
from odradek.processes.coordinator.groups import service as group_service
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.internal_topics import coordinator_log
from odradek.protocol.errors import ErrorCode
from tests.shm.one_broker import OneBroker
from tests.waiting import until_async as until


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        yield made


async def nothing(*_):
    return {}


def new_office(broker, stored=frozenset()):
    """:param stored: topics of the metadata store that have no slot; None: the store is not known."""

    def names():
        if stored is None:
            return None
        return stored.union(topic.name for topic in broker.table.topics().values())

    tree = OffsetTree(nothing, nothing, nothing, nothing)
    turn = coordinator_log.AppendTurn(asyncio.get_running_loop())
    return GroupService(BrokerConfig({}), [broker.path], tree, names, turn, Flusher())


def test_appends_after_a_failed_append_fail_too_and_the_groups_are_loaded_again_once(broker, monkeypatch):
    slot = broker.create(CONSUMER_OFFSETS)
    append_built, begun = slots.append_built, []

    class Log(coordinator_log.CoordinatorLog):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            begun.append(self)

    def failing(*arguments):
        monkeypatch.setattr(slots, "append_built", append_built)
        raise slots.SlotChanged("i/o error", AppendResult.APPEND_IO_ERROR)

    monkeypatch.setattr(group_service, "CoordinatorLog", Log)
    monkeypatch.setattr(coordinator_log, "MAX_RECORDS", 12)  # two first heartbeats, not three

    async def run():
        office = new_office(broker)
        office.start()
        told = {}

        def beat(name, group, epoch=0):
            request = HeartbeatRequest(name, epoch, topics=("orders",), rebalance_timeout_ms=30_000, owned=frozenset())
            office.groups.members.beat(group, request, lambda answer: told.update({name: answer.error}))

        try:
            await until(lambda: not office.groups.shards.loading)
            monkeypatch.setattr(slots, "append_built", failing)
            beat("a", "g")
            beat("b", "h")
            beat("c", "g")
            await until(lambda: len(told) == 3)
            assert told == {
                "a": ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "b": ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "c": ErrorCode.NOT_COORDINATOR,
            }
            await until(lambda: len(begun) > 1 and not office.groups.shards.loading)
            await asyncio.sleep(0)  # whatever else is to be called soon, is called
            await until(lambda: not office.groups.shards.loading)
            assert len(begun) == 2
            assert list(office.groups.shards.groups()) == []
            assert slot_facts.describe(slot).log_end_offset == 0
            beat("d", "g")
            await until(lambda: "d" in told)
            assert told["d"] is ErrorCode.NONE
        finally:
            office.close()

    asyncio.run(run())


async def commit(office, offset):
    """As clients do: again while what was committed to a namesake is being removed."""
    told = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    while told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]:
        told.clear()
        office.groups.commit(Commit("g", "", -1, None, {("orders", 0): CommittedOffset(offset)}), told.append)
        await until(lambda: told)
        await asyncio.sleep(0.001)
    assert told == [ErrorCode.NONE]


def committed(office):
    error, offsets = office.groups.fetch("g")
    assert error is ErrorCode.NONE
    found = offsets.get("orders", 0)
    return None if found is None else found.offset


@pytest.mark.parametrize("made_again", [False, True])
def test_offsets_of_a_topic_deleted_before_a_reload_are_removed(broker, monkeypatch, made_again):
    broker.create(CONSUMER_OFFSETS)
    orders = broker.create("orders")
    append_built = slots.append_built

    def failing(*arguments):
        monkeypatch.setattr(slots, "append_built", append_built)
        raise slots.SlotChanged("i/o error", AppendResult.APPEND_IO_ERROR)

    async def run():
        office = new_office(broker)
        office.start()
        try:
            await until(lambda: not office.groups.shards.loading)
            await commit(office, 5)
            monkeypatch.setattr(slots, "append_built", failing)
            told = []

            def refused(answer):  # the load is about to begin
                broker.table.delete(orders)
                broker.table.announce([orders])
                if made_again:
                    broker.create("orders")
                told.append(answer.error)

            request = HeartbeatRequest("a", 0, topics=("orders",), rebalance_timeout_ms=1, owned=frozenset())
            office.groups.members.beat("h", request, refused)
            await until(lambda: told)
            assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            await until(lambda: not office.groups.shards.loading)
            assert committed(office) is None
            if made_again:
                await commit(office, 6)
                assert committed(office) == 6
        finally:
            office.close()

    asyncio.run(run())


async def committed_and_gone(broker):
    """An offset of 5 is committed for a topic whose slot goes after the coordinator has."""
    broker.create(CONSUMER_OFFSETS)
    orders = broker.create("orders")
    before = new_office(broker)
    before.start()
    await until(lambda: not before.groups.shards.loading)
    await commit(before, 5)
    before.close()
    broker.table.delete(orders)
    broker.table.announce([orders])


def test_a_coordinator_that_started_after_a_deletion_removes_the_topics_offsets(broker):
    async def run():
        await committed_and_gone(broker)
        after = new_office(broker)
        after.start()
        broker.create("orders")
        try:
            await until(lambda: not after.groups.shards.loading)
            assert committed(after) is None
            await commit(after, 6)
            assert committed(after) == 6
        finally:
            after.close()

    asyncio.run(run())


@pytest.mark.parametrize("stored", [frozenset({"orders"}), None])
def test_a_topic_that_has_no_slot_keeps_its_offsets(broker, stored):
    async def run():
        await committed_and_gone(broker)
        after = new_office(broker, stored)
        after.start()
        try:
            await until(lambda: not after.groups.shards.loading)
            assert committed(after) == 5
        finally:
            after.close()

    asyncio.run(run())


def test_groups_are_not_loaded_before_the_topics_are_known(broker):
    """Else that load would keep the offsets of topics that are no more."""
    broker.create(CONSUMER_OFFSETS)

    async def run():
        context = SimpleNamespace(config=BrokerConfig({}), shm=broker.shm, log_dirs=[broker.path], acls=None, tls=None)
        woken = Coordinator(context)
        try:
            woken._on_wake()
            assert woken._groups.groups is None
            woken._groups.start()
            await until(lambda: not woken._groups.groups.shards.loading)
        finally:
            woken._groups.close()

    asyncio.run(run())
