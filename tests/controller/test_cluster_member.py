"""What a broker of a cluster reads and writes in the tree itself: on a store in memory."""

import pytest

from odradek.config.broker_config import load
from odradek.controller.cluster_member import TOPICS_READ_AT_ONCE, ClusterMember
from odradek.metadata import znodes
from tests.controller.cluster.harness import Tree


@pytest.fixture
def tree():
    return Tree()


@pytest.fixture
def member(tree):
    return ClusterMember(tree.store, load(None, ["broker.id=1"]), lambda _: None, lambda: None)


def test_a_cluster_without_topics_has_no_partitions(member):
    assert not member.has_partitions()


def test_a_partition_counts_as_soon_as_it_had_a_leader(tree, member):
    tree.create_topic("t", {0: [7]})
    assert not member.has_partitions(), "no controller publishes a partition that never had a leader"
    tree.put_state("t", 0, -1, [7])
    assert member.has_partitions()


def test_a_topic_that_is_being_deleted_does_not_count(tree, member):
    tree.create_topic("t", {0: [1]})
    tree.put_state("t", 0, 1, [1])
    tree.store.create(znodes.delete_topic_path("t"), b"")
    assert not member.has_partitions()
    tree.create_topic("u", {0: [1]})
    tree.put_state("u", 0, 1, [1])
    assert member.has_partitions()


def test_the_last_of_many_topics_counts(tree, member):
    for number in range(TOPICS_READ_AT_ONCE + 1):
        tree.create_topic(f"t{number:04}", {0: [1]})
    assert not member.has_partitions()
    tree.put_state(f"t{TOPICS_READ_AT_ONCE:04}", 0, 1, [1])
    assert member.has_partitions()
