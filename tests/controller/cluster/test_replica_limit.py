"""The largest number of replicas of a partition: every request that would exceed it is refused and names it."""

import pytest

from odradek._ext.shm.brokers import MOST_REPLICAS
from odradek.config.broker_config import load
from odradek.controller.cluster.admin import ClusterAdmin, Reassignment
from odradek.controller.cluster_member import ClusterMember
from odradek.controller.topics import NewPartitions, NewTopic
from odradek.protocol.errors import ErrorCode as E
from tests.controller.cluster.harness import Cluster

BROKERS = range(1, 42)
MANY, TOO_MANY = list(range(1, MOST_REPLICAS + 1)), list(range(1, MOST_REPLICAS + 2))


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(BROKERS, prompt=False).start()
    cluster.tree.create_topic("wide", {0: TOO_MANY})
    cluster.tree.create_topic("t", {0: MANY})
    cluster.tree.create_topic("moving", {0: TOO_MANY[-2:]})
    cluster.settle()
    cluster.admin = ClusterAdmin(cluster.controller, load(None, ["broker.id=1"]))
    return cluster


def topic(**request):
    return lambda cluster: [
        (o.code, o.message) for o in cluster.admin.create_topics([NewTopic("new", **request)], True)
    ]


def partitions(*request):
    return lambda cluster: [
        (o.code, o.message) for o in cluster.admin.create_partitions([NewPartitions(*request)], True)
    ]


def reassign(name, replicas):
    return lambda cluster: cluster.admin.alter_reassignments([Reassignment(name, 0, replicas)])


def created_by_use(factor):
    def create(cluster):
        config = load(None, ["broker.id=1", f"default.replication.factor={factor}"])
        member = ClusterMember(cluster.tree.store, config, lambda _: None, lambda: None)
        (outcome,) = member.auto_create([f"used{factor}"])
        return [(E.NONE if outcome.code == E.LEADER_NOT_AVAILABLE else outcome.code, outcome.message)]

    return create


@pytest.mark.parametrize(
    ("request_of", "replicas"),
    [
        (topic(num_partitions=1, replication_factor=MOST_REPLICAS + 1), MOST_REPLICAS + 1),
        (topic(num_partitions=1, replication_factor=41), 41),
        (topic(assignments=[(0, TOO_MANY)]), MOST_REPLICAS + 1),
        (partitions("wide", 2), MOST_REPLICAS + 1),
        (partitions("wide", 2, [TOO_MANY]), MOST_REPLICAS + 1),
        (reassign("t", TOO_MANY), MOST_REPLICAS + 1),
        (reassign("moving", MANY), MOST_REPLICAS + 1),  # with the replica that it removes
        (created_by_use(MOST_REPLICAS + 1), MOST_REPLICAS + 1),
    ],
)
def test_more_replicas_are_refused(cluster, request_of, replicas):
    ((code, message),) = request_of(cluster)
    assert code == E.INVALID_REPLICATION_FACTOR
    assert f" is {replicas}: " in message
    assert f"at most {MOST_REPLICAS} replicas" in message


@pytest.mark.parametrize(
    "request_of",
    [
        topic(num_partitions=1, replication_factor=MOST_REPLICAS),
        topic(assignments=[(0, MANY)]),
        partitions("t", 2),
        partitions("t", 2, [MANY]),
        reassign("t", MANY[::-1]),
        reassign("wide", MANY[:-1]),
        created_by_use(MOST_REPLICAS),
    ],
)
def test_as_many_replicas_as_possible_are_accepted(cluster, request_of):
    ((code, message),) = request_of(cluster)
    assert code == E.NONE, message
