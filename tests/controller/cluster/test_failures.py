"""What the store refuses while the connection is up, and errors of the code: the controller goes on, or begins again itself."""

import pytest

from odradek.config.broker_config import load
from odradek.controller.cluster import cluster_controller
from odradek.controller.cluster.admin import ClusterAdmin, Reassignment
from odradek.controller.cluster.leadership import PREFERRED
from odradek.controller.topics import NewPartitions, NewTopic
from odradek.metadata import znodes
from odradek.metadata.store import (
    NotPermitted,
    OutcomeUnknown,
    OverLimit,
    StoreError,
    StoreUnavailable,
    TooLarge,
)
from odradek.protocol.errors import ErrorCode as E
from tests.controller.cluster.harness import Cluster

RETRY_S, REFUSED_RETRY_S = cluster_controller.RETRY_S, cluster_controller.REFUSED_RETRY_S


class Failing(Cluster):
    """A cluster whose store fails on request. ``again``: the delays after which the controller wants to begin again."""

    def __init__(self):
        self.again = []
        self.errors = {}  # path -> the error that every call about it raises
        super().__init__()
        self.controller._again = self.again.append
        client = self.controller._store
        get_many, apply = client.get_many, client._apply

        def fail(paths):
            for path in paths:
                if path in self.errors:
                    raise self.errors[path]

        def failing_get_many(paths, watch=None):
            fail(paths)
            return get_many(paths, watch)

        def failing_apply(*operations):
            fail(operation[1] for operation in operations)
            return apply(*operations)

        client.get_many, client._apply = failing_get_many, failing_apply
        self.admin = ClusterAdmin(self.controller, load(None, ["broker.id=1"]))
        self.start()
        self.tree.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
        self.settle()
        assert not self.again

    def begin_again(self):
        self.again.clear()
        self.controller.begin_again()
        self.settle()


REQUESTS = {
    "create a topic": lambda admin: admin.create_topics([NewTopic("new", 1, 2)]),
    "create partitions": lambda admin: admin.create_partitions([NewPartitions("t", 3)]),
    "delete a topic": lambda admin: admin.delete_topics(["t"]),
    "reassign": lambda admin: admin.alter_reassignments([Reassignment("t", 0, [3, 2])]),
    "elect": lambda admin: admin.elect_leaders([("t", 0)], PREFERRED),
    "shut down": lambda admin: admin.controlled_shutdown(1, admin._context().brokers[1].epoch),
    "producer ids": lambda admin: admin.allocate_producer_ids(1, admin._context().brokers[1].epoch),
}
"""The requests that run a machine which writes."""


def request(cluster, name):
    try:
        REQUESTS[name](cluster.admin)
    except Exception as error:
        return error
    return None


def fail_all(cluster, error):
    """Every call fails from now on."""
    client = cluster.controller._store
    client.before_call = lambda: (_ for _ in ()).throw(error)


LOST = [
    StoreUnavailable("away"),
    OutcomeUnknown("perhaps"),
    StoreError("another"),
    RuntimeError("an error of the code"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "elect"])
def test_after_a_failed_request_the_controller_begins_again_by_itself(name, error):
    cluster = Failing()
    fail_all(cluster, error)
    request(cluster, name)
    assert not cluster.controller.active
    assert cluster.again == [RETRY_S]
    cluster.controller._store.before_call = lambda: None
    cluster.begin_again()
    assert cluster.controller.active
    assert not cluster.again
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.tree.state("t", 1).leader != 2


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("look", ["look", "reconnected", "process", "rebalance", "unclean_elections_changed"])
def test_a_failed_look_is_repeated_by_itself(look, error):
    cluster = Failing()
    cluster.tree.put_state("t", 0, -1, [1], leader_epoch=5)
    cluster.controller.reconnected()
    cluster.tree.create_topic("more", {0: [1]})  # work for `process`
    cluster.controller.context.find("t", 0).status = cluster.controller.context.find("t", 0).status.OFFLINE
    cluster.controller.context.find("t", 1).state = cluster.controller.context.find("t", 1).state._replace(leader=3)
    cluster.settings.imbalance_percentage = 0
    fail_all(cluster, error)
    with pytest.raises(type(error)):
        getattr(cluster.controller, look)()
    assert not cluster.controller.active
    assert set(cluster.again) == {RETRY_S}
    cluster.controller._store.before_call = lambda: None
    cluster.begin_again()
    assert cluster.controller.active


REFUSED = [NotPermitted("no right"), OverLimit("quota"), TooLarge("too large")]


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_refused_change_fails_alone(name, error):
    cluster = Failing()
    context = cluster.controller.context
    for path in ("/brokers/topics/new", "/brokers/topics/t", "/admin/delete_topics/t", znodes.PRODUCER_ID_BLOCK):
        cluster.errors[path] = error
    assert request(cluster, name) is None
    assert cluster.controller.context is context
    cluster.errors.clear()
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.tree.state("t", 1).leader != 2


@pytest.mark.parametrize("error", REFUSED[:2], ids=lambda error: type(error).__name__)
def test_what_the_store_refused_to_an_event_is_done_when_it_permits_it(error):
    cluster = Failing()
    cluster.errors[znodes.state_path("t", 0)] = error
    cluster.tree.fail(1)
    cluster.settle()
    assert cluster.tree.summary("t", 0)[0] == 1
    assert cluster.tree.state("t", 1).in_sync_replicas == [2, 3]  # others are served
    assert set(cluster.again) == {REFUSED_RETRY_S}
    cluster.begin_again()
    assert set(cluster.again) == {REFUSED_RETRY_S}  # it is still refused
    cluster.errors.clear()
    cluster.begin_again()
    assert not cluster.again
    assert cluster.tree.summary("t", 0)[0] == 2


def test_begin_again_does_nothing_if_everything_was_read_again_since():
    cluster = Failing()
    context = cluster.controller.context
    cluster.controller.begin_again()
    assert cluster.controller.context is context


def test_a_topic_whose_node_is_too_large_is_refused_before_anything_else():
    cluster = Failing()
    context, number = cluster.controller.context, cluster.tree.zookeeper.number
    for validate_only in (True, False):
        (outcome,) = cluster.admin.create_topics([NewTopic("large", 65_000, 3)], validate_only)
        assert outcome.code == E.INVALID_PARTITIONS
        assert "65000 partitions" in outcome.message
        assert "1000000 bytes" in outcome.message
    (outcome,) = cluster.admin.create_partitions([NewPartitions("t", 65_000)])
    assert outcome.code == E.INVALID_PARTITIONS
    assert cluster.controller.context is context
    assert cluster.tree.zookeeper.number == number


def test_settings_that_are_too_large_are_refused_by_their_size():
    cluster = Failing()
    configs = [("leader.replication.throttled.replicas", ",".join(f"{index}:1" for index in range(150_000)))]
    (outcome,) = cluster.admin.create_topics([NewTopic("large", 1, 1, configs=configs)])
    assert outcome.code == E.INVALID_CONFIG
    assert "1000000 bytes" in outcome.message


def test_a_reassignment_that_makes_the_node_too_large_says_so():
    cluster = Failing()
    cluster.errors[znodes.topic_path("t")] = TooLarge("a change of /brokers/topics/t needs 1000001 bytes")
    ((code, message),) = cluster.admin.alter_reassignments([Reassignment("t", 0, [3, 2])])
    assert code == E.INVALID_REPLICA_ASSIGNMENT
    assert "1000001 bytes" in message
    assert cluster.partition("t").replicas == [1, 2, 3]
