"""CreateTopics, CreatePartitions and DeleteTopics of a cluster are answered when this broker shows the change."""

import asyncio
import time
import uuid

import pytest

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek.api.topics.topic_changes import TopicChange, awaited_change
from odradek.processes.coordinator.topic_waits import TopicWaits
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_partitions, create_topics, delete_topics
from tests.shm.one_broker import OneBroker

TOPIC_ID, OTHER_ID = uuid.uuid4().bytes, uuid.uuid4().bytes
LEADER, NOBODY, BEING_DELETED = 2, -1, -2


@pytest.fixture
def broker(tmp_path):
    made = OneBroker(tmp_path)
    brokers.begin_cluster(30_000)
    yield made
    made.close()


class Coordinator:
    """The waits of a coordinator that the test wakes."""

    def __init__(self, broker):
        self.table = broker.table
        self.waits = TopicWaits(self.topics)

    def topics(self):
        self.table.directory.refresh()
        return self.table.directory

    def publish(self, partition, leader, topic_id=TOPIC_ID):
        """What the replicas thread does for an UpdateMetadata; then the coordinator is woken."""
        slot = self.table.find("t", partition)
        if slot < 0:
            slot = self.table.create_remote("t", topic_id, partition)
        views.publish_view(slot, leader_id=leader, leader_epoch=1, partition_epoch=1, replicas=[2], in_sync=[2])
        self.table.announce([slot])
        self.waits.look()

    def drop(self, partition):
        slot = self.table.find("t", partition)
        self.table.drop_remote(slot)
        self.table.announce([slot])
        self.waits.look()


def created(partitions=2, code=0, validate_only=False, timeout_ms=5000):
    row = create_topics.Response.CreatableTopicResult(
        name="t", topic_id=TOPIC_ID, error_code=code, num_partitions=partitions
    )
    request = create_topics.Request(timeout_ms=timeout_ms, validate_only=validate_only)
    return awaited_change(create_topics.API_KEY, request, create_topics.Response(topics=[row])), row


def enlarged(count=2, code=0, validate_only=False, timeout_ms=5000):
    row = create_partitions.Response.CreatePartitionsTopicResult(name="t", error_code=code)
    topic = create_partitions.Request.CreatePartitionsTopic(name="t", count=count)
    request = create_partitions.Request(topics=[topic], timeout_ms=timeout_ms, validate_only=validate_only)
    return awaited_change(create_partitions.API_KEY, request, create_partitions.Response(results=[row])), row


def deleted(code=0, timeout_ms=5000):
    row = delete_topics.Response.DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=code)
    request = delete_topics.Request(timeout_ms=timeout_ms)
    return awaited_change(delete_topics.API_KEY, request, delete_topics.Response(responses=[row])), row


async def begun(coordinator, change, seconds=60.0):
    """A wait that has begun, and has looked once."""
    task = asyncio.get_running_loop().create_task(coordinator.waits.wait(change, time.monotonic() + seconds))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("change", [created, enlarged])
def test_created_partitions_have_leaders_when_the_response_is_sent(broker, change):
    async def run():
        coordinator = Coordinator(broker)
        waiting, row = change()
        task = await begun(coordinator, waiting)
        for partition, leader in ((0, LEADER), (1, NOBODY)):
            coordinator.publish(partition, leader)
            await asyncio.sleep(0)
            assert not task.done()
        coordinator.publish(1, LEADER)
        await task
        assert row.error_code == ErrorCode.NONE

    asyncio.run(run())


def test_a_former_topic_of_the_name_is_not_the_created_one(broker):
    async def run():
        coordinator = Coordinator(broker)
        coordinator.publish(0, LEADER, topic_id=OTHER_ID)
        task = await begun(coordinator, created(partitions=1)[0])
        coordinator.drop(0)
        await asyncio.sleep(0)
        assert not task.done()
        coordinator.publish(0, LEADER)
        await task

    asyncio.run(run())


def test_a_deleted_topic_is_invisible_when_the_response_is_sent(broker):
    async def run():
        coordinator = Coordinator(broker)
        for partition in (0, 1):
            coordinator.publish(partition, LEADER)
        waiting, row = deleted()
        task = await begun(coordinator, waiting)
        coordinator.publish(0, BEING_DELETED)
        await asyncio.sleep(0)
        assert not task.done()
        coordinator.drop(1)
        await task
        assert row.error_code == ErrorCode.NONE

    asyncio.run(run())


@pytest.mark.parametrize("change", [created, enlarged, deleted])
def test_what_is_not_shown_in_time_gets_an_error_that_says_so(broker, change):
    async def run():
        coordinator = Coordinator(broker)
        coordinator.publish(0, NOBODY)
        waiting, row = change(timeout_ms=1)
        await coordinator.waits.wait(waiting, time.monotonic() + 60)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "'t'" in row.error_message

    asyncio.run(run())


def test_a_wait_ends_before_the_worker_gives_up(broker):
    async def run():
        coordinator = Coordinator(broker)
        waiting, row = created(timeout_ms=60_000)
        await coordinator.waits.wait(waiting, time.monotonic())
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer",
    [
        created(code=ErrorCode.TOPIC_ALREADY_EXISTS),
        created(validate_only=True),
        created(timeout_ms=0),
        enlarged(code=ErrorCode.INVALID_PARTITIONS),
        enlarged(validate_only=True),
        enlarged(timeout_ms=-1),
        deleted(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        deleted(timeout_ms=0),
    ],
)
def test_what_changed_nothing_or_wants_no_wait_is_answered_at_once(answer):
    assert not isinstance(answer[0], TopicChange)
