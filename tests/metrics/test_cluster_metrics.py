"""Metric families of a broker in a cluster: other brokers and their partitions, and the numbers of the active controller."""

import pytest

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.partition import in_sync
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.testing import slot_probe
from odradek.processes.in_sync_service import SlotVerbs
from odradek.replication.in_sync import Proposal
from tests.metrics.test_collector import collector, measured, samples, value
from tests.shm.one_broker import OneBroker

PREFIX = "kafka_controller_kafkacontroller_"


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path, processes=2) as made:
        brokers.begin_cluster(30_000)
        publish(1, 2)
        yield made


def publish(*alive, name="PLAINTEXT"):
    brokers.publish_brokers(
        [
            brokers.BrokerInfo(broker_id, -1, None, (brokers.Endpoint(name, f"host-{broker_id}", 9000 + broker_id),))
            for broker_id in alive
        ]
    )


def remote(broker, topic, partition=0, **view):
    slot = broker.table.create_remote(topic, topic.encode().ljust(16, b"x"), partition)
    if view:
        values = {"leader_id": 2, "leader_epoch": 0, "partition_epoch": 0, "replicas": [2, 3], "in_sync": [2]}
        views.publish_view(slot, **(values | view))
    broker.table.announce([slot])
    return slot


def test_the_live_brokers_are_counted(broker):
    publish(1, 2, 7)
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_brokers") == 3
    assert value(found, "kafka_broker_info", id="7", address="host-7:9007") == 1
    assert value(found, "kafka_broker_info", id="1", address="host-1:9001") == 1
    publish(2, name="OTHER")
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_brokers") == 1
    assert value(found, "kafka_broker_info", id="2", address="host-2:9002") == 1


def test_only_the_controller_reports_the_numbers_of_the_controller(broker):
    remote(broker, "led", replicas=[2])
    remote(broker, "offline", leader_id=-1)
    remote(broker, "dead", leader_id=9)
    remote(broker, "unpublished")
    for controller, expected in ((-1, (0, 0, 0, 0)), (2, (0, 0, 0, 0)), (1, (1, 2, 3, 3))):
        brokers.set_controller(controller, 1)
        found = samples(measured(collector(broker)))
        names = ("activecontrollercount", "offlinepartitionscount", "globaltopiccount", "globalpartitioncount")
        assert tuple(value(found, PREFIX + name) for name in names) == expected


def test_partitions_of_other_brokers_are_what_the_controller_published(broker):
    remote(broker, "t", 4, leader_id=2, replicas=[3, 2], in_sync=[2])
    found = samples(measured(collector(broker)))
    place = {"topic": "t", "partition": "4"}
    assert value(found, "kafka_topic_partition_leader", **place) == 2
    assert value(found, "kafka_topic_partition_leader_is_preferred", **place) == 0
    assert value(found, "kafka_topic_partition_replicas", **place) == 2
    assert value(found, "kafka_topic_partition_in_sync_replica", **place) == 1
    assert value(found, "kafka_topic_partition_under_replicated_partition", **place) == 1
    assert ("kafka_topic_partition_current_offset", tuple(sorted(place.items()))) not in found
    for name in ("leadercount", "partitioncount", "underreplicatedpartitions", "underminisrpartitioncount"):
        assert value(found, f"kafka_server_replicamanager_{name}") == 0


def test_partitions_that_this_broker_leads_are_what_it_knows_itself(broker):
    slot = broker.create("t", alone=False, min_in_sync_replicas=2)
    broker.lead(slot, 0, alone=True)
    views.publish_view(slot, leader_id=1, leader_epoch=0, partition_epoch=0, replicas=[1, 2], in_sync=[1, 2])
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_server_replicamanager_leadercount") == 1
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 1
    assert value(found, "kafka_server_replicamanager_underminisrpartitioncount") == 1
    assert value(found, "kafka_server_replicamanager_atminisrpartitioncount") == 0
    broker.lead(slot, 1, alone=False)
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(found, "kafka_server_replicamanager_atminisrpartitioncount") == 1
    broker.obey(slot, 2)
    views.publish_view(slot, leader_id=2, leader_epoch=2, partition_epoch=0, replicas=[1, 2], in_sync=[2])
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_server_replicamanager_leadercount") == 0
    assert value(found, "kafka_server_replicamanager_partitioncount") == 1
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0, "its leader reports it"
    assert value(found, "kafka_topic_partition_under_replicated_partition", topic="t", partition="0") == 1


def test_changes_of_in_sync_replicas_are_counted(broker):
    broker.shm.add_process(ProcessKind.COORDINATOR)
    broker.shm.process_starts(2)
    slot = broker.create("t", alone=False)
    broker.lead(slot, 0, alone=False)

    def changed():
        for before, after in (([1, 2], [1]), ([1], [1, 2]), ([1, 2], [1]), ([1], [1])):
            incarnation = slot_probe.incarnation_of(slot)
            serial = in_sync.propose_in_sync(slot, incarnation, 0, after) if before != after else 0
            proposal = Proposal(incarnation, 0, 0, before, after)
            assert SlotVerbs().commit(slot, serial, proposal, after, serial) == (before != after)

    assert broker.reap(broker.fork(2, changed), 2) == 0
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_server_replicamanager_isrshrinks_total") == 2
    assert value(found, "kafka_server_replicamanager_isrexpands_total") == 1
