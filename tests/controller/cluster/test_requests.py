"""Requests to brokers: order, receivers, contents, and sharing."""

from odradek.controller.cluster.requests import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    VERSIONS,
    RequestBatch,
)
from odradek.metadata.znodes import PartitionState, TopicAssignment
from odradek.protocol import decode, encode
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata
from tests.controller.cluster.harness import live, make_context, topic_id


def make(partitions=2, brokers=(1, 2, 3)):
    context = make_context(brokers, epoch=5)
    for name in ("a", "b"):
        replicas = {index: [1, 2, 3] for index in range(partitions)}
        topic = context.add_topic(name, TopicAssignment(topic_id(name), replicas), 0)
        for partition in topic.partitions.values():
            partition.state, partition.partition_epoch = PartitionState(4, 1, 7, [1, 2]), 9
    return context, RequestBatch(context)


def test_a_broker_receives_roles_before_metadata_and_metadata_before_stops():
    context, batch = make()
    partition = context.find("a", 0)
    batch.stop(2, partition, delete=True)
    batch.lead([1, 2], partition)
    requests = [(outgoing.broker_id, outgoing.api_key) for outgoing in batch.take()]
    for broker_id in (1, 2, 3):
        keys = [api_key for to, api_key in requests if to == broker_id]
        expected = {1: [LEADER_AND_ISR, UPDATE_METADATA], 2: [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA]}
        assert keys == expected.get(broker_id, [UPDATE_METADATA])
    assert batch.take() == []  # the batch is empty afterwards


def test_leader_and_isr_contains_all_that_a_replica_needs():
    context, batch = make()
    partition = context.find("b", 1)
    partition.adding, partition.removing = [3], [1]
    context.add_brokers([live(2, epoch=77)])
    batch.lead([2], partition, is_new=True)
    request = next(outgoing.request for outgoing in batch.take() if outgoing.api_key == LEADER_AND_ISR)
    version = VERSIONS[LEADER_AND_ISR]
    request = decode(leader_and_isr.SCHEMA.request, version, encode(request, version))[0]
    assert (request.controller_id, request.controller_epoch, request.broker_epoch, request.type) == (1, 5, 77, 0)
    assert not request.is_kraft_controller
    (topic,) = request.topic_states
    assert (topic.topic_name, bytes(topic.topic_id)) == ("b", topic_id("b").bytes)
    (state,) = topic.partition_states
    assert (state.partition_index, state.controller_epoch, state.leader, state.leader_epoch) == (1, 4, 1, 7)
    assert (state.isr, state.partition_epoch, state.replicas) == ([1, 2], 9, [1, 2, 3])
    assert (state.adding_replicas, state.removing_replicas, state.is_new) == ([3], [1], True)
    assert [(leader.broker_id, leader.host_name, leader.port) for leader in request.live_leaders] == [
        (1, "host1", 9001)
    ]


def test_update_metadata_names_offline_replicas_and_deleted_topics():
    context, batch = make(brokers=(1, 2, 3))
    context.remove_brokers([3])
    context.begin_shutdown(2)
    context.deleting.add("b")
    batch.update_all([context.find("a", 0), context.find("b", 0)])
    outgoing = batch.take()
    assert [request.broker_id for request in outgoing] == [1, 2]  # also the one that shuts down
    version = VERSIONS[UPDATE_METADATA]
    request = decode(update_metadata.SCHEMA.request, version, encode(outgoing[0].request, version))[0]
    states = {topic.topic_name: topic.partition_states[0] for topic in request.topic_states}
    assert (states["a"].leader, states["a"].leader_epoch, states["a"].zk_version) == (1, 7, 9)
    assert states["a"].offline_replicas == [2, 3]
    assert states["b"].leader == -2
    assert [broker.id for broker in request.live_brokers] == [1, 2]
    (endpoint,) = request.live_brokers[0].endpoints
    assert (endpoint.host, endpoint.port, endpoint.listener, endpoint.security_protocol) == (
        "host1", 9001, "PLAINTEXT", 0,
    )  # fmt: skip


def test_stop_replica_carries_the_leader_epoch_or_the_epoch_of_a_deletion():
    context, batch = make()
    context.deleting.add("b")
    context.find("a", 1).state = None
    batch.stop(3, context.find("a", 0), delete=False)
    batch.stop(3, context.find("a", 1), delete=False)
    batch.stop(3, context.find("b", 0), delete=True)
    batch.stop(3, context.find("b", 0), delete=False)  # the deletion stays
    (outgoing,) = batch.take()
    version = VERSIONS[STOP_REPLICA]
    request = decode(stop_replica.SCHEMA.request, version, encode(outgoing.request, version))[0]
    assert {
        (topic.topic_name, state.partition_index): (state.leader_epoch, state.delete_partition)
        for topic in request.topic_states
        for state in topic.partition_states
    } == {("a", 0): (7, False), ("a", 1): (-1, False), ("b", 0): (-2, True)}


def test_stop_replica_carries_the_epoch_that_the_replica_knows():
    context, batch = make()
    partition = context.find("a", 0)
    batch.stop(3, partition, delete=False)
    partition.state = partition.state._replace(leader_epoch=8)  # the replica leaves the in-sync replicas
    (outgoing,) = batch.take()
    (topic,) = outgoing.request.topic_states
    assert [state.leader_epoch for state in topic.partition_states] == [7]


def test_brokers_that_are_not_registered_receive_nothing():
    context, batch = make()
    batch.lead([1, 9], context.find("a", 0))
    batch.stop(9, context.find("a", 0), delete=True)
    assert {outgoing.broker_id for outgoing in batch.take()} == {1, 2, 3}


def test_partitions_are_grouped_by_topic_and_shared_by_requests():
    context, batch = make(partitions=50)
    for partition in context.partitions():
        batch.lead(partition.replicas, partition)
    requests = [outgoing.request for outgoing in batch.take() if outgoing.api_key == LEADER_AND_ISR]
    assert [len(request.topic_states) for request in requests] == [2, 2, 2]
    first, second, _ = requests
    assert first.topic_states[0].partition_states[7] is second.topic_states[0].partition_states[7]
    assert first.broker_epoch == second.broker_epoch == 1
