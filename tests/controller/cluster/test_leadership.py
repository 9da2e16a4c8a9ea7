"""Requested elections, the balance of leaders, failed log directories, and producer ids."""

import json

import pytest

from odradek.controller.cluster import leadership, producer_id_blocks
from odradek.controller.cluster.leadership import PREFERRED, PREFERRED_REPLICA_ELECTION, UNCLEAN, imbalanced
from odradek.controller.cluster.log_dirs import LOG_DIR_EVENTS
from odradek.controller.producer_ids import MAX_PRODUCER_ID
from odradek.metadata import znodes
from odradek.metadata.znodes import PartitionState, ProducerIdBlock, TopicAssignment
from odradek.protocol.errors import ErrorCode as E
from tests.controller.cluster.harness import Cluster, leaders_of, make_context, metadata_of, topic_id


def with_topic(partitions=None):
    cluster = Cluster().start()
    cluster.tree.create_topic("t", partitions or {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.settle()
    cluster.brokers.take()
    return cluster


def rejoin(cluster, name="t"):
    for partition in cluster.controller.context.topics[name].partitions.values():
        partition.state = partition.state._replace(in_sync_replicas=list(partition.replicas))
        cluster.tree.put_state(
            name, partition.index, partition.leader, partition.replicas, partition.state.leader_epoch
        )
        partition.partition_epoch += 1


def elect(cluster, keys, election_type=PREFERRED):
    found = [cluster.controller.context.find(*key) for key in keys]
    return cluster.run(leadership.elect(cluster.controller.context, found, election_type))


def test_a_preferred_leader_leads_again():
    cluster = with_topic()
    cluster.tree.bounce(1)
    cluster.settle()
    assert cluster.tree.summary("t") == (2, [2, 3], 1)
    assert elect(cluster, [("t", 0)]) == [E.PREFERRED_LEADER_NOT_AVAILABLE]  # not in sync yet
    rejoin(cluster)
    cluster.brokers.take()
    assert elect(cluster, [("t", 0), ("t", 1), ("t", 7)]) == [
        E.NONE,
        E.ELECTION_NOT_NEEDED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.tree.summary("t") == (1, [1, 2, 3], 2)
    assert leaders_of(cluster.brokers.take(), 3) == {("t", 0): (1, [1, 2, 3], 2, False)}


def test_topics_in_deletion_are_not_elected():
    cluster = with_topic()
    cluster.controller.context.deleting.add("t")
    assert elect(cluster, [("t", 0)]) == [E.INVALID_TOPIC_EXCEPTION]


def test_an_operator_can_elect_a_leader_that_is_not_in_sync():
    cluster = with_topic({0: [1, 2]})
    cluster.tree.fail(2)
    cluster.settle()
    cluster.tree.fail(1)
    cluster.settle()
    assert elect(cluster, [("t", 0)], UNCLEAN) == [E.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.tree.register(2)
    cluster.settle()
    assert cluster.tree.summary("t")[0] == -1
    assert elect(cluster, [("t", 0)], UNCLEAN) == [E.NONE]
    assert cluster.tree.summary("t")[:2] == (2, [2])
    assert cluster.tree.state("t").leader_recovery_state == 1
    assert elect(cluster, [("t", 0)], UNCLEAN) == [E.ELECTION_NOT_NEEDED]


def test_old_tools_elect_preferred_leaders_through_their_node():
    cluster = with_topic()
    cluster.tree.bounce(1)
    cluster.settle()
    rejoin(cluster)
    data = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}).encode()
    cluster.tree.store.create(PREFERRED_REPLICA_ELECTION, data)
    cluster.settle()
    assert cluster.tree.summary("t")[0] == 1
    assert not cluster.tree.exists(PREFERRED_REPLICA_ELECTION)
    cluster.tree.store.create(PREFERRED_REPLICA_ELECTION, b"?")
    cluster.settle()
    assert not cluster.tree.exists(PREFERRED_REPLICA_ELECTION)


@pytest.mark.parametrize(
    ("elsewhere", "percentage", "expected"),
    [(0, 0, 0), (1, 0, 1), (1, 9, 1), (1, 10, 0), (2, 10, 2), (10, 99, 10), (10, 100, 0)],
)
def test_leaders_are_moved_back_above_a_percentage(elsewhere, percentage, expected):
    context = make_context((1, 2))
    topic = context.add_topic("t", TopicAssignment(topic_id("t"), {index: [1, 2] for index in range(10)}), 0)
    for partition in topic.partitions.values():
        partition.state = PartitionState(1, 2 if partition.index < elsewhere else 1, 0, [1, 2])
    assert len(imbalanced(context, percentage)) == expected


def test_leaders_are_not_moved_where_it_is_futile():
    context = make_context((1, 2))
    topic = context.add_topic("t", TopicAssignment(topic_id("t"), {0: [1, 2], 1: [1, 2], 2: [3, 2], 3: [1, 2]}), 0)
    for index, members in ((0, [1, 2]), (1, [2]), (2, [2, 3])):
        topic.partitions[index].state = PartitionState(1, 2, 0, members)
    assert imbalanced(context, 10) == [topic.partitions[0]]
    context.reassigning.add(topic.partitions[1])
    assert imbalanced(context, 10) == []


def test_the_balance_is_restored_only_if_it_is_enabled():
    cluster = with_topic()
    cluster.tree.bounce(1)
    cluster.settle()
    rejoin(cluster)
    cluster.settings.rebalance_enabled = False
    cluster.controller.rebalance()
    assert cluster.tree.summary("t")[0] == 2
    cluster.settings.rebalance_enabled = True
    cluster.controller.rebalance()
    assert cluster.tree.summary("t")[0] == 1


# -- log directories --------------------------------------------------------------------------------------------------


def report(cluster, broker_id):
    data = json.dumps({"version": 1, "broker": broker_id, "event": 1}).encode()
    cluster.tree.store.create(f"{LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)
    cluster.settle()


def test_replicas_in_a_failed_log_directory_go_offline_and_come_back_with_their_broker():
    cluster = with_topic()
    cluster.brokers.failing[1, "t", 0] = E.KAFKA_STORAGE_ERROR
    report(cluster, 1)
    assert cluster.tree.summary("t", 0) == (2, [2, 3], 1)
    assert cluster.tree.summary("t", 1) == (2, [2, 3, 1], 0)  # in another directory
    assert cluster.tree.store.children(LOG_DIR_EVENTS) == []
    sent = cluster.brokers.take()
    assert metadata_of(sent, 3)["t", 0] == (2, [2, 3], [1])
    assert cluster.controller.context.offline_dirs == {1: {cluster.partition("t", 0)}}
    cluster.brokers.failing.clear()
    cluster.tree.bounce(1)
    cluster.settle()
    assert cluster.controller.context.offline_dirs == {}
    assert metadata_of(cluster.brokers.take(), 3)["t", 0] == (2, [2, 3], [])


def test_a_successor_learns_of_failed_log_directories_from_the_answers():
    cluster = with_topic()
    cluster.brokers.failing[1, "t", 0] = E.KAFKA_STORAGE_ERROR
    cluster.failover(2)
    assert cluster.tree.summary("t", 0) == (2, [2, 3], 1)


def test_a_report_that_cannot_be_decoded_is_removed():
    cluster = with_topic()
    cluster.tree.store.create(f"{LOG_DIR_EVENTS}/log_dir_event_", b"{}", sequential=True)
    cluster.settle()
    assert cluster.tree.store.children(LOG_DIR_EVENTS) == []


# -- producer ids -----------------------------------------------------------------------------------------------------


def allocate(cluster, broker_id, epoch=None):
    context = cluster.controller.context
    epoch = context.brokers[broker_id].epoch if epoch is None else epoch
    return cluster.run(producer_id_blocks.allocate(context, broker_id, epoch))


def test_blocks_do_not_overlap_also_across_a_failover():
    cluster = with_topic()
    assert allocate(cluster, 1) == (E.NONE, ProducerIdBlock(1, 0, 999))
    assert allocate(cluster, 2) == (E.NONE, ProducerIdBlock(2, 1000, 1999))
    cluster.failover(2)
    assert allocate(cluster, 3) == (E.NONE, ProducerIdBlock(3, 2000, 2999))


def test_only_the_present_incarnation_of_a_registered_broker_gets_a_block():
    cluster = with_topic()
    assert allocate(cluster, 1, epoch=0) == (E.STALE_BROKER_EPOCH, None)
    assert allocate(cluster, 9, epoch=0) == (E.BROKER_ID_NOT_REGISTERED, None)


LAST_BLOCK = znodes.encode_producer_id_block(ProducerIdBlock(1, MAX_PRODUCER_ID - 999, MAX_PRODUCER_ID))


@pytest.mark.parametrize("data", [LAST_BLOCK, b"garbage", b"[]", b'{"block_end": 1e999}'], ids=str)
def test_a_block_node_without_a_next_block_fails_the_request_alone(data):
    cluster = with_topic()
    context = cluster.controller.context
    cluster.tree.store.set(znodes.PRODUCER_ID_BLOCK, data)
    assert allocate(cluster, 1) == (E.UNKNOWN_SERVER_ERROR, None)
    assert cluster.controller.context is context
