"""Topics and partitions in the tree: creation by any program, additions, ids, removals."""

from odradek.metadata import znodes
from odradek.metadata.znodes import TopicAssignment
from tests.controller.cluster.harness import Cluster, leaders_of, topic_id


def rewrite(cluster, name, change):
    path = znodes.topic_path(name)
    data, stat = cluster.tree.store.get(path)
    cluster.tree.store.set(path, znodes.encode_topic(change(znodes.decode_topic(name, data))), stat.version)
    cluster.settle()


def test_added_partitions_get_leaders():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2]})
    cluster.settle()
    cluster.brokers.take()
    rewrite(cluster, "t", lambda old: old._replace(partitions={**old.partitions, 1: [3, 1]}))
    assert cluster.tree.summary("t", 1) == (3, [3, 1], 0)
    assert leaders_of(cluster.brokers.take(), 3) == {("t", 1): (3, [3, 1], 0, True)}
    assert cluster.tree.topic("t").topic_id == topic_id("t")


def test_an_old_tool_that_drops_the_topic_id_does_not_change_it():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2]})
    cluster.settle()
    rewrite(cluster, "t", lambda old: TopicAssignment(None, {**old.partitions, 1: [2, 3]}))
    assert cluster.tree.topic("t").topic_id == topic_id("t")
    assert cluster.tree.summary("t", 1) == (2, [2, 3], 0)
    assert sorted(cluster.tree.topic("t").partitions) == [0, 1]


def test_a_topic_without_an_id_gets_one_at_creation_and_at_failover():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2]}, with_id=False)
    cluster.settle()
    given = cluster.tree.topic("t").topic_id
    assert given is not None
    assert cluster.controller.context.by_id[given].name == "t"
    cluster.tree.create_topic("u", {0: [1, 2]}, with_id=False)
    cluster.failover()
    assert cluster.tree.topic("t").topic_id == given
    assert cluster.tree.topic("u").topic_id is not None


def test_the_later_look_at_a_changed_node_does_nothing_more():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2]}, with_id=False)
    cluster.settle()
    version = cluster.tree.store.exists(znodes.topic_path("t")).version
    cluster.settle()
    assert cluster.tree.store.exists(znodes.topic_path("t")).version == version == 1


def test_a_state_that_exists_already_is_kept():
    cluster = Cluster().start()
    cluster.tree.put_state("t", 0, leader=2, in_sync=[2], leader_epoch=5)  # left by a topic that was removed by hand
    cluster.tree.store.set(znodes.topic_path("t"), znodes.encode_topic(TopicAssignment(topic_id("t"), {0: [1, 2, 3]})))
    cluster.settle()
    assert cluster.tree.summary("t") == (2, [2], 6)


def test_a_partition_node_without_a_state_is_completed():
    cluster = Cluster().start()
    cluster.tree.store.create(znodes.partition_path("t", 0), make_parents=True)
    cluster.tree.store.set(znodes.topic_path("t"), znodes.encode_topic(TopicAssignment(topic_id("t"), {0: [1, 2, 3]})))
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1, 2, 3], 0)


def test_a_node_that_cannot_be_decoded_is_ignored_until_it_is_correct():
    cluster = Cluster().start()
    cluster.tree.store.create(znodes.topic_path("t"), b"{")
    cluster.settle()
    assert "t" not in cluster.controller.context.topics
    cluster.tree.store.set(znodes.topic_path("t"), znodes.encode_topic(TopicAssignment(topic_id("t"), {0: [1]})))
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1], 0)


def test_a_topic_that_another_program_removed_is_forgotten():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [9]})
    cluster.settle()
    cluster.tree.store.delete(f"{znodes.topic_path('t')}")
    cluster.settle()
    assert cluster.controller.context.topics == {}
    assert cluster.controller.context.by_id == {}


def test_many_partitions_need_several_transactions():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {index: [1, 2, 3] for index in range(700)})
    cluster.settle()
    assert cluster.tree.summary("t", 699) == (1, [1, 2, 3], 0)
    assert len(leaders_of(cluster.brokers.take(), 2)) == 700
