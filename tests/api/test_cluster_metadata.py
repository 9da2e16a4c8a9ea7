"""Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator in a cluster, from the views and the broker table."""

import pytest

import odradek._ext.shm.brokers as broker_table
from odradek._ext.api.offset_commits import partition_for
from odradek.api.cluster import describe_cluster
from odradek.api.groups import find_coordinator
from odradek.api.topics import describe_topic_partitions, metadata
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_cluster as describe_cluster_schema
from odradek.protocol.schemas import describe_topic_partitions as describe_topic_partitions_schema
from odradek.protocol.schemas import find_coordinator as find_coordinator_schema
from odradek.protocol.schemas import metadata as metadata_schema
from tests.api.cluster_calls import CLIENTS, INTERNAL, ClusterCalls, broker_info
from tests.shm.one_broker import SETTINGS

VERSIONS = pytest.mark.parametrize("version", range(14))


@pytest.fixture
def cluster(tmp_path):
    calls = ClusterCalls(tmp_path)
    calls.publish_brokers(broker_info(1), broker_info(2, rack="r2"), broker_info(3, names=[INTERNAL]))
    yield calls
    calls.close()


def ask(cluster, names, version=13, *, create=False, listener=0):
    topics = None if names is None else [metadata_schema.Request.MetadataRequestTopic(name=name) for name in names]
    request = metadata_schema.Request(topics=topics, allow_auto_topic_creation=create)
    return cluster.ask(metadata.handle, request, version, listener=listener)


def only_partition(response):
    (topic,) = response.topics
    assert topic.error_code == 0
    (partition,) = topic.partitions
    return partition


@VERSIONS
def test_the_brokers_that_have_the_clients_listener_are_listed(cluster, version):
    cluster.remote("t")
    for listener, ids in ((0, [1, 2]), (1, [1, 2, 3])):
        response = ask(cluster, ["t"], version, listener=listener)
        assert [broker.node_id for broker in response.brokers] == ids
        assert {(broker.host, broker.port) for broker in response.brokers} == {(f"host-{id}", 9000 + id) for id in ids}
    assert [broker.rack for broker in response.brokers] == [None, "r2", None]


def test_the_controller_is_the_one_of_the_controllers_requests(cluster):
    assert ask(cluster, []).controller_id == -1
    broker_table.set_controller(2, 5)
    assert ask(cluster, []).controller_id == 2
    described = cluster.ask(describe_cluster.handle, describe_cluster_schema.Request(endpoint_type=1), 1)
    assert (described.controller_id, [broker.broker_id for broker in described.brokers]) == (2, [1, 2])


@VERSIONS
def test_a_partition_of_other_brokers_is_described_from_its_view(cluster, version):
    cluster.remote("t", leader_id=2, leader_epoch=9, replicas=[2, 1], in_sync=[2], offline=[1])
    partition = only_partition(ask(cluster, ["t"], version))
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 2, 9)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([2, 1], [2], [1])


@VERSIONS
@pytest.mark.parametrize("leader", [-1, 7])
def test_a_leader_that_is_not_alive_is_not_available(cluster, version, leader):
    cluster.remote("t", leader_id=leader, leader_epoch=9, replicas=[7, 2], in_sync=[7])
    partition = only_partition(ask(cluster, ["t"], version))
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.leader_epoch == 9
    assert partition.offline_replicas == [7], "the replica that is not alive"
    # the first version lists only brokers that the client can connect to
    assert (partition.replica_nodes, partition.isr_nodes) == (([2], []) if version == 0 else ([7, 2], [7]))


@VERSIONS
def test_a_leader_without_the_clients_listener(cluster, version):
    cluster.remote("t", leader_id=3, replicas=[3], in_sync=[3])
    partition = only_partition(ask(cluster, ["t"], version))
    error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.error_code, partition.leader_id, partition.offline_replicas) == (error, -1, [])
    partition = only_partition(ask(cluster, ["t"], version, listener=1))
    assert (partition.error_code, partition.leader_id) == (0, 3)


@VERSIONS
def test_a_replica_that_is_not_alive_is_an_error_only_in_the_first_version(cluster, version):
    cluster.remote("t", leader_id=2, replicas=[2, 7], in_sync=[2])
    partition = only_partition(ask(cluster, ["t"], version))
    assert partition.leader_id == 2
    if version == 0:
        assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [2])
    else:
        assert (partition.error_code, partition.replica_nodes, partition.offline_replicas) == (0, [2, 7], [7])


def test_the_table_of_brokers_is_read_again_when_it_changes(cluster):
    cluster.remote("t", leader_id=4, replicas=[4], in_sync=[4])
    assert only_partition(ask(cluster, ["t"])).leader_id == -1
    cluster.publish_brokers(broker_info(4, names=[CLIENTS]))
    assert only_partition(ask(cluster, ["t"])).leader_id == 4
    assert [broker.node_id for broker in ask(cluster, []).brokers] == [4]


def test_topics_are_invisible_until_they_are_published(cluster):
    (slot,) = cluster.remote("t")
    assert ask(cluster, None).topics == []
    (topic,) = ask(cluster, ["t"]).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = metadata_schema.Request.MetadataRequestTopic(name=None, topic_id=cluster.topics.get("t").topic_id)
    (topic,) = cluster.ask(metadata.handle, metadata_schema.Request(topics=[by_id]), 13).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    cluster.publish(slot)
    assert [topic.name for topic in ask(cluster, None).topics] == ["t"]
    cluster.publish(slot, leader_id=-2)  # the topic is being deleted
    assert ask(cluster, None).topics == []


def test_a_partition_that_becomes_local_stays_visible(cluster):
    (slot,) = cluster.remote("t", leader_id=2)
    cluster.broker.table.begin_local(slot, 0, SETTINGS)  # a new incarnation that the worker does not know yet
    assert only_partition(ask(cluster, ["t"])).leader_id == 2


@pytest.mark.parametrize("published", [True, False])
def test_a_missing_topic_is_created_and_has_no_leader_yet(cluster, published):
    def create(name):
        if published:
            cluster.remote(name)
        return name, ErrorCode.LEADER_NOT_AVAILABLE, "no leader yet"

    cluster.create_outcome = create

    (topic,) = ask(cluster, ["new"], create=True).topics
    assert cluster.created == ["new"]
    assert (topic.error_code, topic.name) == (ErrorCode.LEADER_NOT_AVAILABLE, "new")


def test_describe_topic_partitions_pages_through_published_topics(cluster):
    cluster.remote("a", 2, leader_id=3)
    cluster.remote("b")
    cluster.remote("c", leader_id=2, offline=[3])
    request = describe_topic_partitions_schema.Request(topics=[], response_partition_limit=2)
    page = cluster.ask(describe_topic_partitions.handle, request, 0)
    (topic,) = page.topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.LISTENER_NOT_FOUND] * 2
    request.cursor = describe_topic_partitions_schema.Request.Cursor(
        topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
    )
    (topic,) = cluster.ask(describe_topic_partitions.handle, request, 0).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.leader_id, partition.offline_replicas) == ("c", 2, [3])


# -- coordinators of groups -------------------------------------------------------------------------------------------


def find(cluster, group, version, *, listener=0):
    request = find_coordinator_schema.Request(key=group, coordinator_keys=[group], key_type=0)
    response = cluster.ask(find_coordinator.handle, request, version, listener=listener)
    return response.coordinators[0] if version >= 4 else response


FIND_VERSIONS = pytest.mark.parametrize("version", range(6))


@FIND_VERSIONS
def test_the_coordinator_is_the_published_leader(cluster, version):
    slots = cluster.remote(CONSUMER_OFFSETS, 4, leader_id=1)
    cluster.publish(slots[partition_for("group", 4)], leader_id=2)
    found = find(cluster, "group", version)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 2, "host-2", 9002)
    assert cluster.created == []


@FIND_VERSIONS
@pytest.mark.parametrize("leader", [-1, 3, 7])
def test_a_leader_that_the_client_cannot_reach_is_no_coordinator(cluster, version, leader):
    cluster.remote(CONSUMER_OFFSETS, 4, leader_id=leader)
    found = find(cluster, "group", version)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    if leader == 3:
        assert find(cluster, "group", version, listener=1).node_id == 3


@FIND_VERSIONS
def test_no_coordinator_is_named_while_partitions_are_unknown(cluster, version):
    slots = cluster.remote(CONSUMER_OFFSETS, 4)
    for slot in slots[:3]:
        assert find(cluster, "group", version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.publish(slot)
    assert find(cluster, "group", version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster.publish(slots[3])
    assert find(cluster, "group", version).error_code == 0


@FIND_VERSIONS
def test_the_topic_of_offsets_is_created(cluster, version):
    for outcome in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_REPLICATION_FACTOR):
        cluster.create_outcome = lambda name, outcome=outcome: (name, outcome, "why")
        found = find(cluster, "group", version)
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert cluster.created == [CONSUMER_OFFSETS] * 2


def test_published_counts_and_views(cluster):
    slots = cluster.remote("t", 2)
    topic = cluster.topics.get("t")
    assert (topic.published_count(), topic.is_published(), topic.view(0), topic.view(5)) == (0, False, None, None)
    cluster.publish(slots[1])
    assert (topic.published_count(), topic.is_published(), topic.view(0)) == (0, True, None)
    cluster.publish(slots[0], leader_id=5)
    assert (topic.published_count(), topic.view(0).leader_id) == (2, 5)
    cluster.broker.table.drop_remote(slots[0])
    assert topic.view(0) is None
