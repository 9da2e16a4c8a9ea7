"""What a broker of a cluster reads and writes in the tree itself: on a store in memory."""

import pytest

from odradek.config.broker_config import load
from odradek.controller.cluster_member import TOPICS_READ_AT_ONCE, ClusterMember
from odradek.metadata import znodes
from odradek.metadata.store import NodeError
from odradek.protocol.errors import ErrorCode
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


# -- settings -----------------------------------------------------------------------------------------------------------

ALICE = f"{znodes.USER_CONFIGS}/alice"
BILLING = znodes.quota_path("alice", "billing", None)
QUOTA = {"producer_byte_rate": "1"}


def notified(tree):
    """The entities of all notifications, in their order."""
    paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in sorted(tree.store.children(znodes.CONFIG_CHANGES))]
    return [znodes.decode_config_change(path, tree.store.get(path)[0]) for path in paths]


def stored(tree, path):
    return znodes.decode_config(path, tree.store.get(path)[0])


def test_settings_and_their_notification_are_one_transaction(tree, member, monkeypatch):
    member.write_settings(ALICE, QUOTA)
    transactions = []
    make = tree.store.transaction

    def refused():
        transaction = make().check(znodes.CONTROLLER_EPOCH, 77)  # fails, and with it everything else
        transactions.append(transaction)
        return transaction

    monkeypatch.setattr(tree.store, "transaction", refused)
    for path, settings in ((ALICE, {"producer_byte_rate": "2"}), (ALICE, {}), (BILLING, QUOTA)):
        with pytest.raises(NodeError):
            member.write_settings(path, settings, keep_empty=False)
    assert len(transactions) == 3
    assert stored(tree, ALICE) == QUOTA
    assert tree.store.exists(BILLING) is None
    assert notified(tree) == ["users/alice"]


def test_settings_that_are_stored_already_are_notified_again(tree, member):
    """The broker that stored them may have failed before it notified the others, or may not know that it did."""
    tree.create_topic("t", {0: [1]})
    applied = []
    member._apply = applied.append
    for _ in range(2):
        outcome = member.alter_topic("t", lambda _: {"retention.ms": "5"})
        assert outcome.code == ErrorCode.NONE
    assert applied == [{"t": {"retention.ms": "5"}}] * 2
    assert notified(tree) == ["topics/t"] * 2
    member.alter_topic("t", lambda _: {"retention.ms": "6"}, validate_only=True)
    assert notified(tree) == ["topics/t"] * 2


def test_quotas_that_are_deleted_already_are_notified_again(tree, member):
    member.write_settings(ALICE, {}, keep_empty=False)
    assert tree.store.exists(ALICE) is None
    assert notified(tree) == ["users/alice"]


def test_settings_of_groups_are_not_notified(tree, member):
    member.write_settings(znodes.group_config_path("g"), {"consumer.session.timeout.ms": "50000"})
    assert notified(tree) == []


def test_the_nodes_above_deleted_quotas_are_deleted_if_nothing_else_needs_them(tree, member):
    other = znodes.quota_path("alice", "other", None)
    for path in (BILLING, other):
        member.write_settings(path, QUOTA, keep_empty=False)
    member.write_settings(BILLING, {}, keep_empty=False)
    assert stored(tree, other) == QUOTA
    member.write_settings(other, {}, keep_empty=False)
    assert tree.store.exists(ALICE) is None
    assert tree.store.exists(znodes.USER_CONFIGS) is not None


def test_a_user_with_quotas_stays_without_its_client_ids(tree, member):
    member.write_settings(ALICE, QUOTA, keep_empty=False)
    member.write_settings(BILLING, QUOTA, keep_empty=False)
    member.write_settings(BILLING, {}, keep_empty=False)
    assert stored(tree, ALICE) == QUOTA
    assert tree.store.children(ALICE) == []
    member.write_settings(ALICE, {}, keep_empty=False)
    assert tree.store.exists(ALICE) is None


def test_a_user_with_client_ids_keeps_an_empty_node(tree, member):
    member.write_settings(ALICE, QUOTA, keep_empty=False)
    member.write_settings(BILLING, QUOTA, keep_empty=False)
    member.write_settings(ALICE, {}, keep_empty=False)
    assert stored(tree, ALICE) == {}
    assert stored(tree, BILLING) == QUOTA


@pytest.mark.parametrize("stored", [True, False], ids=["settings", "no settings yet"])
def test_two_brokers_that_change_settings_of_a_topic_at_the_same_time_lose_none(tree, member, stored):
    tree.create_topic("t", {0: [1]}, {"retention.ms": "5"} if stored else None)
    path = znodes.topic_config_path("t")
    if not stored:
        tree.store.delete(path)
    others = [znodes.encode_config({"segment.bytes": "1048576"})]

    def change(present):
        if others and stored:
            tree.store.set(path, others.pop())
        elif others:
            tree.store.create(path, others.pop())
        return {**present, "retention.ms": "7"}

    outcome = member.alter_topic("t", change)
    assert outcome.code == ErrorCode.NONE
    assert member.settings_of(["t"]) == {"t": {"segment.bytes": "1048576", "retention.ms": "7"}}


def test_a_change_that_others_keep_overtaking_is_refused(tree, member):
    tree.create_topic("t", {0: [1]})

    def change(present):
        tree.store.set(znodes.topic_config_path("t"), znodes.encode_config({}))
        return {**present, "retention.ms": "7"}

    assert member.alter_topic("t", change).code == ErrorCode.NOT_CONTROLLER
    assert member.settings_of(["t"]) == {"t": {}}
