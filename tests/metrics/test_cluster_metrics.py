"""Metric families of a broker in a cluster: other brokers and their partitions, and the numbers of the active controller."""

import os

import pytest

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.partition import in_sync, roles
from odradek._ext.shm import overview
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.metering import count, gauge
from odradek._ext.testing import replica_probe, slot_probe
from odradek.metadata.session import CODES, SessionState
from odradek.metrics.group_rows import GroupRow
from odradek.processes.coordinator.cluster.in_sync_service import SlotVerbs
from odradek.replication.in_sync import Proposal
from tests.metrics.test_collector import Clock, collector, measured, samples, value
from tests.shm.one_broker import SETTINGS, OneBroker, batch
from tests.waiting import until

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
        assert value(found, PREFIX + "activebrokercount") == (2 if controller == 1 else 0)
        assert value(found, PREFIX + "preferredreplicaimbalancecount") == (2 if controller == 1 else 0)


def test_the_retention_of_a_topic_comes_from_a_log_of_this_broker(broker):
    """Slots of partitions without a log here contain no settings, and the first partition may be one of them."""
    remote(broker, "elsewhere", replicas=[2])
    remote(broker, "t", 0, replicas=[2])
    watched = collector(broker)
    assert watched.settings_of("t") is None
    local = remote(broker, "t", 1, replicas=[1])
    broker.table.begin_local(local, 0, SETTINGS | {"retention_ms": 7000, "retention_bytes": 8})
    found = samples(measured(watched))
    assert value(found, "odradek_topic_retention_seconds", topic="t") == 7
    assert value(found, "odradek_topic_retention_bytes", topic="t") == 8
    assert ("odradek_topic_retention_bytes", (("topic", "elsewhere"),)) not in found


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
    replica_probe.cluster([1, 2])

    def changed():
        assert replica_probe.note_fetch(slot, 2, 0) == 0
        for before, after in (([1, 2], [1]), ([1], [1, 2]), ([1, 2], [1]), ([1], [1])):
            incarnation = slot_probe.incarnation_of(slot)
            serial = in_sync.propose_in_sync(slot, incarnation, 0, after) if before != after else 0
            proposal = Proposal(incarnation, 0, 0, before, after, [-1] * len(after))
            assert SlotVerbs().commit(slot, serial, proposal, after, serial) == (before != after)

    assert broker.reap(broker.fork(2, changed), 2) == 0
    found = samples(measured(collector(broker)))
    assert value(found, "kafka_server_replicamanager_isrshrinks_total") == 2
    assert value(found, "kafka_server_replicamanager_isrexpands_total") == 1


@pytest.fixture
def as_coordinator(broker):
    """Calls a function in a child that has the place of a coordinator; the child ends without its death being noticed."""
    broker.shm.add_process(ProcessKind.COORDINATOR)
    broker.shm.process_starts(2)

    def call(action):
        pid = broker.fork(2, action)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return call


def test_a_session_is_reported_while_a_coordinator_is_a_member(broker, as_coordinator):
    clock = Clock()
    made = measured(collector(broker, clock=clock))
    disconnected = ("odradek_zookeeper_disconnected_seconds", ())
    assert value(samples(made), "odradek_broker_registered") == 0
    assert disconnected not in samples(made), "no coordinator has joined the cluster"
    brokers.set_broker_epoch(17)
    for state, seconds in zip(SessionState, (0, 60, 60, 60), strict=True):

        def note(state=state):
            gauge("session_state", CODES[state])
            gauge("session_since_ms", clock.ms - 60_000)

        as_coordinator(note)
        found = samples(made)
        assert found[disconnected] == seconds, state
        assert value(found, "odradek_broker_registered") == int(state is not SessionState.LOST)
    broker.shm.process_died(2)
    found = samples(made)
    assert disconnected not in found, "the coordinator died"
    assert value(found, "odradek_broker_registered") == 1, "the session outlives the coordinator"


def test_what_the_coordinator_counts_outlives_it(broker, as_coordinator):
    words = {
        "in_sync_failed": "kafka_server_replicamanager_failedisrupdates_total",
        "unclean_elections": "kafka_controller_controllerstats_uncleanleaderelections_total",
        "sessions_expired": "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "session_disconnects": "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "election_events": "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        "replication_bytes_out": "kafka_server_brokertopicmetrics_replicationbytesout_total",
    }

    def counted():
        for number, word in enumerate(words, 1):
            count(word, number)
        count("election_us", 2500)

    as_coordinator(counted)
    broker.shm.process_died(2)
    found = samples(measured(collector(broker)))
    assert [value(found, name) for name in words.values()] == list(range(1, len(words) + 1))
    assert value(found, "kafka_controller_controllerstats_leaderelectionrateandtimems_sum") == 2.5


def test_a_change_of_in_sync_replicas_that_is_not_decided_has_an_age(broker):
    slot = broker.create("t", alone=False)
    broker.lead(slot, 0, alone=False)
    made = measured(collector(broker))
    assert value(samples(made), "odradek_isr_change_pending_seconds") == 0
    in_sync.propose_in_sync(slot, slot_probe.incarnation_of(slot), 0, [1])
    until(lambda: value(samples(made), "odradek_isr_change_pending_seconds") > 0, "the proposal has an age")


def test_reassigned_partitions_are_counted_by_their_leader(broker):
    slot = broker.create("t", alone=False)
    made = measured(collector(broker))

    def counted(epoch, adding, follow=False):
        assign = roles.become_follower if follow else roles.become_leader
        assign(
            slot, slot_probe.incarnation_of(slot), leader_id=2 if follow else 1, leader_epoch=epoch, partition_epoch=epoch,
            controller_epoch=1, replicas=[1, 2, 3], in_sync=[1, 2], adding=adding,
        )  # fmt: skip
        return value(samples(made), "kafka_server_replicamanager_reassigningpartitions")

    assert counted(1, [3]) == 1
    assert counted(2, [3], follow=True) == 0
    assert counted(3, []) == 0


def test_logs_that_lost_their_ends_are_counted_until_they_are_complete_or_led(broker):
    def counted():
        found = samples(measured(collector(broker)))
        return value(found, "odradek_lost_tail_partitions"), value(found, "odradek_lost_tail_led_partitions")

    slots = [broker.create("t", number, alone=False) for number in range(2)]
    assert counted() == (0, 0)
    for slot in slots:
        roles.leave_role(slot, slot_probe.incarnation_of(slot), -1)
        replica_probe.lose_tail(slot, 100, 0)
    assert counted() == (2, 0)
    broker.lead(slots[0], 5)
    assert counted() == (1, 1)
    broker.obey(slots[1], 5)
    replica_probe.catch_up(slots[1], 5, 0)
    assert counted() == (0, 1)
    broker.obey(slots[0], 6)
    assert counted() == (0, 0)


def test_the_counts_of_all_slots_equal_the_rows(broker):
    lone = broker.create("lone", alone=False, min_in_sync_replicas=2)
    broker.lead(lone, 0, alone=True)
    views.publish_view(lone, leader_id=1, leader_epoch=0, partition_epoch=0, replicas=[1, 2], in_sync=[1])
    followed = broker.create("followed", alone=False)
    broker.obey(followed, 1)
    views.publish_view(followed, leader_id=2, leader_epoch=1, partition_epoch=0, replicas=[1, 2], in_sync=[1, 2])
    remote(broker, "offline", leader_id=-1)
    remote(broker, "dead", leader_id=9)
    remote(broker, "unpublished")
    counts = overview.replica_counts()
    assert counts._replace(under_replicated_ms=0) == overview.ReplicaCounts(
        led=1, followed=1, under_replicated=1, under_min_in_sync=1, at_min_in_sync=0, offline=0, no_leader=2, not_preferred=3,
        reassigning=0, unfetched=0, lost_tail=0, lost_tail_led=0, under_replicated_ms=0, pending_ms=0,
    )  # fmt: skip


def test_the_lag_of_partitions_of_other_brokers_is_counted_as_unknown(broker):
    slot = broker.create("t", 0, topic_id=b"t".ljust(16, b"x"))
    broker.lead(slot, 0)
    slot_probe.append(slot, [batch(10)])
    remote(broker, "t", 1, leader_id=2, replicas=[2])
    group = GroupRow("g", "Stable", 1, {"t": {0: 4, 1: 30, 7: 5}, "deleted": {0: 1}, "else": {0: 2}})
    remote(broker, "else", leader_id=2, replicas=[2])
    found = samples(measured(collector(broker)), [group])
    place = {"consumergroup": "g", "topic": "t"}
    assert value(found, "kafka_consumergroup_lag_sum", **place) == value(
        found, "kafka_consumergroup_lag", partition="0", **place
    ) == 6  # fmt: skip
    assert value(found, "kafka_consumergroup_current_offset", partition="1", **place) == 30
    assert value(found, "kafka_consumergroup_current_offset_sum", **place) == 34
    unknown = "odradek_consumergroup_unknown_lag_partitions"
    assert value(found, unknown, **place) == 1
    assert value(found, unknown, consumergroup="g", topic="else") == 1
    assert (unknown, (("consumergroup", "g"), ("topic", "deleted"))) not in found
    assert ("kafka_consumergroup_lag_sum", (("consumergroup", "g"), ("topic", "else"))) not in found
