"""Requests for the controller at a broker that is not the controller: an error in each element, in every version."""

import pytest

from odradek.api.answer_errors import errors_of
from odradek.api.api import Place
from odradek.api.refusing import refusal
from odradek.api.table import BY_KEY, handlers_of, limits_of, served_rows
from odradek.config.broker_config import resolve
from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import (
    alter_partition,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    update_features,
)
from odradek.stepwise import Stepwise

OF_CONTROLLER = [row for row in BY_KEY.values() if row.place is Place.CONTROLLER]
EACH_VERSION = [
    pytest.param(row.key, version, id=f"{row.name}-{version}")
    for row in OF_CONTROLLER
    for version in range(row.min_version, row.max_version + 1)
]


def answer(key, version, request):
    """The refusal as the client reads it."""
    data = encode(Stepwise(refusal(key, request, version, ErrorCode.NOT_CONTROLLER)).finish(), version)
    response, end = decode(by_key(key).response, version, data)
    assert end == len(data)
    return response


@pytest.mark.parametrize(("key", "version"), EACH_VERSION)
def test_every_version_can_be_refused(key, version):
    response = answer(key, version, by_key(key).request())
    if key in (alter_partition.API_KEY, alter_partition_reassignments.API_KEY, update_features.API_KEY):
        assert response.error_code == ErrorCode.NOT_CONTROLLER


def test_a_controlled_shutdown_is_refused_like_by_a_controller_that_moved():
    assert answer(7, 3, by_key(7).request()).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_each_topic_has_the_error():
    request = create_topics.Request(topics=[create_topics.Request.CreatableTopic(name=name) for name in "ab"])
    assert [(topic.name, topic.error_code) for topic in answer(19, 7, request).topics] == [
        ("a", ErrorCode.NOT_CONTROLLER),
        ("b", ErrorCode.NOT_CONTROLLER),
    ]
    grown = create_partitions.Request(topics=[create_partitions.Request.CreatePartitionsTopic(name="a")])
    assert [(topic.name, topic.error_code) for topic in answer(37, 3, grown).results] == [
        ("a", ErrorCode.NOT_CONTROLLER)
    ]


def test_topics_to_delete_are_named_as_in_the_request():
    old = answer(20, 5, delete_topics.Request(topic_names=["a"])).responses
    assert [(topic.name, topic.error_code) for topic in old] == [("a", ErrorCode.NOT_CONTROLLER)]
    wanted = delete_topics.Request.DeleteTopicState
    request = delete_topics.Request(topics=[wanted(name="a"), wanted(name=None, topic_id=b"i" * 16)])
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer(20, 6, request).responses] == [
        ("a", bytes(16), ErrorCode.NOT_CONTROLLER),
        (None, b"i" * 16, ErrorCode.NOT_CONTROLLER),
    ]


def test_each_partition_to_elect_a_leader_for_has_the_error():
    wanted = elect_leaders.Request.TopicPartitions
    response = answer(43, 2, elect_leaders.Request(topic_partitions=[wanted(topic="a", partitions=[0, 3])]))
    (topic,) = response.replica_election_results
    assert [(part.partition_id, part.error_code) for part in topic.partition_result] == [
        (0, ErrorCode.NOT_CONTROLLER),
        (3, ErrorCode.NOT_CONTROLLER),
    ]
    assert answer(43, 2, elect_leaders.Request(topic_partitions=None)).error_code == ErrorCode.NOT_CONTROLLER


BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}


def test_requests_between_brokers_are_served_in_a_cluster_only():
    alone, clustered = served_rows(clustered=False), served_rows(clustered=True)
    assert set(clustered) - set(alone) == BETWEEN_BROKERS
    assert alone.items() <= clustered.items()
    assert {key for key, row in clustered.items() if row.place is Place.REPLICAS} == {4, 5, 6}


def test_handlers_of_requests_between_brokers_are_named_in_a_cluster_only():
    places = (Place.CONTROLLER, Place.REPLICAS)
    assert not any(key in handlers_of(*places) for key in BETWEEN_BROKERS)
    assert all(key in handlers_of(*places, clustered=True) for key in BETWEEN_BROKERS)


def test_control_requests_may_name_as_many_partitions_as_a_broker_may_have():
    """With twelve replicas each: topics, partitions, replicas and in-sync replicas are elements."""
    limits = limits_of(resolve([("odradek.max.partitions", "65536", "")]))
    for key in (4, 6):
        assert limits[key] >= 65536 * (2 + 2 * 12)
    assert limits[5] >= 65536 * 2
    assert limits[56] >= 65536 * (2 + 12)


def test_an_error_counts_also_if_the_version_has_no_field_for_it():
    """DescribeLogDirs has one since version 3, which the encoder leaves out before."""
    for version in (0, 2, 3):
        response = Stepwise(refusal(35, by_key(35).request(), version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)).finish()
        assert errors_of(35, response) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert encode(response, version)
