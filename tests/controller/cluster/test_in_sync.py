"""AlterPartition: every check, in its order; and what follows from an accepted change."""

import pytest

from odradek.controller.cluster.in_sync import ISR_CHANGES, Proposal, alter, check_sender, judge
from odradek.controller.cluster.requests import UPDATE_METADATA
from odradek.controller.cluster.shutdown import controlled_shutdown
from odradek.metadata.znodes import PartitionState, TopicAssignment
from odradek.protocol.errors import ErrorCode as E
from tests.controller.cluster.harness import Cluster, make_context, metadata_of, topic_id


def make(state=None, partition_epoch=4, brokers=(1, 2, 3)):
    context = make_context(brokers, epoch=6)
    topic = context.add_topic("t", TopicAssignment(topic_id("t"), {0: [1, 2, 3]}), 0)
    partition = topic.partitions[0]
    partition.state = state or PartitionState(5, 1, 7, [1, 2])
    partition.partition_epoch = partition_epoch
    return context, partition


def propose(partition, members=(1, 2, 3), leader_epoch=7, partition_epoch=4, recovery=0, epochs=-1):
    return Proposal(partition, leader_epoch, partition_epoch, [(member, epochs) for member in members], recovery)


@pytest.mark.parametrize(
    ("change", "leader", "version", "expected"),
    [
        ({}, 1, 3, E.NONE),
        ({"members": [1]}, 1, 3, E.NONE),
        ({"leader_epoch": 8}, 1, 3, E.NOT_CONTROLLER),
        ({"partition_epoch": 5}, 1, 3, E.NOT_CONTROLLER),
        ({"leader_epoch": 6, "partition_epoch": 5}, 1, 3, E.NOT_CONTROLLER),
        ({"leader_epoch": 6}, 1, 3, E.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6, "partition_epoch": 3}, 1, 3, E.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 3}, 1, 3, E.INVALID_UPDATE_VERSION),
        ({"recovery": 1}, 1, 3, E.INVALID_REQUEST),  # recovered -> recovering
        ({"members": [2, 3]}, 1, 3, E.INVALID_REQUEST),  # without the leader
        ({"members": [1, 1]}, 1, 3, E.INVALID_REQUEST),
        ({"members": [1, 9]}, 1, 3, E.INVALID_REQUEST),  # no replica
        ({}, 2, 3, E.INVALID_REQUEST),  # from a follower
    ],
)
def test_checks(change, leader, version, expected):
    context, partition = make()
    code, state = judge(context, leader, propose(partition, **change), version)
    assert code == expected
    assert (state is not None) == (expected == E.NONE)


def test_an_accepted_state_keeps_leader_and_leader_epoch():
    context, partition = make()
    assert judge(context, 1, propose(partition), 3) == (E.NONE, PartitionState(6, 1, 7, [1, 2, 3]))


@pytest.mark.parametrize("partition_epoch", [4, 3])
def test_a_repeated_proposal_that_was_accepted_before_succeeds(partition_epoch):
    context, partition = make()
    assert judge(context, 1, propose(partition, [1, 2], partition_epoch=partition_epoch), 3) == (E.NONE, None)


def test_unknown_partitions():
    context, partition = make()
    assert judge(context, 1, propose(None), 3) == (E.UNKNOWN_TOPIC_OR_PARTITION, None)
    partition.topic.deletion_started = True
    assert judge(context, 1, propose(partition), 3) == (E.UNKNOWN_TOPIC_OR_PARTITION, None)


@pytest.mark.parametrize(("version", "expected"), [(0, E.OPERATION_NOT_ATTEMPTED), (1, E.OPERATION_NOT_ATTEMPTED),
                                                  (2, E.INELIGIBLE_REPLICA), (3, E.INELIGIBLE_REPLICA)])  # fmt: skip
@pytest.mark.parametrize("reason", ["dead", "shutting down", "offline directory", "other incarnation"])
def test_members_that_may_not_join(version, expected, reason):
    context, partition = make()
    epochs = -1
    if reason == "dead":
        context.remove_brokers([3])
    elif reason == "shutting down":
        context.begin_shutdown(3)
    elif reason == "offline directory":
        context.offline_dirs[3] = {partition}
    else:
        epochs = 99
    assert judge(context, 1, propose(partition, epochs=epochs), version) == (expected, None)


def test_recovery():
    context, partition = make(PartitionState(5, 1, 7, [1], 1))
    assert judge(context, 1, propose(partition, [1, 2], recovery=1), 3) == (E.INVALID_REQUEST, None)
    assert judge(context, 1, propose(partition, [1], recovery=0), 3) == (E.NONE, PartitionState(6, 1, 7, [1], 0))


def test_the_sender_must_be_the_present_incarnation():
    context, _ = make()
    assert check_sender(context, 1, 1) == E.NONE
    assert check_sender(context, 1, 0) == check_sender(context, 1, 2) == E.STALE_BROKER_EPOCH
    assert check_sender(context, 9, 1) == E.STALE_BROKER_EPOCH


# -- with a store -----------------------------------------------------------------------------------------------------


def with_topic():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.settle()
    cluster.brokers.take()
    return cluster


def send(cluster, leader, members, index=0, partition_epoch=None):
    partition = cluster.partition("t", index)
    epoch = partition.partition_epoch if partition_epoch is None else partition_epoch
    proposal = propose(partition, members, partition.state.leader_epoch, epoch)
    (verdict,) = cluster.run(alter(cluster.controller.context, leader, [proposal], 3))
    return verdict.code


def test_a_change_is_stored_without_a_leader_epoch_and_published():
    cluster = with_topic()
    assert send(cluster, 1, [1, 2]) == E.NONE
    assert cluster.tree.summary("t") == (1, [1, 2], 0)
    assert cluster.partition("t").partition_epoch == 1
    sent = cluster.brokers.take()
    assert {key for _, key, _ in sent} == {UPDATE_METADATA}
    assert metadata_of(sent, 3) == {("t", 0): (1, [1, 2], [])}


def test_a_change_by_another_program_is_noticed():
    cluster = with_topic()
    cluster.tree.put_state("t", 0, leader=1, in_sync=[1])
    assert send(cluster, 1, [1, 2]) == E.INVALID_UPDATE_VERSION
    assert cluster.partition("t").state.in_sync_replicas == [1]
    assert send(cluster, 1, [1, 2], partition_epoch=1) == E.NONE


def test_a_partition_that_is_named_twice_is_changed_once():
    cluster = with_topic()
    partition = cluster.partition("t")
    proposals = [propose(partition, [1, 2], 0, 0), propose(partition, [1], 0, 0)]
    verdicts = cluster.run(alter(cluster.controller.context, 1, proposals, 3))
    assert [verdict.code for verdict in verdicts] == [E.NONE, E.INVALID_REQUEST]
    assert cluster.tree.summary("t") == (1, [1, 2], 0)


def test_a_broker_that_shuts_down_does_not_join_again():
    cluster = with_topic()
    context = cluster.controller.context
    cluster.run(controlled_shutdown(context, 3, context.brokers[3].epoch))
    assert cluster.tree.summary("t") == (1, [1, 2], 1)
    assert send(cluster, 1, [1, 2, 3]) == E.INELIGIBLE_REPLICA


def test_a_leader_that_shuts_down_hands_over_to_a_follower_that_catches_up_meanwhile():
    cluster = with_topic()
    context = cluster.controller.context
    assert send(cluster, 1, [1]) == E.NONE
    shut_down = controlled_shutdown(context, 1, context.brokers[1].epoch)
    assert cluster.run(shut_down) == (E.NONE, [cluster.partition("t")])
    assert send(cluster, 1, [1, 3]) == E.NONE
    assert cluster.run(controlled_shutdown(context, 1, context.brokers[1].epoch)) == (E.NONE, [])
    assert cluster.tree.summary("t") == (3, [3], 1)


def test_a_leader_that_shuts_down_may_remove_a_follower():
    cluster = with_topic()
    context = cluster.controller.context
    context.begin_shutdown(1)
    assert send(cluster, 1, [1, 2]) == E.NONE
    context.begin_shutdown(3)
    assert send(cluster, 1, [1, 2, 3]) == E.INELIGIBLE_REPLICA


def test_brokers_of_old_protocols_change_states_themselves():
    cluster = with_topic()
    cluster.tree.put_state("t", 1, leader=2, in_sync=[2])
    data = b'{"version":1,"partitions":[{"topic":"t","partition":1},{"topic":"x","partition":0}]}'
    cluster.tree.store.create(f"{ISR_CHANGES}/isr_change_", data, sequential=True)
    cluster.tree.store.create(f"{ISR_CHANGES}/isr_change_", b"x", sequential=True)
    cluster.settle()
    assert metadata_of(cluster.brokers.take(), 1) == {("t", 1): (2, [2], [])}
    assert cluster.tree.store.children(ISR_CHANGES) == []
