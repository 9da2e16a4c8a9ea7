"""Appends whose replicas take longer than `offsets.commit.timeout.ms`: who waits is told so, and memory goes by the outcome."""

import pytest

from odradek.groups.classic_member import SyncRequest
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.offsets import Commit, Committed
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import Once
from tests.groups.test_migration import GroupsUnderTest, assignment

NONE, TOO_LONG = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE


def by_objects(office, offset):
    once = Once()
    office.groups.commit(Commit("g", "", -1, None, {("orders", 0): Committed(offset)}), once)
    return once


def committed(office):
    found = office.groups.fetch("g")[1].get("orders", 0)
    return None if found is None else found.offset


def first_beat(office):
    once = Once()
    beat = HeartbeatRequest("a", 0, topics=("orders",), rebalance_timeout_ms=30_000, owned=frozenset())
    office.groups.beat("g", beat, once)
    return once


def test_a_commit_that_takes_too_long_is_refused_and_counts_once_it_is_there():
    office = GroupsUnderTest()
    office.log.held = True
    once = by_objects(office, 7)
    office.log.dawdle()
    assert once.answer is TOO_LONG
    assert committed(office) is None
    assert len(office.group().under_way) == 1
    office.log.acknowledge()
    assert committed(office) == 7
    assert not office.group().under_way


@pytest.mark.parametrize("failing", [None, ErrorCode.NOT_COORDINATOR])
def test_a_generation_that_takes_too_long_comes_to_nothing_and_the_members_join_again(failing):
    office = GroupsUnderTest()
    me = office.join().answer
    office.log.held = True
    synced = Once()
    office.groups.sync("g", SyncRequest(me.member_id, me.generation_id, {me.member_id: assignment(0)}), synced)
    assert synced.waits
    office.log.dawdle()
    assert synced.answer.error is TOO_LONG
    assert office.group().state_name == "PreparingRebalance"
    office.log.failing = failing
    office.log.acknowledge()
    assert office.group().state_name == "PreparingRebalance"
    office.log.held, office.log.failing = False, None
    again = office.join(me.member_id).answer
    assert (again.error, again.generation_id) == (NONE, me.generation_id + 1)
    told = office.sync(me.member_id, again.generation_id, {me.member_id: assignment(0)})
    assert (told.error, told.assignment) == (NONE, assignment(0))


def test_a_heartbeat_that_takes_too_long_is_refused_and_the_member_is_told_in_full_at_its_next_one():
    office = GroupsUnderTest()
    office.log.held = True
    once = first_beat(office)
    office.log.dawdle()
    assert once.answer.error is TOO_LONG
    office.log.acknowledge()
    assert office.diverged == []
    office.log.held = False
    told = office.beat("a", 0)
    assert (told.error, len(told.assignment)) == (NONE, 4)


def test_a_heartbeat_that_took_too_long_and_then_fails_has_the_groups_loaded_anew():
    office = GroupsUnderTest()
    office.log.held = True
    once = first_beat(office)
    office.log.dawdle()
    office.log.failing = ErrorCode.NOT_COORDINATOR
    office.log.acknowledge()
    assert once.answer.error is TOO_LONG
    assert office.diverged == [0]


def test_offsets_whose_tombstones_take_too_long_are_there_until_these_are():
    office = GroupsUnderTest()
    by_objects(office, 7)
    office.log.held = True
    deleted, told = Once(), []
    office.groups.delete("g", deleted)
    office.groups.delete_offsets("g", [("orders", 0)], lambda *outcome: told.append(outcome[0]))
    office.log.dawdle()
    assert deleted.answer is TOO_LONG
    assert told == [TOO_LONG]
    assert committed(office) == 7
    office.log.acknowledge()
    assert committed(office) is None
    office.log.held = False
    again = Once()
    office.groups.delete("g", again)
    assert again.answer is NONE
    assert office.group() is None


def test_a_heartbeat_without_news_is_answered_when_what_it_goes_by_is_durable():
    office = GroupsUnderTest()
    office.log.held = True
    first_beat(office)
    office.log.dawdle()
    again = first_beat(office)
    assert again.waits, "what it would be told of is not durable"
    office.log.dawdle()
    assert again.answer.error is TOO_LONG
    third = first_beat(office)
    office.log.acknowledge()
    assert (third.answer.error, third.answer.member_epoch, len(third.answer.assignment)) == (NONE, 1, 4)
    office.log.held = False
    assert office.beat("a", 1).error is NONE


def test_a_heartbeat_without_news_is_refused_when_what_it_goes_by_could_not_be_written():
    office = GroupsUnderTest()
    office.log.held = True
    first_beat(office)
    office.log.dawdle()
    again = first_beat(office)
    office.log.failing = ErrorCode.NOT_COORDINATOR
    office.log.acknowledge()
    assert again.answer.error is ErrorCode.NOT_COORDINATOR
    assert office.diverged


def test_a_classic_member_of_a_consumer_group_is_told_what_it_may_hold_when_that_is_durable():
    office = GroupsUnderTest()
    old, generation = office.both()
    office.log.held = True
    beaten, synced = Once(), Once()
    office.groups.beat("g", HeartbeatRequest("new", office.group().consumer.members["new"].epoch, rack_id="r"), beaten)
    office.groups.sync("g", SyncRequest(old, generation, {}), synced)
    assert beaten.waits
    assert synced.waits
    office.log.acknowledge()
    assert synced.answer.error is NONE


def test_who_leaves_a_consumer_group_by_the_other_protocol_is_answered_when_that_is_durable():
    office = GroupsUnderTest()
    old, _ = office.both()
    office.log.held = True
    left = Once()
    office.groups.leave("g", [(old, None, ""), ("nobody", None, "")], left)
    assert left.waits
    office.log.acknowledge()
    assert left.answer == (NONE, [NONE, ErrorCode.UNKNOWN_MEMBER_ID])
    office = GroupsUnderTest()
    old, _ = office.both()
    office.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    office.log.held = True
    left = Once()
    office.groups.leave("g", [(old, None, "")], left)
    office.log.acknowledge()
    assert left.answer == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    assert office.diverged


def test_a_heartbeat_without_news_that_fails_with_the_commit_before_it_has_nothing_loaded_anew():
    office = GroupsUnderTest()
    epoch = first_beat(office).answer.member_epoch
    office.log.held, office.log.failing = True, ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit, once = Once(), Once()
    office.groups.commit(Commit("h", "", -1, None, {("orders", 0): Committed(7)}), commit)
    office.groups.beat("g", HeartbeatRequest("a", epoch), once)
    office.log.acknowledge()
    assert commit.answer is once.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert office.diverged == []
    office.log.held, office.log.failing = False, None
    assert office.beat("a", epoch).error is NONE
