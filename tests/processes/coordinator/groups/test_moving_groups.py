"""The groups of a broker in a cluster: they follow the role of the partitions of `__consumer_offsets`."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.api.offset_commits import partition_for
from odradek._ext.partition import in_sync, roles
from odradek._ext.partition.flusher import Flusher
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.groups.group_call import OffsetTree
from odradek.config.broker_config import load
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.groups.classic_member import JoinRequest
from odradek.groups.commits import Commit
from odradek.groups.offsets import CommittedOffset
from odradek.processes.coordinator.groups.service import GroupService, driven
from odradek.processes.coordinator.internal_topics.coordinator_log import AppendTurn
from odradek.protocol.errors import ErrorCode
from tests.shm.one_broker import OneBroker
from tests.waiting import until_async as until

LEADER, FOLLOWER = 1, 2
PARTITIONS = 2


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        brokers.begin_cluster(30_000)
        brokers.publish_brokers([brokers.BrokerInfo(broker_id, -1, None, ()) for broker_id in (LEADER, FOLLOWER)])
        yield made


def publish(slots, leader_id=LEADER, epoch=0):
    for slot in slots:
        views.publish_view(
            slot, leader_id=leader_id, leader_epoch=epoch, partition_epoch=0, replicas=[1, 2], in_sync=[1, 2]
        )


@pytest.fixture
def slots(broker):
    """The partitions of the topic: led by this broker since epoch 0, alone in sync, and published."""
    topic_id = bytes(15) + b"\1"
    made = [broker.create(CONSUMER_OFFSETS, number, topic_id=topic_id, announce=False) for number in range(PARTITIONS)]
    for slot in made:
        broker.lead(slot, 0)
    publish(made)
    broker.table.announce(made)
    return made


def group_of(partition):
    """A group of a partition."""
    return next(name for name in (f"g{n}" for n in range(100)) if partition_for(name, PARTITIONS) == partition)


@asynccontextmanager
async def service(broker, **settings):
    async def nothing(*_):
        return {}

    values = {
        "metadata.store": "zookeeper",
        "zookeeper.connect": "127.0.0.1:1",
        "offsets.commit.timeout.ms": 60_000,
    } | settings
    config = load(None, [f"{name}={value}" for name, value in values.items()])
    tree = OffsetTree(nothing, nothing, nothing, nothing)
    turn = AppendTurn(asyncio.get_running_loop())
    made = GroupService(config, [broker.path], tree, lambda: None, turn, Flusher())
    made.start()
    try:
        yield made
    finally:
        made.close()


async def loaded(groups):
    await until(lambda: groups.groups is not None and not groups.groups.shards.loading)


def commit(groups, group, offset):
    """Begin a commit; the list that gets its error."""
    codes = []
    groups.groups.commit(Commit(group, "", -1, None, {("orders", 0): CommittedOffset(offset)}), codes.append)
    return codes


def committed(groups, group):
    error, offsets = groups.groups.fetch(group)
    if error:
        return error
    found = offsets.get("orders", 0)
    return None if found is None else found.offset


def lead(broker, slot, epoch, *, alone=True):
    broker.lead(slot, epoch, alone=alone)
    broker.table.announce([slot])


def obey(broker, slot, epoch):
    broker.obey(slot, epoch)
    broker.table.announce([slot])


async def written(slot, end):
    await until(lambda: slot_facts.describe(slot).log_end_offset >= end)


def test_groups_begin_and_end_with_the_role(broker, slots):
    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            for partition in range(PARTITIONS):
                codes = commit(groups, group_of(partition), 5 + partition)
                await until(lambda codes=codes: codes)
                assert codes == [ErrorCode.NONE]
            obey(broker, slots[0], 1)
            groups.follow()
            assert committed(groups, group_of(0)) is ErrorCode.NOT_COORDINATOR
            assert commit(groups, group_of(0), 9) == [ErrorCode.NOT_COORDINATOR]
            assert committed(groups, group_of(1)) == 6
            lead(broker, slots[0], 2)
            groups.follow()
            assert committed(groups, group_of(0)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await loaded(groups)
            assert committed(groups, group_of(0)) == 5
            roles.leave_role(slots[1], slot_probe.incarnation_of(slots[1]), 0)  # StopReplica
            broker.table.announce([slots[1]])
            groups.follow()
            assert committed(groups, group_of(1)) is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


@pytest.mark.parametrize("looks_first", [False, True])
def test_groups_are_served_on_in_a_new_epoch_of_the_same_leader(broker, slots, looks_first):
    """Nobody else wrote to the log. A waiting commit is not failed, and the next ones are appended, whether the coordinator has
    looked at the slot since or not."""
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            first = commit(groups, group_of(0), 5)
            await written(slots[0], 1)
            lead(broker, slots[0], 4, alone=False)
            if looks_first:
                groups.follow()
            second = commit(groups, group_of(0), 6)
            await written(slots[0], 2)
            groups.look(slots)
            assert (first, second, committed(groups, group_of(0))) == ([], [], None)
            assert replica_probe.note_fetch(slots[0], FOLLOWER, 2) == 0
            groups.look(slots)
            assert (first, second, committed(groups, group_of(0))) == ([ErrorCode.NONE], [ErrorCode.NONE], 6)
            groups.follow()
            assert committed(groups, group_of(0)) == 6, "not loaded again"

    asyncio.run(run())


def test_groups_wait_until_every_partition_is_published(broker, slots):
    """Until then their number is not known, and with it not the partition of a group."""
    third = broker.table.create_remote(CONSUMER_OFFSETS, bytes(15) + b"\1", PARTITIONS)
    broker.table.announce([third])

    async def run():
        async with service(broker) as groups:
            assert groups.groups is None
            publish([third], leader_id=FOLLOWER)
            broker.table.announce([third])
            groups.follow()
            await loaded(groups)
            assert len(groups.groups.shards.by_partition) == PARTITIONS

    asyncio.run(run())


def test_a_commit_waits_for_the_followers(broker, slots):
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            codes = commit(groups, group_of(0), 5)
            await written(slots[0], 1)
            groups.look(slots)
            assert (codes, committed(groups, group_of(0))) == ([], None)
            assert replica_probe.note_fetch(slots[0], FOLLOWER, 1) == 0
            groups.look(slots)
            assert (codes, committed(groups, group_of(0))) == ([ErrorCode.NONE], 5)

    asyncio.run(run())


@pytest.mark.parametrize("acks", [0, 1])
def test_a_commit_need_not_wait_if_the_configuration_says_so(broker, slots, acks):
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker, **{"offsets.commit.required.acks": acks}) as groups:
            await loaded(groups)
            codes = commit(groups, group_of(0), 5)
            await until(lambda: codes)
            assert (codes, committed(groups, group_of(0))) == ([ErrorCode.NONE], 5)

    asyncio.run(run())


def set_min_in_sync(broker, slot, count):
    broker.table.configure(slot, {"min_in_sync_replicas": count})


def test_a_commit_is_refused_with_too_few_replicas_in_sync(broker, slots):
    set_min_in_sync(broker, slots[0], 2)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            for _ in range(3):
                codes = commit(groups, group_of(0), 5)
                await until(lambda codes=codes: codes)
                assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
            assert slot_facts.describe(slots[0]).log_end_offset == 0
            assert committed(groups, group_of(0)) is None, "reading goes on"
            lead(broker, slots[0], 0, alone=False)
            codes = commit(groups, group_of(0), 6)
            await written(slots[0], 1)
            assert replica_probe.note_fetch(slots[0], FOLLOWER, 1) == 0
            groups.look(slots)
            assert codes == [ErrorCode.NONE]

    asyncio.run(run())


def test_a_commit_fails_if_too_few_replicas_are_in_sync_after_the_append(broker, slots):
    set_min_in_sync(broker, slots[0], 2)
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            codes = commit(groups, group_of(0), 5)
            await written(slots[0], 1)
            assert replica_probe.note_fetch(slots[0], FOLLOWER, 1) == 0
            incarnation = slot_probe.incarnation_of(slots[0])
            serial = in_sync.propose_in_sync(slots[0], incarnation, 1, [LEADER])
            assert in_sync.commit_in_sync(slots[0], incarnation, 1, serial, [LEADER], 5)
            groups.look(slots)
            assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    asyncio.run(run())


@pytest.mark.parametrize("again", [False, True])
def test_the_commit_of_a_deposed_coordinator_fails(broker, slots, again):
    """Even if this broker leads again, and its log has reached the same offset, before the coordinator has looked."""
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            codes = commit(groups, group_of(0), 5)
            await written(slots[0], 1)
            obey(broker, slots[0], 2)
            if again:
                lead(broker, slots[0], 3, alone=True)
                assert slot_facts.describe(slots[0]).high_watermark == 1
            groups.look(slots)
            assert codes == [ErrorCode.NOT_COORDINATOR]
            groups.follow()
            if again:
                await loaded(groups)
                assert committed(groups, group_of(0)) == 5, "the log has it all the same"
            else:
                assert committed(groups, group_of(0)) is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_a_member_that_waits_in_a_deposed_coordinator_is_sent_away(broker, slots):
    async def run():
        async with service(broker, **{"group.initial.rebalance.delay.ms": 600_000}) as groups:
            await loaded(groups)
            answers = []
            request = JoinRequest("", 10_000, 60_000, "consumer", (("range", b""),), id_required=False)
            groups.groups.members.join(group_of(0), request, answers.append)
            assert answers == []
            obey(broker, slots[0], 1)
            groups.follow()
            assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]

    asyncio.run(run())


def test_a_new_coordinator_serves_before_its_high_watermark_moves(broker, slots):
    """As in Kafka: with too few replicas in sync it would never move, and consumers could not read their offsets."""

    async def run():
        async with service(broker) as first:
            await loaded(first)
            codes = commit(first, group_of(0), 5)
            await until(lambda: codes)
        obey(broker, slots[0], 1)
        set_min_in_sync(broker, slots[0], 2)
        async with service(broker) as groups:
            await loaded(groups)
            lead(broker, slots[0], 2)
            groups.follow()
            await loaded(groups)
            assert committed(groups, group_of(0)) == 5

    asyncio.run(run())


@pytest.mark.parametrize("deposed", [False, True])
def test_stable_offsets_are_served_only_by_a_coordinator_that_is_not_deposed(broker, slots, deposed):
    """A transactional client would process again what was committed at the successor."""
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            confirming = asyncio.ensure_future(driven(groups._view.confirm(group_of(0))))
            await written(slots[0], 1)
            assert not confirming.done()
            if deposed:
                obey(broker, slots[0], 2)
                groups.follow()
            else:
                assert replica_probe.note_fetch(slots[0], FOLLOWER, 1) == 0
                groups.look(slots)
            assert await confirming is (ErrorCode.NOT_COORDINATOR if deposed else ErrorCode.NONE)
            assert committed(groups, group_of(0)) is (ErrorCode.NOT_COORDINATOR if deposed else None)

    asyncio.run(run())


@pytest.mark.parametrize("interrupted", [False, True])
def test_stable_offsets_are_served_by_a_coordinator_that_leads_on_in_another_epoch(broker, slots, interrupted):
    """After NOT_COORDINATOR, librdkafka does not send the request again, and its consumer receives nothing."""
    lead(broker, slots[0], 1, alone=False)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            confirming = asyncio.ensure_future(driven(groups._view.confirm(group_of(0))))
            await written(slots[0], 1)
            if interrupted:
                obey(broker, slots[0], 2)
            lead(broker, slots[0], 3, alone=False)
            groups.follow()
            if interrupted:
                await written(slots[0], 2)
            assert not confirming.done()
            assert replica_probe.note_fetch(slots[0], FOLLOWER, 2 if interrupted else 1) == 0
            groups.look(slots)
            assert await confirming is ErrorCode.NONE
            assert committed(groups, group_of(0)) is None

    asyncio.run(run())


def test_stable_offsets_are_served_while_too_few_replicas_are_in_sync(broker, slots):
    set_min_in_sync(broker, slots[0], 2)

    async def run():
        async with service(broker) as groups:
            await loaded(groups)
            assert await driven(groups._view.confirm(group_of(0))) is ErrorCode.NONE
            assert slot_facts.describe(slots[0]).log_end_offset == 0
            obey(broker, slots[0], 1)
            groups.follow()
            assert await driven(groups._view.confirm(group_of(0))) is ErrorCode.NONE, "the request itself is refused"

    asyncio.run(run())
