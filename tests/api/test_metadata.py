"""Metadata on the wire: all topics, none, by name and by id, unknown and illegal names, automatic creation."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import metadata
from tests.wire import NOBODY

pytestmark = pytest.mark.xdist_group("api-other")

Topic = metadata.Request.MetadataRequestTopic


def ask(wire, topics, version, create=False):
    return wire.ask(metadata.Request(topics=topics, allow_auto_topic_creation=create), metadata.API_KEY, version)


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic_and_the_broker(wire, wire_broker, name, version):
    topic_id = wire.create(name, 3)
    response = ask(wire, [Topic(name=name)], version, create=version < 4)
    (broker,) = response.brokers
    assert (broker.host, broker.port) == (wire_broker.host, wire_broker.port)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, name)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [one.partition_index for one in topic.partitions] == [0, 1, 2]
    assert {one.leader_id for one in topic.partitions} == {broker.node_id}
    assert all(one.replica_nodes == one.isr_nodes == [broker.node_id] for one in topic.partitions)
    assert response.controller_id == (broker.node_id if version >= 1 else -1)


@pytest.mark.parametrize("version", range(14))
def test_all_topics_or_none(wire, name, version):
    wire.create(name)
    everything = ask(wire, [] if version == 0 else None, version, create=version < 4)
    assert name in [topic.name for topic in everything.topics]
    if version >= 1:
        assert ask(wire, [], version, create=version < 4).topics == []


@pytest.mark.parametrize("version", [4, 9, 13])
def test_unknown_and_illegal_names_get_errors_and_nothing_is_created(wire, name, version):
    for _ in range(2):
        told = ask(wire, [Topic(name=name), Topic(name="no/such"), Topic(name="")], version).topics
        assert [(one.name, one.error_code) for one in told] == [(name, 3), ("no/such", 17), ("", 17)]


@pytest.mark.parametrize("version", [0, 3, 4, 12, 13])
def test_a_missing_topic_is_created_if_allowed(wire, name, version):
    (told,) = ask(wire, [Topic(name=name)], version, create=True).topics
    assert (told.name, told.error_code, len(told.partitions)) == (name, 0, 1)
    (illegal,) = ask(wire, [Topic(name="a b")], version, create=True).topics
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_requested_by_id(wire, name, version):
    topic_id = wire.create(name)
    known, unknown = ask(wire, [Topic(name=None, topic_id=topic_id), Topic(name=None, topic_id=NOBODY)], version).topics
    assert (known.error_code, known.name, known.topic_id) == (0, name, topic_id)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODY)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_with_an_unusable_field_for_ids_return_an_error(wire, name, version):
    topic_id = wire.create(name)
    told = ask(wire, [Topic(name=None, topic_id=topic_id), Topic(name=name)], version).topics
    assert [(one.name, one.error_code) for one in told] == [("", ErrorCode.INVALID_REQUEST), (name, 42)]
    assert wire.metadata(name).topics[0].error_code == 0
