"""Groups on their way to the log and back: commits that are under way, loads, heartbeats that make no group."""

import pytest

from odradek.groups.classic_member import JoinRequest
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.migration import batch_bytes
from odradek.groups.offsets import Commit, Committed, offset_record
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import group_records
from tests.groups.by_hand import HandLog, HandTimers, Once
from tests.groups.test_consumer_group import FewTopics
from tests.groups.test_migration import SESSION_MS, GroupsUnderTest, assignment

DAY_MS = 86_400_000


def commit(office, offset=5, group="g", **fields):
    once = Once()
    place = {("orders", 0): Committed(offset, commit_timestamp_ms=office.timers.wall_ms())}
    office.groups.commit(
        Commit(group, fields.pop("member_id", ""), fields.pop("generation", -1), None, place, **fields), once
    )
    return once


def committed(office):
    error, offsets = office.groups.fetch("g")
    assert error is ErrorCode.NONE
    found = offsets.get("orders", 0)
    return None if found is None else found.offset


def test_a_group_is_not_swept_away_while_its_first_commit_is_on_its_way():
    office = GroupsUnderTest()
    office.log.held = True
    first = commit(office)
    office.groups.expire()
    assert first.waits
    office.log.acknowledge()
    assert first.answer is ErrorCode.NONE
    assert committed(office) == 5


def test_a_group_with_a_commit_on_its_way_is_not_deleted():
    office = GroupsUnderTest()
    office.log.held = True
    commit(office)
    deleted = Once()
    office.groups.delete("g", deleted)
    assert deleted.answer is ErrorCode.NON_EMPTY_GROUP
    office.log.acknowledge()
    assert committed(office) == 5


def test_a_subscription_that_no_generation_can_hold_is_refused_when_it_comes():
    office = GroupsUnderTest()
    most = office.groups.settings.max_member_bytes
    join = JoinRequest("", 10_000, 10_000, "consumer", [("range", bytes(most - 5))])
    refused, taken = Once(), Once()
    office.groups.join("g", join._replace(protocols=[*join.protocols, ("roundrobin", b"")]), refused)
    assert refused.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert office.groups.find("g") == (ErrorCode.NONE, None)
    office.groups.join("g", join, taken)
    assert taken.answer.error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_commit_that_failed_leaves_what_was_there():
    office = GroupsUnderTest()
    assert commit(office).answer is ErrorCode.NONE
    office.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(office, 6).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(office) == 5
    office.log.failing = None
    assert office.groups.expire() == 0
    assert committed(office) == 5


def test_a_generation_of_a_group_that_is_not_there_is_refused_as_the_clients_version_knows_it():
    office = GroupsUnderTest()
    assert commit(office, generation=1, member_id="m").answer is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(office, generation=1, member_id="m", knows_epochs=False).answer is ErrorCode.ILLEGAL_GENERATION
    assert office.group() is None


def test_offsets_expire_a_retention_after_their_commit_and_the_group_with_them():
    office = GroupsUnderTest()
    commit(office)
    office.timers.advance(7 * DAY_MS - 1)
    assert office.groups.expire() == 0
    office.timers.advance(1)
    assert office.groups.expire() == 1
    assert office.group() is None
    assert successor(office).group() is None


def test_offsets_of_a_deleted_topic_go_from_memory_and_from_the_log():
    office = GroupsUnderTest()
    commit(office)
    office.groups.topics_deleted(["orders"])
    assert committed(office) is None
    assert successor(office).group() is None


def loaded_again(office, records):
    """As when the office's groups turned out not to be what the log says."""
    office.groups.begin(0, office.log)
    office.groups.replay(0, records)
    office.groups.loaded(0)


def test_a_commit_under_way_when_its_topic_is_deleted_goes_with_the_topic():
    office = GroupsUnderTest()
    office.log.held = True
    once = commit(office)
    office.groups.topics_deleted(["orders"])
    office.log.acknowledge()
    assert once.answer is ErrorCode.NONE
    assert committed(office) is None
    assert successor(office).group() is None


def test_a_topic_made_anew_is_committed_to_once_what_was_committed_to_its_namesake_is_gone():
    office = GroupsUnderTest()
    commit(office)
    office.log.held = True
    office.groups.topics_deleted(["orders"])
    refused = commit(office, 9)
    assert refused.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.log.acknowledge()
    office.log.held = False
    assert commit(office, 9).answer is ErrorCode.NONE
    assert committed(office) == committed(successor(office)) == 9


def test_offsets_of_a_deleted_topic_that_could_not_be_removed_are_removed_a_little_later():
    office = GroupsUnderTest()
    commit(office)
    office.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.groups.topics_deleted(["orders"])
    office.timers.advance(10_000)
    assert committed(office) is None
    assert len(office.group().offsets) == 1
    assert commit(office, 9).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.log.failing = None
    assert commit(office, 9).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.timers.advance(1_000)
    assert committed(office) is None
    assert successor(office).group() is None
    assert commit(office, 9).answer is ErrorCode.NONE


class SmallBatches(HandLog):
    """It takes no batch that is larger than `most` bytes, as a partition does."""

    most = GroupSettings().max_member_bytes

    def append(self, records, then, late=None):
        if batch_bytes(records) > self.most:
            then(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        else:
            super().append(records, then, late)


def test_offsets_of_a_deleted_topic_are_removed_in_batches_that_the_log_takes_however_long_the_groups_name_is():
    office, group = GroupsUnderTest(), "g" * 20_000
    office.groups.resign(0)
    office.log = SmallBatches()
    office.groups.begin(0, office.log)
    office.groups.loaded(0)
    for partition in range(100):
        once = Once()
        office.groups.commit(Commit(group, "", -1, None, {("orders", partition): Committed(5)}), once)
        assert once.answer is ErrorCode.NONE
    office.groups.topics_deleted(["orders"])
    assert len(office.groups.find(group)[1].offsets) == 0
    assert len([None for _, value in office.log.records if value is None]) == 100
    assert commit(office, 9, group).answer is ErrorCode.NONE


def test_a_topic_deleted_while_its_offsets_could_not_be_removed_is_forgotten_by_a_load_that_comes_first():
    office = GroupsUnderTest()
    commit(office)
    records = list(office.log.records)
    office.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.groups.topics_deleted(["orders"])
    office.log.failing = None
    loaded_again(office, records)
    assert committed(office) is None
    assert commit(office, 9).answer is ErrorCode.NONE
    office.timers.advance(10_000)
    assert committed(office) == 9


def test_a_topic_deleted_between_an_append_that_failed_and_the_load_for_it_is_forgotten():
    office = GroupsUnderTest()
    office.log.held = True
    commit(office)
    (written, then), *_ = office.log.waiting
    office.log.waiting.clear()
    office.log.held, office.log.failing = False, ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.beat("a", 0, group="h").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.diverged == [0]
    then(ErrorCode.NOT_COORDINATOR)  # the log is closed; what it was told is in it all the same
    office.groups.topics_deleted(["orders"])
    office.log.failing = None
    loaded_again(office, written)
    assert committed(office) is None


def test_a_successor_removes_offsets_of_topics_that_are_no_more():
    office = GroupsUnderTest()
    commit(office)
    after = Successor(office, topics={"other": 1})
    assert after.groups.fetch("g")[1].get("orders", 0) is None
    assert after.log.records[0] == offset_record("g", "orders", 0, None)


def test_a_successor_does_not_take_a_topic_made_while_it_reads_for_one_that_was_deleted_before():
    office = GroupsUnderTest()
    commit(office)
    after = GroupsUnderTest()
    del after.topics.counts["orders"]
    after.groups.begin(0, after.log)
    after.groups.replay(0, office.log.records)
    after.topics.counts["orders"] = 4
    after.groups.loaded(0)
    assert committed(after) is None
    assert commit(after, 9).answer is ErrorCode.NONE
    assert committed(after) == 9


def test_groups_that_are_loaded_anew_keep_the_offsets_of_topics_made_since_the_first_load():
    office = GroupsUnderTest()
    office.topics.counts["newer"] = 1
    once = Once()
    office.groups.commit(Commit("g", "", -1, None, {("newer", 0): Committed(3)}), once)
    records = list(office.log.records)
    office.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.beat("a", 0, group="h")
    office.log.failing = None
    loaded_again(office, records)
    assert office.groups.fetch("g")[1].get("newer", 0).offset == 3


def test_an_offset_that_is_committed_again_at_this_moment_does_not_expire():
    office = GroupsUnderTest()
    commit(office)
    office.timers.advance(8 * DAY_MS)
    office.log.held = True
    again = commit(office, 6)
    assert office.groups.expire() == 0
    office.log.acknowledge()
    assert again.answer is ErrorCode.NONE
    assert committed(office) == committed(successor(office)) == 6


class Successor:
    """A coordinator that takes over the log of another. :param pause_ms: how long the load takes."""

    def __init__(self, office, pause_ms=0, topics=None):
        self.timers, known = HandTimers(), FewTopics()
        known.counts = known.counts if topics is None else topics
        self.log = HandLog()
        self.groups = GroupCoordinator(
            self.timers, GroupSettings(), 1, known, office.groups.consumer_settings, lambda _: None
        )
        self.groups.begin(0, self.log)
        self.groups.replay(0, office.log.records)
        self.timers.advance(pause_ms)
        self.groups.loaded(0)

    def group(self):
        return self.groups.find("g")[1]


def successor(office, pause_ms=0):
    return Successor(office, pause_ms)


def test_nobody_is_expelled_for_a_load_that_takes_long():
    office = GroupsUnderTest()
    me = office.join().answer
    office.sync(me.member_id, me.generation_id, {me.member_id: assignment(0)})
    after = successor(office, 10 * SESSION_MS)
    assert after.groups.heartbeat("g", me.member_id, me.generation_id, None) is ErrorCode.NONE
    after.timers.advance(SESSION_MS)
    assert after.groups.heartbeat("g", me.member_id, me.generation_id, None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_is_refused_makes_no_group_and_changes_none():
    office = GroupsUnderTest()
    answer = Once()
    office.groups.beat(
        "g", HeartbeatRequest("m", 0, rebalance_timeout_ms=1, topics=("orders",), assignor="no-such"), answer
    )
    assert answer.answer.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert office.group() is None
    me = office.join().answer
    answer = Once()
    office.groups.beat("g", HeartbeatRequest("m", 0, rebalance_timeout_ms=1, pattern="("), answer)
    assert answer.answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert office.group().type_name == "classic"
    assert me.member_id in office.group().classic.members


def test_the_record_of_an_offset_written_by_hand_is_that_of_the_schema():
    kind = group_records.OFFSET_COMMIT
    for group, topic, partition, one in (
        ("g", "orders", 0, Committed(5)),
        ("gr\u00fcn", "o", 2**31 - 1, Committed(2**62, 7, "\u00e9 note", 1_700_000_000_000)),
        ("", "t", 3, Committed(-1, -1, "", -1)),
    ):
        value = kind.value(
            offset=one.offset,
            leader_epoch=one.leader_epoch,
            metadata=one.metadata,
            commit_timestamp=one.commit_timestamp_ms,
        )
        wanted = group_records.record(kind, value, group=group, topic=topic, partition=partition)
        assert offset_record(group, topic, partition, one) == wanted


@pytest.mark.parametrize("again", [False, True], ids=["read once", "read again"])
def test_offsets_of_a_topic_that_is_deleted_while_they_are_read_are_not_those_of_one_made_anew(again):
    office = GroupsUnderTest()
    commit(office)
    after = GroupsUnderTest()
    after.groups.begin(0, after.log)
    after.groups.replay(0, office.log.records)
    after.groups.topics_deleted(["orders"])
    if again:
        after.groups.begin(0, after.log)
        after.groups.replay(0, office.log.records)
    after.groups.loaded(0)
    assert committed(after) is None
    assert commit(after, 9).answer is ErrorCode.NONE
    after.groups.begin(0, after.log)
    after.groups.replay(0, [*office.log.records, *after.log.records])
    after.groups.loaded(0)
    assert committed(after) == 9


def test_a_commit_of_a_lagging_member_is_judged_by_its_partitions():
    office = GroupsUnderTest()
    office.beat("a", 0)
    office.topics.counts["orders"] = 5
    assert office.beat("a", 1, owned=frozenset()).member_epoch == 2
    assert commit(office, 7, member_id="a", generation=1).answer is ErrorCode.NONE
    assert committed(office) == 7
    office.topics.counts.clear()
    assert commit(office, 8, member_id="a", generation=1).answer is ErrorCode.STALE_MEMBER_EPOCH
    assert committed(office) == 7


def test_offsets_of_an_empty_group_are_kept_while_somebody_is_about_to_join_it():
    office = GroupsUnderTest()
    commit(office)
    office.timers.advance(6 * DAY_MS)
    me = office.join().answer
    told = office.join(id_required=True).answer
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    office.groups.leave("g", [(me.member_id, None, "")], Once())
    assert office.group().state_name == "PreparingRebalance", "it waits for the one that was told an id"
    office.timers.advance(SESSION_MS)
    assert office.group().state_name == "Empty"
    office.timers.advance(DAY_MS)
    assert office.join(id_required=True).answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert office.groups.expire() == 0
    assert committed(office) == 5
    office.timers.advance(6 * DAY_MS)
    assert office.groups.expire() == 1


def test_offsets_that_nobody_subscribes_to_are_kept_amid_a_rebalance():
    office = GroupsUnderTest()
    commit(office)
    office.timers.advance(7 * DAY_MS)
    me = office.join().answer
    office.join(id_required=True)
    office.groups.leave("g", [(me.member_id, None, "")], Once())
    assert office.group().state_name == "PreparingRebalance"
    assert office.groups.expire() == 0
    assert committed(office) == 5
