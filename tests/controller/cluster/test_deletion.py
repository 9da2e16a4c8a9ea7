"""Deletion of topics: confirmed by every replica, waiting for dead brokers and reassignments, resumed by a successor."""

import pytest

from odradek.controller.cluster.context import ReplicaStatus
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from tests.controller.cluster.harness import Cluster, metadata_of, stops_of


def with_topic(partitions=None, prompt=True, **settings):
    cluster = Cluster(prompt=prompt, **settings).start()
    cluster.tree.create_topic("t", partitions or {0: [1, 2], 1: [2, 3]})
    cluster.settle()
    cluster.brokers.answer()
    cluster.settle()
    cluster.brokers.take()
    return cluster


def request(cluster, name="t"):
    cluster.tree.store.create(znodes.delete_topic_path(name))
    cluster.settle()


def is_gone(cluster, name="t"):
    paths = (znodes.topic_path(name), znodes.topic_config_path(name), znodes.delete_topic_path(name))
    gone = not any(cluster.tree.exists(path) for path in paths)
    assert gone == (name not in cluster.controller.context.topics)
    return gone


def test_a_topic_is_deleted_with_all_its_nodes():
    cluster = with_topic()
    request(cluster)
    assert is_gone(cluster)
    assert cluster.controller.context.deleting == cluster.controller.context.ineligible == set()
    sent = cluster.brokers.take()
    assert metadata_of(sent, 3)["t", 0][0] == -2
    assert stops_of(sent, 1) == [("t", 0, -2, False), ("t", 0, -2, True)]
    assert stops_of(sent, 2) == [("t", 0, -2, False), ("t", 1, -2, False), ("t", 0, -2, True), ("t", 1, -2, True)]


def test_the_same_name_can_be_created_again():
    cluster = with_topic()
    request(cluster)
    cluster.tree.create_topic("t", {0: [3]})
    cluster.settle()
    assert cluster.tree.summary("t") == (3, [3], 0)


def test_nothing_is_removed_before_every_replica_confirmed():
    cluster = with_topic(prompt=False)
    request(cluster)
    cluster.brokers.answer(1)
    cluster.brokers.answer(2)
    cluster.settle()
    assert not is_gone(cluster)
    cluster.brokers.answer(3)
    cluster.settle()
    assert is_gone(cluster)


def test_a_dead_broker_delays_the_deletion_until_it_is_back():
    cluster = with_topic()
    cluster.tree.fail(3)
    cluster.settle()
    request(cluster)
    assert not is_gone(cluster)
    assert "t" in cluster.controller.context.ineligible
    cluster.brokers.take()
    cluster.tree.register(3)
    cluster.settle()
    assert is_gone(cluster)
    sent = cluster.brokers.take()
    assert stops_of(sent, 3) == [("t", 1, -2, False), ("t", 1, -2, True)]
    assert stops_of(sent, 1) == []  # it has confirmed before


def test_a_broker_that_fails_before_it_confirms_is_asked_again():
    cluster = with_topic(prompt=False)
    request(cluster)
    cluster.brokers.answer(1)
    cluster.brokers.answer(2)
    cluster.tree.fail(3)
    cluster.settle()
    assert cluster.partition("t", 1).replica_status[3] is ReplicaStatus.DELETION_INELIGIBLE
    cluster.tree.register(3)
    cluster.settle()
    assert not is_gone(cluster)
    cluster.brokers.answer()
    cluster.settle()
    assert is_gone(cluster)


def test_an_answer_of_an_older_incarnation_confirms_nothing():
    cluster = with_topic({0: [2]}, prompt=False)
    request(cluster)
    late = [entry for entry in cluster.brokers.waiting if entry[0] == 2]
    cluster.tree.bounce(2)
    cluster.settle()
    for to, api_key, message, then in late:
        then(cluster.brokers._response(to, api_key, message))
    cluster.settle()
    assert not is_gone(cluster)
    cluster.brokers.answer()
    cluster.settle()
    assert is_gone(cluster)


def test_a_replica_that_cannot_be_deleted_is_retried_when_its_broker_starts():
    cluster = with_topic()
    cluster.brokers.failing[3, "t", 1] = ErrorCode.KAFKA_STORAGE_ERROR
    request(cluster)
    assert not is_gone(cluster)
    assert cluster.partition("t", 1).replica_status[3] is ReplicaStatus.DELETION_INELIGIBLE
    cluster.brokers.failing.clear()
    cluster.tree.bounce(3)
    cluster.settle()
    assert is_gone(cluster)


@pytest.mark.parametrize("answered", [(), (1,), (1, 2)])
def test_a_successor_continues(answered):
    cluster = with_topic(prompt=False)
    request(cluster)
    for broker_id in answered:
        cluster.brokers.answer(broker_id)
    cluster.settle()
    cluster.failover(2)
    sent = cluster.brokers.take()
    assert metadata_of(sent, 1)["t", 0][0] == -2
    cluster.brokers.answer()
    cluster.settle()
    cluster.brokers.answer()
    cluster.settle()
    assert is_gone(cluster)


def test_a_successor_waits_for_a_dead_broker():
    cluster = with_topic()
    cluster.tree.fail(3)
    request(cluster)
    cluster.failover(2)
    assert not is_gone(cluster)
    cluster.tree.register(3)
    cluster.settle()
    assert is_gone(cluster)


def test_a_mark_of_an_unknown_topic_is_removed():
    cluster = with_topic()
    request(cluster, "unknown")
    assert not cluster.tree.exists(znodes.delete_topic_path("unknown"))


def test_marks_are_removed_if_deletion_is_disabled():
    cluster = with_topic(deletion_enabled=False)
    request(cluster)
    assert not cluster.tree.exists(znodes.delete_topic_path("t"))
    assert cluster.tree.exists(znodes.topic_path("t"))
    cluster.tree.store.create(znodes.delete_topic_path("t"))
    cluster.failover()
    assert not cluster.tree.exists(znodes.delete_topic_path("t"))
    assert cluster.tree.summary("t", 0)[0] == 1


def test_partitions_that_are_added_to_a_topic_in_deletion_are_taken_back():
    cluster = with_topic(prompt=False)
    request(cluster)
    old = cluster.tree.topic("t")
    path = znodes.topic_path("t")
    cluster.tree.store.set(path, znodes.encode_topic(old._replace(partitions={**old.partitions, 2: [1]})))
    cluster.settle()
    assert sorted(cluster.tree.topic("t").partitions) == [0, 1]
    cluster.brokers.answer()
    cluster.settle()
    cluster.brokers.answer()
    cluster.settle()
    assert is_gone(cluster)


def test_a_deletion_of_a_topic_without_live_replicas_waits():
    cluster = with_topic({0: [3]})
    cluster.tree.fail(3)
    cluster.settle()
    request(cluster)
    assert not is_gone(cluster)
    cluster.tree.register(3)
    cluster.settle()
    assert is_gone(cluster)


def test_no_leader_is_elected_for_a_topic_in_deletion():
    cluster = with_topic(prompt=False)
    request(cluster)
    before = cluster.tree.state("t", 1)
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.tree.state("t", 1) == before


def test_many_partitions():
    cluster = with_topic({index: [1, 2, 3] for index in range(600)})
    request(cluster)
    assert is_gone(cluster)
