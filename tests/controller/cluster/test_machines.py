"""The machines of partitions and replicas: every move between two states is allowed or refused."""

import itertools

import pytest

from odradek.controller.cluster import partition_states, replica_states
from odradek.controller.cluster.context import PartitionStatus, ReplicaStatus
from odradek.controller.cluster.effects import Write
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.store import Stat
from odradek.metadata.znodes import PartitionState, TopicAssignment
from tests.controller.cluster.harness import make_context, topic_id

P, R = PartitionStatus, ReplicaStatus

PARTITION_MOVES = {
    (P.NON_EXISTENT, P.NEW),
    (P.NEW, P.ONLINE), (P.ONLINE, P.ONLINE), (P.OFFLINE, P.ONLINE),
    (P.NEW, P.OFFLINE), (P.ONLINE, P.OFFLINE), (P.OFFLINE, P.OFFLINE),
    (P.OFFLINE, P.NON_EXISTENT),
}  # fmt: skip
REPLICA_MOVES = {
    (R.NON_EXISTENT, R.NEW),
    (R.NEW, R.ONLINE), (R.ONLINE, R.ONLINE), (R.OFFLINE, R.ONLINE), (R.DELETION_INELIGIBLE, R.ONLINE),
    (R.NEW, R.OFFLINE), (R.ONLINE, R.OFFLINE), (R.OFFLINE, R.OFFLINE), (R.DELETION_INELIGIBLE, R.OFFLINE),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.OFFLINE, R.DELETION_INELIGIBLE), (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}  # fmt: skip


def make_partition(brokers=(1, 2, 3), replicas=(1, 2, 3), state=None):
    context = make_context(brokers)
    topic = context.add_topic("t", TopicAssignment(topic_id("t"), {0: list(replicas)}), 0)
    partition = topic.partitions[0]
    partition.state = state
    return context, partition


def finish(steps):
    """Run a machine whose writes all succeed; returns its result and the operations."""
    operations = []
    answer = None
    try:
        while True:
            effect = steps.send(answer)
            answer = None
            if isinstance(effect, Write):
                operations += [operation for group in effect.groups for operation in group]
                answer = [[_stat(operation) for operation in group] for group in effect.groups]
            elif hasattr(effect, "paths"):
                answer = [None for _ in effect.paths]
            elif hasattr(effect, "watched"):
                answer = []
    except StopIteration as end:
        return end.value, operations


def _stat(operation):
    return Stat(getattr(operation, "version", 0) + 1, 0, 0, 0, 0)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(P, P)))
def test_moves_of_partitions(before, after):
    context, partition = make_partition(state=PartitionState(1, 1, 0, [1, 2, 3]) if before != P.NEW else None)
    partition.status = before
    if after == P.ONLINE:
        steps = partition_states.bring_online(
            context, [partition], partition_states.offline_election, RequestBatch(context)
        )
        finish(steps)
    else:
        partition_states.move([partition], after)
    assert partition.status == (after if (before, after) in PARTITION_MOVES else before)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(R, R)))
def test_moves_of_replicas(before, after):
    context, partition = make_partition(state=PartitionState(1, 1, 0, [1, 2, 3]))
    partition.replica_status[2] = before
    replica = [(partition, 2)]
    batch = RequestBatch(context)
    if after is R.NEW:
        replica_states.to_new(replica, batch)
    elif after is R.ONLINE:
        replica_states.to_online(replica, batch)
    elif after is R.OFFLINE:
        finish(replica_states.to_offline(context, replica, batch))
    elif after is R.DELETION_STARTED:
        replica_states.begin_deletion(replica, batch)
    elif after is R.NON_EXISTENT:
        replica_states.forget(context, replica)
    else:
        replica_states.mark(replica, after)
    now = partition.replica_status.get(2, R.NON_EXISTENT)
    assert now == (after if (before, after) in REPLICA_MOVES else before)
    if (before, after) not in REPLICA_MOVES:
        assert batch.take() == []


def test_a_new_partition_gets_its_nodes_and_all_live_replicas_are_in_sync():
    context, partition = make_partition(brokers=(2, 3))
    partition.status = P.NEW
    failed, operations = finish(
        partition_states.bring_online(context, [partition], partition_states.offline_election, RequestBatch(context))
    )
    assert failed == []
    assert [operation.path for operation in operations] == [
        "/brokers/topics/t/partitions",
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions/0/state",
    ]
    assert operations[-1].data == b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3]}'


def test_a_new_partition_without_live_replicas_stays_new():
    context, partition = make_partition(brokers=(4,))
    partition.status = P.NEW
    batch = RequestBatch(context)
    failed, operations = finish(
        partition_states.bring_online(context, [partition], partition_states.offline_election, batch)
    )
    assert (failed, operations, partition.status) == ([partition], [], P.NEW)
    assert batch.take() == []


def test_an_election_that_fails_writes_nothing_and_sends_nothing():
    context, partition = make_partition(brokers=(2, 3), state=PartitionState(1, 1, 4, [1]))
    partition.status = P.OFFLINE
    batch = RequestBatch(context)
    failed, operations = finish(
        partition_states.bring_online(context, [partition], partition_states.offline_election, batch)
    )
    assert (failed, operations, partition.status) == ([partition], [], P.OFFLINE)
    assert batch.take() == []


def test_an_election_begins_a_leader_epoch_and_keeps_the_recovery_state():
    context, partition = make_partition(brokers=(2, 3), state=PartitionState(1, 1, 4, [1, 2], 1))
    partition.status = P.OFFLINE
    failed, operations = finish(
        partition_states.bring_online(context, [partition], partition_states.offline_election, RequestBatch(context))
    )
    assert failed == []
    assert partition.state == PartitionState(1, 2, 5, [2], 1)
    assert operations[0].version == 0
    assert partition.partition_epoch == 1


def test_a_replica_that_leads_cannot_be_new():
    context, partition = make_partition(state=PartitionState(1, 2, 0, [1, 2, 3]))
    batch = RequestBatch(context)
    replica_states.to_new([(partition, 2)], batch)
    assert partition.replica_status[2] is R.NON_EXISTENT
    assert batch.take() == []


def test_an_offline_replica_outside_the_in_sync_replicas_costs_no_epoch():
    context, partition = make_partition(state=PartitionState(1, 1, 7, [1, 3]))
    partition.replica_status[2] = R.ONLINE
    batch = RequestBatch(context)
    _, operations = finish(replica_states.to_offline(context, [(partition, 2)], batch))
    assert operations == []
    assert partition.state.leader_epoch == 7


def test_the_last_in_sync_replica_stays_and_the_leader_is_none():
    context, partition = make_partition(state=PartitionState(1, 1, 7, [1]))
    partition.replica_status[1] = R.ONLINE
    finish(replica_states.to_offline(context, [(partition, 1)], RequestBatch(context)))
    assert partition.state == PartitionState(1, -1, 8, [1])
    partition.replica_status[1] = R.ONLINE
    _, operations = finish(replica_states.to_offline(context, [(partition, 1)], RequestBatch(context)))
    assert operations == []  # nothing is left to change
