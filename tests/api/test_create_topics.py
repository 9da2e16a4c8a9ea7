"""CreateTopics, DeleteTopics and CreatePartitions in all their versions."""

import uuid

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import create_partitions, create_topics, delete_topics
from tests.api.coordinator_harness import Harness, versions
from tests.controller.mortal_cluster import single_broker

CREATE, DELETE, GROW = create_topics.API_KEY, delete_topics.API_KEY, create_partitions.API_KEY
Wanted = create_topics.Request.CreatableTopic


@pytest.fixture
def make_harness(tmp_path):
    with single_broker(tmp_path) as make_cluster:
        yield lambda settings=(): Harness(make_cluster(settings))


@pytest.fixture
def harness(make_harness):
    return make_harness()


def wanted(name, partitions=-1, factor=-1, assignments=(), **configs):
    request = create_topics.Request
    return Wanted(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments
        ],
        configs=[
            request.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", versions(CREATE))
def test_topics_are_created_each_with_its_own_outcome(harness, version):
    request = create_topics.Request(
        topics=[wanted("good", 3, 1, retention_ms="5"), wanted("bad", 1, 2), wanted("manual", assignments=[(0, [1])])],
        timeout_ms=1000,
    )
    good, bad, manual = harness.ask(request, CREATE, version).topics
    assert (good.name, good.error_code) == ("good", ErrorCode.NONE)
    assert (bad.name, bad.error_code) == ("bad", ErrorCode.INVALID_REPLICATION_FACTOR)
    if version >= 1:
        assert good.error_message is None
        assert "2 larger than available brokers: 1" in bad.error_message
    assert manual.error_code == ErrorCode.NONE
    assert harness.cluster.served() == {"good": [0, 1, 2], "manual": [0]}
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (3, 1)
        assert (bad.num_partitions, bad.replication_factor) == (-1, -1)
        told = {entry.name: (entry.value, entry.config_source) for entry in good.configs}
        assert told["retention.ms"] == ("5", 1)
        assert told["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert good.topic_id == harness.cluster.controller.image.topics["good"].topic_id.bytes
        assert bad.topic_id == ZERO_UUID


def test_validation_only_returns_the_result_without_an_id(harness):
    request = create_topics.Request(topics=[wanted("t", 4, 1)], validate_only=True)
    (topic,) = harness.ask(request, CREATE).topics
    assert (topic.error_code, topic.num_partitions, topic.topic_id) == (ErrorCode.NONE, 4, ZERO_UUID)
    assert harness.cluster.served() == {}


def test_a_null_setting_is_refused(harness):
    (topic,) = harness.ask(create_topics.Request(topics=[wanted("t", 1, 1, retention_ms=None)]), CREATE).topics
    assert topic.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("version", versions(DELETE))
def test_topics_are_deleted_by_name(harness, version):
    harness.ask(create_topics.Request(topics=[wanted("a"), wanted("b")]), CREATE)
    ids = {name: topic.topic_id.bytes for name, topic in harness.cluster.controller.image.topics.items()}
    if version >= 6:
        state = delete_topics.Request.DeleteTopicState
        request = delete_topics.Request(topics=[state(name="a"), state(name="none")], timeout_ms=1000)
    else:
        request = delete_topics.Request(topic_names=["a", "none"], timeout_ms=1000)
    gone, unknown = harness.ask(request, DELETE, version).responses
    assert (gone.name, gone.error_code) == ("a", ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= 6:
        assert (gone.topic_id, unknown.topic_id) == (ids["a"], ZERO_UUID)
    assert harness.cluster.served() == {"b": [0]}


def test_topics_are_deleted_by_id(harness):
    harness.ask(create_topics.Request(topics=[wanted("a")]), CREATE)
    topic_id, stranger = harness.cluster.controller.image.topics["a"].topic_id.bytes, uuid.uuid4().bytes
    state = delete_topics.Request.DeleteTopicState
    request = delete_topics.Request(
        topics=[
            state(name=None),
            state(name=None, topic_id=topic_id),
            state(name="a", topic_id=topic_id),
            state(name=None, topic_id=stranger),
        ]
    )
    found = [(one.name, one.topic_id, one.error_code) for one in harness.ask(request, DELETE).responses]
    assert found == [
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("a", topic_id, ErrorCode.NONE),
        ("a", topic_id, ErrorCode.INVALID_REQUEST),
        (None, stranger, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", versions(DELETE))
def test_disabled_deletion_is_reported_with_an_error_that_the_version_knows(make_harness, version):
    harness = make_harness([("delete.topic.enable", "false", "")])
    harness.ask(create_topics.Request(topics=[wanted("a")]), CREATE)
    state = delete_topics.Request.DeleteTopicState
    request = delete_topics.Request(topics=[state(name="a")] if version >= 6 else [], topic_names=["a"])
    (one,) = harness.ask(request, DELETE, version).responses
    assert one.error_code == (ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("version", versions(GROW))
def test_partitions_are_added(harness, version):
    harness.ask(create_topics.Request(topics=[wanted("a", 1), wanted("b", 2)]), CREATE)
    entry, assignment = (
        create_partitions.Request.CreatePartitionsTopic,
        create_partitions.Request.CreatePartitionsAssignment,
    )
    request = create_partitions.Request(
        topics=[
            entry(name="a", count=3, assignments=None),
            entry(name="b", count=2, assignments=None),
            entry(name="none", count=2, assignments=[assignment(broker_ids=[1])]),
        ],
        timeout_ms=1000,
    )
    results = harness.ask(request, GROW, version).results
    assert [(one.name, one.error_code) for one in results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.INVALID_PARTITIONS),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert harness.cluster.served() == {"a": [0, 1, 2], "b": [0, 1]}
