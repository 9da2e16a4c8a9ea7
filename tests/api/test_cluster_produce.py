"""Produce in a cluster, step by step: partitions of other brokers, min.insync.replicas, and waiting for the followers."""

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.partition import in_sync, roles
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.api.replicas import ReplicaView
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from tests.api.cluster_calls import CLIENTS, INTERNAL, broker_info
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, produce_request

LEADER, FOLLOWER = 1, 2
VERSIONS = pytest.mark.parametrize("version", [3, 9, 10, 12, 13])


@pytest.fixture
def worker(tmp_path):
    replicas = ReplicaView(ClusterBrokers([CLIENTS]), LEADER, None)
    hand_worker = HandWorker(tmp_path, replicas=replicas)
    replica_probe.cluster([])
    brokers.publish_brokers([broker_info(LEADER), broker_info(FOLLOWER, rack="r2"), broker_info(3, names=[INTERNAL])])
    yield hand_worker
    hand_worker.close()


def led(worker, name="t", *, alone=False, **settings):
    slot = worker.create(name, alone=alone, **settings)
    worker.broker.lead(slot, 0, alone=alone)
    return slot


class Producer:
    def __init__(self, worker, version=12):
        self.worker, self.version, self.wire = worker, version, worker.connect()

    def send(self, slot, *, acks=-1, data=None):
        facts = slot_facts.describe(slot)
        name = facts.topic_id if self.version >= 13 else facts.topic
        self.wire.send(produce_request([(name, [(0, data or batch(b"x"))])], acks=acks), produce.API_KEY, self.version)
        self.worker.turn()

    def receive(self):
        """(the partition's part of the response, the response)."""
        response = self.wire.receive()
        (topic,) = response.responses
        (part,) = topic.partition_responses
        return part, response

    def ask(self, slot, **options):
        self.send(slot, **options)
        return self.receive()


def check_leader(part, response, version, leader=None, epoch=-1):
    """The response names the leader and its address, or nobody."""
    if version < 10:
        return
    if leader is None:
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (-1, -1)
        assert response.node_endpoints == []
        return
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, epoch)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (leader, "host-2", 9002, "r2")


@VERSIONS
@pytest.mark.parametrize("data", [None, batch(b"x" * 2000)], ids=["small", "too large"])
def test_a_follower_names_the_leader_before_it_looks_at_the_batch(worker, version, data):
    slot = led(worker, max_message_bytes=1000, min_in_sync_replicas=2)
    worker.broker.obey(slot, 4)
    part, response = Producer(worker, version).ask(slot, data=data)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    check_leader(part, response, version, FOLLOWER, 4)


@VERSIONS
def test_a_partition_of_other_brokers_has_the_published_leader(worker, version):
    slot = worker.broker.table.create_remote("t", bytes(15) + b"\7", 0)
    worker.broker.table.announce([slot])
    worker.topics.refresh()
    part, response = Producer(worker, version).ask(slot)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    check_leader(part, response, version)
    views.publish_view(slot, leader_id=2, leader_epoch=7, partition_epoch=0, replicas=[2], in_sync=[2])
    part, response = Producer(worker, version).ask(slot)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    check_leader(part, response, version, FOLLOWER, 7)
    for leader in (3, 9):  # without the client's listener; not alive
        views.publish_view(slot, leader_id=leader, leader_epoch=8, partition_epoch=0, replicas=[leader], in_sync=[])
        part, response = Producer(worker, version).ask(slot)
        if version >= 10:
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, 8)
            assert response.node_endpoints == []


@VERSIONS
def test_too_few_replicas_in_sync_refuse_before_the_append(worker, version):
    slot = led(worker, alone=True, min_in_sync_replicas=2)
    part, response = Producer(worker, version).ask(slot)
    assert part.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    check_leader(part, response, version)
    assert slot_facts.describe(slot).log_end_offset == 0
    part, _ = Producer(worker, version).ask(slot, acks=1)
    assert (part.error_code, part.base_offset) == (0, 0)


@VERSIONS
def test_acks_all_waits_for_the_followers(worker, version):
    slot = led(worker, min_in_sync_replicas=2)
    producer = Producer(worker, version)
    producer.send(slot)
    assert nothing_came(producer.wire)
    assert replica_probe.note_fetch(slot, FOLLOWER, 0) == 0
    worker.turn()
    assert nothing_came(producer.wire)
    assert replica_probe.note_fetch(slot, FOLLOWER, 1) == 0
    worker.turn()
    part, _ = producer.receive()
    assert (part.error_code, part.base_offset) == (0, 0)


def test_acks_1_waits_for_nobody(worker):
    slot = led(worker, min_in_sync_replicas=2)
    part, _ = Producer(worker).ask(slot, acks=1)
    assert (part.error_code, part.base_offset) == (0, 0)


def shrink(slot):
    """The controller removes the follower from the in-sync replicas."""
    incarnation = slot_probe.incarnation_of(slot)
    serial = in_sync.propose_in_sync(slot, incarnation, 0, [LEADER])
    assert in_sync.commit_in_sync(slot, incarnation, 0, serial, [LEADER], 1)


def test_a_shrink_ends_the_wait_for_the_follower_that_left(worker):
    slot = led(worker, min_in_sync_replicas=1)
    producer = Producer(worker)
    producer.send(slot)
    brokers.publish_brokers([broker_info(LEADER)])
    shrink(slot)
    worker.turn()
    assert producer.receive()[0].error_code == 0


def test_a_shrink_below_the_minimum_does_not_acknowledge(worker):
    slot = led(worker, min_in_sync_replicas=2)
    producer = Producer(worker)
    producer.send(slot)
    shrink(slot)
    worker.turn()
    assert nothing_came(producer.wire), "the high watermark does not move with too few replicas in sync"
    worker.expire()
    assert producer.receive()[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_too_few_replicas_in_sync_after_the_append(worker):
    slot = led(worker, min_in_sync_replicas=2)
    producer = Producer(worker)
    producer.send(slot)
    assert replica_probe.note_fetch(slot, FOLLOWER, 1) == 0
    shrink(slot)  # before the worker has looked
    worker.turn()
    part, _ = producer.receive()
    assert (part.error_code, part.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)


@VERSIONS
@pytest.mark.parametrize("grown", [False, True])
def test_a_leadership_that_ends_meanwhile_is_no_acknowledgement(worker, version, grown):
    slot = led(worker)
    producer = Producer(worker, version)
    producer.send(slot)
    worker.broker.obey(slot, 5)
    if grown:  # the log of the next leader reaches the offset with other records
        worker.broker.lead(slot, 6, alone=True)
    worker.turn()
    part, response = producer.receive()
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not grown:
        check_leader(part, response, version, FOLLOWER, 5)


@VERSIONS
@pytest.mark.parametrize("alone", [True, False], ids=["the follower left", "the follower stays"])
def test_a_new_epoch_of_the_same_leader_goes_on_waiting(worker, version, alone):
    """The controller begins an epoch whenever a replica leaves. A producer without idempotence would send the records again."""
    slot = led(worker)
    producer = Producer(worker, version)
    producer.send(slot)
    if alone:
        brokers.publish_brokers([broker_info(LEADER)])
    for epoch in (1, 2):
        worker.broker.lead(slot, epoch, alone=alone)
        worker.turn()
        if not alone:
            assert nothing_came(producer.wire)
            assert replica_probe.note_fetch(slot, FOLLOWER, 0) == 0
    if not alone:
        worker.turn()
        assert nothing_came(producer.wire)
        assert replica_probe.note_fetch(slot, FOLLOWER, 1) == 0
        worker.turn()
    part, _ = producer.receive()
    assert (part.error_code, part.base_offset) == (0, 0)


@pytest.mark.parametrize("ended", ["followed", "left", "given up"])
def test_a_leadership_that_was_interrupted_does_not_acknowledge_in_its_next_epochs(worker, ended):
    slot = led(worker)
    producer = Producer(worker)
    producer.send(slot)
    if ended == "followed":
        worker.broker.obey(slot, 5)
    elif ended == "left":
        roles.leave_role(slot, slot_probe.incarnation_of(slot), 5)
    else:
        roles.give_up_leadership(slot)
    worker.broker.lead(slot, 6, alone=True)
    worker.broker.lead(slot, 7, alone=True)
    worker.turn()
    assert producer.receive()[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_partition_epoch_goes_on_waiting(worker):
    slot = led(worker)
    producer = Producer(worker)
    producer.send(slot)
    worker.broker.lead(slot, 0, alone=False)
    worker.turn()
    assert nothing_came(producer.wire)
    assert replica_probe.note_fetch(slot, FOLLOWER, 1) == 0
    worker.turn()
    assert producer.receive()[0].error_code == 0


def test_one_response_names_each_leader_once(worker):
    slots = worker.create_many("t", 3)
    for slot in slots:
        worker.broker.obey(slot, 2)
    producer = Producer(worker)
    request = produce_request([("t", [(number, batch(b"x")) for number in range(3)])])
    producer.wire.send(request, produce.API_KEY, 12)
    worker.turn()
    response = producer.wire.receive()
    parts = response.responses[0].partition_responses
    assert [(part.current_leader.leader_id, part.current_leader.leader_epoch) for part in parts] == [(2, 2)] * 3
    assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]
