"""All metadata of committed offsets together is limited: of a group, and of the groups of a client."""

import pytest

from odradek._ext.api.offset_commits import CommittedOffset
from odradek.config.broker_config import BrokerConfig
from odradek.groups import metadata_limits
from odradek.groups.commits import Commit
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.metadata_limits import MetadataSizes
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.protocol.errors import ErrorCode
from odradek.security.owners import Client
from tests.groups.by_hand import HandTimers, OffsetsHandLog, Once
from tests.groups.test_consumer_group import FewTopics

NONE, TOO_LARGE = ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE
OF_GROUP, OF_CLIENT = 100, 250
ALICE, BOB = Client("User:alice", "10.0.0.1"), Client("User:bob", "10.0.0.1")


class Groups:
    def __init__(self, log=None):
        self.timers, self.log = HandTimers(), log or OffsetsHandLog()
        settings = GroupSettings(metadata=MetadataSizes(OF_GROUP, OF_CLIENT))
        self.coordinator = GroupCoordinator(self.timers, settings, 1, FewTopics(), ConsumerSettings(), lambda _: None)
        self.coordinator.shards.begin(0, self.log)
        self.coordinator.shards.replay(0, self.log.records)
        self.coordinator.loaded(0)

    def commit(self, group_id, sizes, client=ALICE, **transaction):
        """Commit metadata of these sizes, by partition. :param transaction: `producer`: in a transaction of this one."""
        once = Once()
        offsets = {
            ("orders", partition): CommittedOffset(5, metadata="m" * size, commit_timestamp_ms=self.timers.wall_ms())
            for partition, size in sizes.items()
        }
        commit = Commit(group_id, "", -1, None, offsets)
        if transaction:
            confirm = lambda then: then(NONE)  # noqa: E731
            self.coordinator.commit_in_transaction(commit, transaction["producer"], 0, confirm, once, client)
        else:
            self.coordinator.commit(commit, once, client)
        return once.answer

    def size(self, group_id):
        return self.coordinator.shards.find(group_id)[1].metadata_size


def test_the_metadata_of_a_group_is_limited(caplog):
    groups = Groups()
    assert groups.commit("g", {0: 60}) is NONE
    assert groups.commit("g", {1: 41}) is TOO_LARGE
    assert "10.0.0.1 (User:alice) to group g" in caplog.text
    assert "would take 101 characters, and odradek.group.offset.metadata.max.bytes allows 100" in caplog.text
    assert groups.commit("g", {1: 40}) is NONE
    assert groups.size("g") == OF_GROUP
    assert groups.commit("g", {2: 0}) is NONE, "offsets without metadata are never refused"


def test_what_a_commit_replaces_does_not_count():
    groups = Groups()
    for _ in range(20):
        assert groups.commit("g", {0: 60, 1: 40}) is NONE
    assert groups.commit("g", {0: 0, 1: 100}) is NONE
    assert groups.commit("g", {0: 1}) is TOO_LARGE
    assert groups.commit("g", {0: 5, 1: 1}) is NONE
    assert groups.size("g") == 6


def test_the_metadata_of_all_groups_of_a_client_is_limited(caplog):
    groups = Groups()
    assert [groups.commit(f"g{number}", {0: 100}) for number in range(3)] == [NONE, NONE, TOO_LARGE]
    assert "would take 300 characters, and odradek.group.offset.metadata.max.bytes.per.client allows 250" in caplog.text
    assert groups.commit("of-bob", {0: 100}, BOB) is NONE
    assert groups.commit("g2", {0: 50}) is NONE
    assert groups.commit("g0", {0: 90}) is NONE, "it grows by nothing"
    groups.timers.advance(100)  # its groups are counted again
    assert groups.commit("g2", {0: 61}) is TOO_LARGE
    assert groups.commit("g2", {0: 60}) is NONE


def test_the_pending_metadata_of_transactions_counts_until_they_end():
    groups = Groups()
    assert groups.commit("g", {0: 60}, producer=1) is NONE
    assert groups.commit("g", {0: 41}, producer=2) is TOO_LARGE
    assert groups.commit("g", {0: 40}, producer=2) is NONE
    assert groups.size("g") == 100
    transactions = groups.coordinator.shards.by_partition[0].transactions
    transactions.end(2, False)
    assert groups.size("g") == 60
    transactions.end(1, True)
    assert groups.size("g") == 60, "now it is committed"


def test_deleted_and_loaded_offsets_are_counted():
    groups = Groups()
    groups.commit("g", {0: 60, 1: 40})
    assert Groups(groups.log).size("g") == OF_GROUP
    group = groups.coordinator.shards.find("g")[1]
    group.offsets.remove("orders", 0)
    group.offsets.remove("orders", 7)
    assert groups.size("g") == 40


@pytest.mark.parametrize("key", [metadata_limits.OF_GROUP_KEY, metadata_limits.OF_CLIENT_KEY])
def test_the_limits_can_be_changed_at_run_time(key):
    config = BrokerConfig({})
    current = metadata_limits.configured(config)
    assert current() == MetadataSizes(), "the defaults of the keys are those of the class"
    assert not config.run_with({key: "7"}, {})
    assert 7 in (current().of_group, current().of_client)
