"""When a broker of a cluster becomes ready for the first time after its start."""

import pytest

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek.metrics.joining import not_joined
from tests.metrics.test_cluster_metrics import publish, remote
from tests.metrics.test_collector import collector
from tests.shm.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path, processes=2) as made:
        yield made


def reason(broker, broker_id=1):
    return not_joined(broker_id, collector(broker).each_topic())


def join(broker):
    brokers.begin_cluster(30_000)
    brokers.set_broker_epoch(7)
    publish(1, 2)
    brokers.note_published()


def follow(broker, topic, in_sync, leader=2, replicas=(1, 2)):
    slot = broker.create(topic, alone=False)
    broker.obey(slot, 1)
    views.publish_view(slot, leader_id=leader, leader_epoch=1, partition_epoch=0, replicas=replicas, in_sync=in_sync)
    return slot


def test_a_broker_without_a_cluster_has_nothing_to_join(broker):
    assert reason(broker) is None


def test_a_broker_must_be_registered_and_know_the_partitions(broker):
    brokers.begin_cluster(30_000)
    publish(1, 2)
    assert reason(broker) == "the broker is not registered in the cluster"
    brokers.set_broker_epoch(7)
    assert reason(broker) == "the controller has not sent the partitions yet"
    brokers.note_published()
    assert reason(broker) is None
    brokers.end_registration()
    assert reason(broker) == "the broker is not registered in the cluster"


def test_all_replicas_with_a_leader_must_be_in_sync(broker):
    join(broker)
    first, second = follow(broker, "a", in_sync=[2]), follow(broker, "b", in_sync=[2])
    assert reason(broker) == "2 of its replicas are not in sync yet, such as a-0"
    views.publish_view(first, leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], in_sync=[2, 1])
    assert reason(broker) == "1 of its replicas are not in sync yet, such as b-0"
    views.publish_view(second, leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], in_sync=[2, 1])
    assert reason(broker) is None


@pytest.mark.parametrize("leader", [-1, 9])
def test_a_replica_without_a_leader_that_is_alive_is_not_waited_for(broker, leader):
    join(broker)
    follow(broker, "a", in_sync=[9], leader=leader, replicas=[1, 9])
    assert reason(broker) is None


def test_replicas_of_other_brokers_are_not_waited_for(broker):
    join(broker)
    remote(broker, "others", leader_id=2, replicas=[2, 3], in_sync=[2])
    slot = broker.create("led", alone=False)
    broker.lead(slot, 1, alone=True)
    views.publish_view(slot, leader_id=1, leader_epoch=1, partition_epoch=0, replicas=[1, 2], in_sync=[1])
    assert reason(broker) is None
