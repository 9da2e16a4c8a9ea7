"""Reassignments: phases, cancellation, replacement, progress, the node of old tools, and a controller that dies anywhere."""

import json

import pytest

from odradek.controller.cluster import in_sync, reassignment
from odradek.controller.cluster.admin import mark_and_delete
from odradek.controller.cluster.context import ReplicaStatus
from odradek.controller.cluster.effects import Write
from odradek.controller.cluster.executor import Executor
from odradek.controller.cluster.reassignment import REASSIGN_PARTITIONS, Assignment, planned, reassigned
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from tests.controller.cluster.harness import Cluster, leaders_of, metadata_of, stops_of


def with_topic(partitions=None, brokers=(1, 2, 3, 4, 5, 6)):
    cluster = Cluster(brokers).start()
    cluster.tree.create_topic("t", partitions or {0: [1, 2, 3]})
    cluster.settle()
    cluster.brokers.take()
    return cluster


def begin(cluster, target, index=0):
    partition = cluster.partition("t", index)
    assignment = planned(cluster.controller.context, partition, target)
    return cluster.run(reassignment.begin(cluster.controller.context, {partition: assignment}))


def set_in_sync(cluster, members, index=0):
    """The leader proposes in-sync replicas, as AlterPartition brings it."""
    context, partition = cluster.controller.context, cluster.partition("t", index)
    proposal = in_sync.Proposal(
        partition, partition.state.leader_epoch, partition.partition_epoch, [(member, -1) for member in members]
    )
    (verdict,) = cluster.run(in_sync.alter(context, partition.leader, [proposal], 3))
    cluster.run(in_sync.after_change(context, [partition]))
    return verdict.code


def node(cluster, index=0):
    topic = cluster.tree.topic("t")
    return (
        list(topic.partitions[index]), list(topic.adding.get(index, ())), list(topic.removing.get(index, ())),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "adding", "target", "expected"),
    [
        ([1, 2, 3], [], [4, 5, 6], Assignment([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])),
        ([1, 2, 3], [], [1, 2, 4], Assignment([1, 2, 4, 3], [4], [3])),
        ([1, 2, 3], [], [3, 2, 1], Assignment([3, 2, 1], [], [])),
        ([1, 2, 3], [], [1, 2], Assignment([1, 2, 3], [], [3])),
        ([1, 2], [], [1, 2, 3], Assignment([1, 2, 3], [3], [])),
        # a reassignment in progress is replaced: what it added is not original
        ([4, 5, 6, 1, 2, 3], [4, 5, 6], [4, 7, 8], Assignment([4, 7, 8, 1, 2, 3], [4, 7, 8], [1, 2, 3])),
        ([4, 1, 2], [4], [1, 2], Assignment([1, 2], [], [])),  # cancelled
    ],
)
def test_the_assignment_of_a_reassignment(replicas, adding, target, expected):
    assert reassigned(replicas, adding, target) == expected


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([2, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([2, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_requests_that_are_refused(target, code):
    cluster = with_topic()
    with pytest.raises(Refusal) as refusal:
        planned(cluster.controller.context, cluster.partition("t"), target)
    assert refusal.value.code == code


def test_unknown_and_deleted_partitions_and_another_factor_are_refused():
    cluster = with_topic()
    context = cluster.controller.context
    with pytest.raises(Refusal) as refusal:
        planned(context, None, [1])
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refusal) as refusal:
        planned(context, cluster.partition("t"), [1, 2], factor_may_change=False)
    assert refusal.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    context.deleting.add("t")
    with pytest.raises(Refusal) as refusal:
        planned(context, cluster.partition("t"), [1, 2])
    assert refusal.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_all_replicas_move():
    cluster = with_topic()
    assert begin(cluster, [4, 5, 6]) == {}
    assert node(cluster) == ([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])
    assert cluster.tree.summary("t") == (1, [1, 2, 3], 1)
    sent = cluster.brokers.take()
    for broker_id in (1, 2, 3):
        assert leaders_of(sent, broker_id) == {("t", 0): (1, [1, 2, 3], 1, False)}
    for broker_id in (4, 5, 6):
        assert leaders_of(sent, broker_id) == {("t", 0): (1, [1, 2, 3], 1, True)}
    assert set_in_sync(cluster, [1, 2, 3, 4, 5]) == ErrorCode.NONE
    assert node(cluster)[1] == [4, 5, 6]
    cluster.brokers.take()
    assert set_in_sync(cluster, [1, 2, 3, 4, 5, 6]) == ErrorCode.NONE
    assert node(cluster) == ([4, 5, 6], [], [])
    leader, members, epoch = cluster.tree.summary("t")
    assert (leader, members) == (4, [4, 5, 6])
    assert epoch == 3  # the new leader, then the old replicas leave
    sent = cluster.brokers.take()
    for broker_id in (1, 2, 3):
        assert [(delete) for _, _, _, delete in stops_of(sent, broker_id)] == [False, True]
        assert leaders_of(sent, broker_id) == {}
        assert metadata_of(sent, broker_id)["t", 0] == (4, [4, 5, 6], [])
    for broker_id in (4, 5, 6):
        assert leaders_of(sent, broker_id) == {("t", 0): (4, [4, 5, 6], 3, False)}
    assert cluster.controller.context.reassigning == set()
    assert cluster.partition("t").replica_status == dict.fromkeys((4, 5, 6), ReplicaStatus.ONLINE)


def test_a_leader_that_stays_keeps_the_lead():
    cluster = with_topic()
    begin(cluster, [2, 1, 4])
    set_in_sync(cluster, [1, 2, 3, 4])
    assert cluster.tree.summary("t")[:2] == (1, [1, 2, 4])
    assert node(cluster) == ([2, 1, 4], [], [])


def test_a_new_order_needs_no_move():
    cluster = with_topic()
    begin(cluster, [3, 2, 1])
    assert node(cluster) == ([3, 2, 1], [], [])
    assert cluster.tree.summary("t")[:2] == (1, [1, 2, 3])
    assert stops_of(cluster.brokers.take(), 2) == []


def test_fewer_replicas_need_no_catching_up():
    cluster = with_topic()
    begin(cluster, [2, 3])
    assert node(cluster) == ([2, 3], [], [])
    assert cluster.tree.summary("t")[:2] == (2, [2, 3])


def test_a_cancelled_reassignment_removes_what_it_added():
    cluster = with_topic()
    begin(cluster, [4, 5, 6])
    set_in_sync(cluster, [1, 2, 3, 4])
    cluster.brokers.take()
    begin(cluster, None)
    assert node(cluster) == ([1, 2, 3], [], [])
    assert cluster.tree.summary("t")[:2] == (1, [1, 2, 3])
    sent = cluster.brokers.take()
    assert [delete for *_, delete in stops_of(sent, 4)] == [False, True]
    assert cluster.controller.context.reassigning == set()


def test_a_replaced_reassignment_removes_what_only_the_first_added():
    cluster = with_topic()
    begin(cluster, [4, 5])
    cluster.brokers.take()
    begin(cluster, [5, 6])
    assert node(cluster) == ([5, 6, 1, 2, 3], [5, 6], [1, 2, 3])
    sent = cluster.brokers.take()
    assert [delete for *_, delete in stops_of(sent, 4)] == [False, True]
    assert stops_of(sent, 5) == []
    set_in_sync(cluster, [1, 2, 3, 5, 6])
    assert node(cluster) == ([5, 6], [], [])


def test_a_cancellation_that_would_delete_all_in_sync_replicas_is_refused():
    cluster = with_topic({0: [1]})
    begin(cluster, [4])
    partition = cluster.partition("t")
    partition.state = partition.state._replace(leader=4, in_sync_replicas=[4])  # the original failed meanwhile
    with pytest.raises(Refusal) as refusal:
        planned(cluster.controller.context, partition, None)
    assert refusal.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_several_partitions_of_a_topic_need_one_write_of_its_node():
    cluster = with_topic({index: [1, 2, 3] for index in range(20)})
    context = cluster.controller.context
    version = context.topics["t"].version
    changes = {
        partition: planned(context, partition, [4, 5, 6]) for partition in context.topics["t"].partitions.values()
    }  # fmt: skip
    cluster.run(reassignment.begin(context, changes))
    assert context.topics["t"].version == version + 1


def test_a_reassignment_that_waits_goes_on_when_a_target_starts():
    cluster = with_topic()
    begin(cluster, [1, 2, 4])
    cluster.tree.fail(4)
    cluster.settle()
    cluster.brokers.take()
    cluster.tree.register(4)
    cluster.settle()
    sent = cluster.brokers.take()
    assert leaders_of(sent, 4) == {("t", 0): (1, [1, 2, 3], 2, True)}  # new again: its log may be missing
    assert leaders_of(sent, 3) == {("t", 0): (1, [1, 2, 3], 2, False)}
    set_in_sync(cluster, [1, 2, 3, 4])
    assert node(cluster) == ([1, 2, 4], [], [])


def test_a_deletion_waits_for_a_reassignment():
    cluster = with_topic()
    begin(cluster, [1, 2, 4])
    cluster.tree.store.create(znodes.delete_topic_path("t"))
    cluster.settle()
    assert "t" in cluster.controller.context.topics
    assert set_in_sync(cluster, [1, 2, 3, 4]) == ErrorCode.NONE
    assert "t" not in cluster.controller.context.topics
    assert not cluster.tree.exists(znodes.topic_path("t"))


class Died(Exception):
    pass


class DyingExecutor(Executor):
    """Dies before the n-th write."""

    writes_left = 10**9

    def perform(self, effect):
        if isinstance(effect, Write):
            if self.writes_left == 0:
                raise Died
            self.writes_left -= 1
        return super().perform(effect)


@pytest.mark.parametrize("writes", range(8))
def test_a_successor_resumes_wherever_its_predecessor_died(writes):
    cluster = with_topic()
    begin(cluster, [4, 5, 6])
    executor = cluster.controller._executor
    executor.__class__ = DyingExecutor
    executor.writes_left = writes
    try:
        set_in_sync(cluster, [1, 2, 3, 4, 5, 6])
    except Died:
        pass
    cluster.failover(2)
    if cluster.controller.context.reassigning:
        set_in_sync(cluster, [1, 2, 3, 4, 5, 6])
    assert node(cluster) == ([4, 5, 6], [], [])
    leader, members, _ = cluster.tree.summary("t")
    assert leader in (4, 5, 6)
    assert sorted(members) == [4, 5, 6]
    assert cluster.controller.context.reassigning == set()


# -- the node of old tools --------------------------------------------------------------------------------------------


def legacy(cluster, *entries):
    partitions = [{"topic": topic, "partition": index, "replicas": target} for topic, index, target in entries]
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    cluster.tree.store.create(REASSIGN_PARTITIONS, data, make_parents=True)
    cluster.settle()


def test_old_tools_reassign_through_their_node():
    cluster = with_topic()
    legacy(cluster, ("t", 0, [1, 2, 4]), ("unknown", 0, [1]))
    assert node(cluster) == ([1, 2, 4, 3], [4], [3])
    assert json.loads(cluster.tree.store.get(REASSIGN_PARTITIONS)[0])["partitions"] == [
        {"topic": "t", "partition": 0, "replicas": [1, 2, 4]}
    ]
    set_in_sync(cluster, [1, 2, 3, 4])
    assert node(cluster) == ([1, 2, 4], [], [])
    assert not cluster.tree.exists(REASSIGN_PARTITIONS)
    legacy(cluster, ("t", 0, [2, 1, 4]))  # the next node is seen as well
    assert node(cluster) == ([2, 1, 4], [], [])


def test_a_successor_finds_the_node_of_old_tools():
    cluster = with_topic()
    cluster.controller.resign()
    legacy(cluster, ("t", 0, [1, 2, 4]))
    cluster.controller = cluster.make_controller(2)
    cluster.tree.zookeeper.expire(1 + 1)
    cluster.start()
    assert node(cluster) == ([1, 2, 4, 3], [4], [3])


def test_a_node_of_old_tools_that_cannot_be_decoded_is_removed():
    cluster = with_topic()
    cluster.tree.store.create(REASSIGN_PARTITIONS, b"[]", make_parents=True)
    cluster.settle()
    assert not cluster.tree.exists(REASSIGN_PARTITIONS)


def test_a_topic_can_be_deleted_after_its_reassignment():
    cluster = with_topic()
    begin(cluster, [3, 1])
    assert node(cluster) == ([3, 1], [], [])
    cluster.run(mark_and_delete(cluster.controller.context, ["t"]))
    assert not cluster.tree.exists(znodes.topic_path("t"))
