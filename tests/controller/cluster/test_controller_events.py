"""The controller on a store in memory: what it writes and what brokers receive, event by event."""

from tests.controller.cluster.harness import Cluster, leaders_of, metadata_of


def test_a_topic_that_any_program_writes_gets_leaders():
    cluster = Cluster().start()
    cluster.brokers.take()
    cluster.tree.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.settle()
    assert cluster.tree.summary("t", 0) == (1, [1, 2, 3], 0)
    assert cluster.tree.summary("t", 1) == (2, [2, 3, 1], 0)
    sent = cluster.brokers.take()
    for broker_id in (1, 2, 3):
        assert leaders_of(sent, broker_id) == {("t", 0): (1, [1, 2, 3], 0, True), ("t", 1): (2, [2, 3, 1], 0, True)}
        assert metadata_of(sent, broker_id) == {("t", 0): (1, [1, 2, 3], []), ("t", 1): (2, [2, 3, 1], [])}


def test_a_failed_leader_is_replaced_and_leaves_the_in_sync_replicas():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.settle()
    cluster.brokers.take()
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.tree.summary("t", 0) == (1, [1, 3], 1)
    assert cluster.tree.summary("t", 1) == (3, [3, 1], 1)
    sent = cluster.brokers.take()
    assert leaders_of(sent, 1) == {("t", 0): (1, [1, 3], 1, False), ("t", 1): (3, [3, 1], 1, False)}
    assert metadata_of(sent, 3)["t", 1] == (3, [3, 1], [2])


def test_a_deposed_controller_writes_nothing():
    cluster = Cluster().start()
    cluster.tree.create_topic("t", {0: [1, 2]})
    cluster.settle()
    zombie = cluster.controller
    session = zombie._store.session.id
    zombie._queue.clear()  # it is paused: it will not see that its node was deleted
    zookeeper = cluster.tree.zookeeper
    zookeeper.expire(session)
    zombie._queue.clear()
    zookeeper.sessions.add(session)  # it believes in its session until the server answers
    cluster.controller = cluster.make_controller(2)
    cluster.start()
    written = len(zookeeper.log)
    cluster.tree.fail(1)
    zombie.process()
    assert not zombie.active
    assert zombie.controller_id == 2
    assert session not in [writer for writer, _ in zookeeper.log[written:]]
    cluster.settle()
    assert cluster.tree.summary("t") == (2, [2], 1)
