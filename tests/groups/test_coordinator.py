"""Groups and their log: pending commits, loads, and heartbeats that create no group."""

from dataclasses import replace

import pytest

from odradek.groups.classic_member import JoinRequest
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.migration import batch_bytes
from odradek.groups.offsets import CommittedOffset, offset_record
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import group_records
from odradek.quotas.new_names import GROUPS
from tests.groups.by_hand import HandLog, HandTimers, Once
from tests.groups.test_consumer_group import FewTopics
from tests.groups.test_migration import SESSION_MS, GroupsUnderTest, assignment

DAY_MS = 86_400_000


def commit(coordinator, offset=5, group="g", **fields):
    once = Once()
    place = {("orders", 0): CommittedOffset(offset, commit_timestamp_ms=coordinator.timers.wall_ms())}
    coordinator.groups.commit(
        Commit(group, fields.pop("member_id", ""), fields.pop("generation", -1), None, place, **fields), once
    )
    return once


def committed(coordinator):
    error, offsets = coordinator.groups.fetch("g")
    assert error is ErrorCode.NONE
    stored = offsets.get("orders", 0)
    return None if stored is None else stored.offset


def test_a_group_does_not_expire_during_its_first_commit():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    first = commit(coordinator)
    coordinator.groups.expire()
    assert first.waits
    coordinator.log.acknowledge()
    assert first.answer is ErrorCode.NONE
    assert committed(coordinator) == 5


def test_a_group_with_a_pending_commit_is_not_deleted():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    commit(coordinator)
    deleted = Once()
    coordinator.groups.delete("g", deleted)
    assert deleted.answer is ErrorCode.NON_EMPTY_GROUP
    coordinator.log.acknowledge()
    assert committed(coordinator) == 5


def test_the_second_of_two_deletions_does_not_delete_the_next_group_of_that_name():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.beat("a", -1)
    assert commit(coordinator).answer is ErrorCode.NONE
    log = coordinator.log
    log.held = True
    first, second = Once(), Once()
    coordinator.groups.delete("g", first)
    coordinator.groups.delete("g", second)
    records, then = log.waiting.pop(0)
    log.records += records
    then(ErrorCode.NONE)
    joined = Once()
    coordinator.groups.members.beat(
        "g", HeartbeatRequest("b", 0, topics=("orders",), rebalance_timeout_ms=30_000, owned=frozenset()), joined
    )
    log.acknowledge()
    assert first.answer is ErrorCode.NONE
    assert second.answer is ErrorCode.GROUP_ID_NOT_FOUND
    assert joined.answer.error is ErrorCode.NONE
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, log.records)
    after.groups.loaded(0)
    assert list(after.group().protocol.members) == ["b"]


def test_a_subscription_that_is_too_large_for_a_generation_is_refused():
    coordinator = GroupsUnderTest()
    most = coordinator.groups.shards.settings.max_member_bytes
    join = JoinRequest("", 10_000, 10_000, "consumer", [("range", bytes(most - 5))])
    refused, taken = Once(), Once()
    coordinator.groups.members.join("g", join._replace(protocols=[*join.protocols, ("roundrobin", b"")]), refused)
    assert refused.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.groups.shards.find("g") == (ErrorCode.NONE, None)
    coordinator.groups.members.join("g", join, taken)
    assert taken.answer.error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_failed_commit_keeps_the_former_offset():
    coordinator = GroupsUnderTest()
    assert commit(coordinator).answer is ErrorCode.NONE
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(coordinator, 6).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(coordinator) == 5
    coordinator.log.failing = None
    assert coordinator.groups.expire() == 0
    assert committed(coordinator) == 5


def test_a_commit_to_an_unknown_group_gets_an_error_that_the_version_knows():
    coordinator = GroupsUnderTest()
    assert commit(coordinator, generation=1, member_id="m").answer is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(coordinator, generation=1, member_id="m", knows_epochs=False).answer is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.group() is None


def test_offsets_expire_a_retention_after_their_commit_and_the_group_with_them():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.timers.advance(7 * DAY_MS - 1)
    assert coordinator.groups.expire() == 0
    coordinator.timers.advance(1)
    assert coordinator.groups.expire() == 1
    assert coordinator.group() is None
    assert successor(coordinator).group() is None


def test_offsets_of_a_deleted_topic_are_removed_from_memory_and_log():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.groups.topics_deleted(["orders"])
    assert committed(coordinator) is None
    assert successor(coordinator).group() is None


def loaded_again(coordinator, records):
    """Reload the partition, as after a failed append."""
    coordinator.groups.shards.begin(0, coordinator.log)
    coordinator.groups.shards.replay(0, records)
    coordinator.groups.loaded(0)


def test_a_pending_commit_is_deleted_with_its_topic():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    once = commit(coordinator)
    coordinator.groups.topics_deleted(["orders"])
    coordinator.log.acknowledge()
    assert once.answer is ErrorCode.NONE
    assert committed(coordinator) is None
    assert successor(coordinator).group() is None


def test_a_recreated_topic_accepts_commits_after_the_old_offsets_are_deleted():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.log.held = True
    coordinator.groups.topics_deleted(["orders"])
    refused = commit(coordinator, 9)
    assert refused.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.acknowledge()
    coordinator.log.held = False
    assert commit(coordinator, 9).answer is ErrorCode.NONE
    assert committed(coordinator) == committed(successor(coordinator)) == 9


def test_a_failed_deletion_of_offsets_is_retried():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.groups.topics_deleted(["orders"])
    coordinator.timers.advance(10_000)
    assert committed(coordinator) is None
    assert len(coordinator.group().offsets) == 1
    assert commit(coordinator, 9).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.failing = None
    assert commit(coordinator, 9).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.timers.advance(1_000)
    assert committed(coordinator) is None
    assert successor(coordinator).group() is None
    assert commit(coordinator, 9).answer is ErrorCode.NONE


class SmallBatches(HandLog):
    """A log that refuses batches larger than `most` bytes, as a partition does."""

    most = GroupSettings().max_member_bytes

    def append(self, records, then, late=None):
        if batch_bytes(records) > self.most:
            then(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        else:
            super().append(records, then, late)


def test_tombstones_of_offsets_fit_in_batches_whatever_the_length_of_the_group_id():
    settings = GroupSettings(initial_rebalance_delay_ms=0, names=replace(GROUPS, length=32_767))
    coordinator, group = GroupsUnderTest(settings), "g" * 20_000
    coordinator.groups.shards.resign(0)
    coordinator.log = SmallBatches()
    coordinator.groups.shards.begin(0, coordinator.log)
    coordinator.groups.loaded(0)
    for partition in range(100):
        once = Once()
        coordinator.groups.commit(Commit(group, "", -1, None, {("orders", partition): CommittedOffset(5)}), once)
        assert once.answer is ErrorCode.NONE
    coordinator.groups.topics_deleted(["orders"])
    assert len(coordinator.groups.shards.find(group)[1].offsets) == 0
    assert len([None for _, value in coordinator.log.records if value is None]) == 100
    assert commit(coordinator, 9, group).answer is ErrorCode.NONE


def test_a_load_deletes_offsets_whose_deletion_failed_before():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    records = list(coordinator.log.records)
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.groups.topics_deleted(["orders"])
    coordinator.log.failing = None
    loaded_again(coordinator, records)
    assert committed(coordinator) is None
    assert commit(coordinator, 9).answer is ErrorCode.NONE
    coordinator.timers.advance(10_000)
    assert committed(coordinator) == 9


def test_a_topic_deleted_between_a_failed_append_and_the_load_loses_its_offsets():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    commit(coordinator)
    (written, then), *_ = coordinator.log.waiting
    coordinator.log.waiting.clear()
    coordinator.log.held, coordinator.log.failing = False, ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.beat("a", 0, group="h").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.diverged == [0]
    then(ErrorCode.NOT_COORDINATOR)  # the log is closed; the log has the record all the same
    coordinator.groups.topics_deleted(["orders"])
    coordinator.log.failing = None
    loaded_again(coordinator, written)
    assert committed(coordinator) is None


def test_a_new_coordinator_deletes_offsets_of_missing_topics():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    after = Successor(coordinator, topics={"other": 1})
    assert after.groups.fetch("g")[1].get("orders", 0) is None
    assert after.log.records[0] == offset_record("g", "orders", 0, None)


def test_a_topic_created_during_a_load_does_not_get_the_offsets_of_its_predecessor():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    after = GroupsUnderTest()
    del after.topics.counts["orders"]
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records)
    after.topics.counts["orders"] = 4
    after.groups.loaded(0)
    assert committed(after) is None
    assert commit(after, 9).answer is ErrorCode.NONE
    assert committed(after) == 9


def test_a_repeated_load_keeps_the_offsets_of_topics_created_since_the_first_load():
    coordinator = GroupsUnderTest()
    coordinator.topics.counts["newer"] = 1
    once = Once()
    coordinator.groups.commit(Commit("g", "", -1, None, {("newer", 0): CommittedOffset(3)}), once)
    records = list(coordinator.log.records)
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.beat("a", 0, group="h")
    coordinator.log.failing = None
    loaded_again(coordinator, records)
    assert coordinator.groups.fetch("g")[1].get("newer", 0).offset == 3


def test_offsets_that_cannot_be_deleted_are_reported_until_they_are():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.timers.advance(7 * DAY_MS)
    coordinator.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(2):
        assert coordinator.groups.expire() == 1
        (reason,) = coordinator.groups.not_expired().values()
        assert reason == "cannot write the tombstones of expired offsets: NOT_ENOUGH_REPLICAS"
    coordinator.log.failing = None
    coordinator.groups.expire()
    assert coordinator.groups.not_expired() == {}
    assert coordinator.group() is None


def test_an_offset_with_a_pending_commit_does_not_expire():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.timers.advance(8 * DAY_MS)
    coordinator.log.held = True
    again = commit(coordinator, 6)
    assert coordinator.groups.expire() == 0
    coordinator.log.acknowledge()
    assert again.answer is ErrorCode.NONE
    assert committed(coordinator) == committed(successor(coordinator)) == 6


class Successor:
    """A coordinator that loads the log of another. :param pause_ms: duration of the load."""

    def __init__(self, coordinator, pause_ms=0, topics=None):
        self.timers, known = HandTimers(), FewTopics()
        known.counts = known.counts if topics is None else topics
        self.log = HandLog()
        self.groups = GroupCoordinator(
            self.timers, GroupSettings(), 1, known, coordinator.groups.shards.consumer_settings, lambda _: None
        )
        self.groups.shards.begin(0, self.log)
        self.groups.shards.replay(0, coordinator.log.records)
        self.timers.advance(pause_ms)
        self.groups.loaded(0)

    def group(self):
        return self.groups.shards.find("g")[1]


def successor(coordinator, pause_ms=0):
    return Successor(coordinator, pause_ms)


def test_a_long_load_expels_no_member():
    coordinator = GroupsUnderTest()
    me = coordinator.join().answer
    coordinator.sync(me.member_id, me.generation_id, {me.member_id: assignment(0)})
    after = successor(coordinator, 10 * SESSION_MS)
    assert after.groups.members.heartbeat("g", me.member_id, me.generation_id, None) is ErrorCode.NONE
    after.timers.advance(SESSION_MS)
    assert after.groups.members.heartbeat("g", me.member_id, me.generation_id, None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_heartbeat_creates_no_group_and_changes_no_protocol():
    coordinator = GroupsUnderTest()
    answer = Once()
    coordinator.groups.members.beat(
        "g", HeartbeatRequest("m", 0, rebalance_timeout_ms=1, topics=("orders",), assignor="no-such"), answer
    )
    assert answer.answer.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert coordinator.group() is None
    me = coordinator.join().answer
    answer = Once()
    coordinator.groups.members.beat("g", HeartbeatRequest("m", 0, rebalance_timeout_ms=1, pattern="("), answer)
    assert answer.answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert coordinator.group().type_name == "classic"
    assert me.member_id in coordinator.group().classic.members


def test_the_directly_encoded_offset_record_equals_that_of_the_schema():
    kind = group_records.OFFSET_COMMIT
    for group, topic, partition, committed_offset in (
        ("g", "orders", 0, CommittedOffset(5)),
        ("gr\u00fcn", "o", 2**31 - 1, CommittedOffset(2**62, 7, "\u00e9 note", 1_700_000_000_000)),
        ("", "t", 3, CommittedOffset(-1, -1, "", -1)),
    ):
        value = kind.value(
            offset=committed_offset.offset,
            leader_epoch=committed_offset.leader_epoch,
            metadata=committed_offset.metadata,
            commit_timestamp=committed_offset.commit_timestamp_ms,
        )
        expected = group_records.record(kind, value, group=group, topic=topic, partition=partition)
        assert offset_record(group, topic, partition, committed_offset) == expected


@pytest.mark.parametrize("again", [False, True], ids=["read once", "read again"])
def test_offsets_of_a_topic_deleted_during_a_load_do_not_pass_to_a_new_topic(again):
    coordinator = GroupsUnderTest()
    commit(coordinator)
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records)
    after.groups.topics_deleted(["orders"])
    if again:
        after.groups.shards.begin(0, after.log)
        after.groups.shards.replay(0, coordinator.log.records)
    after.groups.loaded(0)
    assert committed(after) is None
    assert commit(after, 9).answer is ErrorCode.NONE
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, [*coordinator.log.records, *after.log.records])
    after.groups.loaded(0)
    assert committed(after) == 9


def test_a_commit_with_an_older_epoch_is_checked_by_partition():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.topics.counts["orders"] = 5
    assert coordinator.beat("a", 1, owned=frozenset()).member_epoch == 2
    assert commit(coordinator, 7, member_id="a", generation=1).answer is ErrorCode.NONE
    assert committed(coordinator) == 7
    coordinator.topics.counts.clear()
    assert commit(coordinator, 8, member_id="a", generation=1).answer is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(coordinator) == 7


def test_offsets_of_an_empty_group_with_a_pending_member_are_kept():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.timers.advance(6 * DAY_MS)
    me = coordinator.join().answer
    response = coordinator.join(id_required=True).answer
    assert response.error is ErrorCode.MEMBER_ID_REQUIRED
    coordinator.groups.members.leave("g", [(me.member_id, None, "")], Once())
    assert coordinator.group().state_name == "PreparingRebalance", "it waits for the client that received an id"
    coordinator.timers.advance(SESSION_MS)
    assert coordinator.group().state_name == "Empty"
    coordinator.timers.advance(DAY_MS)
    assert coordinator.join(id_required=True).answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert coordinator.groups.expire() == 0
    assert committed(coordinator) == 5
    coordinator.timers.advance(6 * DAY_MS)
    assert coordinator.groups.expire() == 1


def test_unsubscribed_offsets_do_not_expire_during_a_rebalance():
    coordinator = GroupsUnderTest()
    commit(coordinator)
    coordinator.timers.advance(7 * DAY_MS)
    me = coordinator.join().answer
    coordinator.join(id_required=True)
    coordinator.groups.members.leave("g", [(me.member_id, None, "")], Once())
    assert coordinator.group().state_name == "PreparingRebalance"
    assert coordinator.groups.expire() == 0
    assert committed(coordinator) == 5
