"""Appends that take longer than `offsets.commit.timeout.ms`: the request gets an error; memory follows the final outcome."""

import pytest

from odradek.groups.classic_member import SyncRequest
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import Once
from tests.groups.test_migration import GroupsUnderTest, assignment

NONE, TOO_LONG = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE


def by_objects(coordinator, offset):
    once = Once()
    coordinator.groups.commit(Commit("g", "", -1, None, {("orders", 0): CommittedOffset(offset)}), once)
    return once


def committed(coordinator):
    stored = coordinator.groups.fetch("g")[1].get("orders", 0)
    return None if stored is None else stored.offset


def first_beat(coordinator):
    once = Once()
    beat = HeartbeatRequest("a", 0, topics=("orders",), rebalance_timeout_ms=30_000, owned=frozenset())
    coordinator.groups.members.beat("g", beat, once)
    return once


def test_a_late_commit_gets_an_error_and_is_valid_after_its_append():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    once = by_objects(coordinator, 7)
    coordinator.log.dawdle()
    assert once.answer is TOO_LONG
    assert committed(coordinator) is None
    assert len(coordinator.group().under_way) == 1
    coordinator.log.acknowledge()
    assert committed(coordinator) == 7
    assert not coordinator.group().under_way


@pytest.mark.parametrize("failing", [None, ErrorCode.NOT_COORDINATOR])
def test_a_late_generation_is_cancelled_and_the_members_rejoin(failing):
    coordinator = GroupsUnderTest()
    me = coordinator.join().answer
    coordinator.log.held = True
    synced = Once()
    coordinator.groups.members.sync(
        "g", SyncRequest(me.member_id, me.generation_id, {me.member_id: assignment(0)}), synced
    )
    assert synced.waits
    coordinator.log.dawdle()
    assert synced.answer.error is TOO_LONG
    assert coordinator.group().state_name == "PreparingRebalance"
    coordinator.log.failing = failing
    coordinator.log.acknowledge()
    assert coordinator.group().state_name == "PreparingRebalance"
    coordinator.log.held, coordinator.log.failing = False, None
    again = coordinator.join(me.member_id).answer
    assert (again.error, again.generation_id) == (NONE, me.generation_id + 1)
    response = coordinator.sync(me.member_id, again.generation_id, {me.member_id: assignment(0)})
    assert (response.error, response.assignment) == (NONE, assignment(0))


def test_a_late_heartbeat_gets_an_error_and_the_next_response_has_the_assignment():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    once = first_beat(coordinator)
    coordinator.log.dawdle()
    assert once.answer.error is TOO_LONG
    coordinator.log.acknowledge()
    assert coordinator.diverged == []
    coordinator.log.held = False
    response = coordinator.beat("a", 0)
    assert (response.error, len(response.assignment)) == (NONE, 4)


def test_a_late_heartbeat_whose_append_fails_reloads_the_groups():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    once = first_beat(coordinator)
    coordinator.log.dawdle()
    coordinator.log.failing = ErrorCode.NOT_COORDINATOR
    coordinator.log.acknowledge()
    assert once.answer.error is TOO_LONG
    assert coordinator.diverged == [0]


def test_offsets_exist_until_their_late_tombstones_are_appended():
    coordinator = GroupsUnderTest()
    by_objects(coordinator, 7)
    coordinator.log.held = True
    deleted, outcomes = Once(), []
    coordinator.groups.delete("g", deleted)
    coordinator.groups.delete_offsets("g", [("orders", 0)], lambda *outcome: outcomes.append(outcome[0]))
    coordinator.log.dawdle()
    assert deleted.answer is TOO_LONG
    assert outcomes == [TOO_LONG]
    assert committed(coordinator) == 7
    coordinator.log.acknowledge()
    assert committed(coordinator) is None
    coordinator.log.held = False
    again = Once()
    coordinator.groups.delete("g", again)
    assert again.answer is NONE
    assert coordinator.group() is None


def test_an_unchanged_heartbeat_is_answered_after_earlier_changes_are_durable():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    first_beat(coordinator)
    coordinator.log.dawdle()
    again = first_beat(coordinator)
    assert again.waits, "the change that it would report is not durable"
    coordinator.log.dawdle()
    assert again.answer.error is TOO_LONG
    third = first_beat(coordinator)
    coordinator.log.acknowledge()
    assert (third.answer.error, third.answer.member_epoch, len(third.answer.assignment)) == (NONE, 1, 4)
    coordinator.log.held = False
    assert coordinator.beat("a", 1).error is NONE


def test_an_unchanged_heartbeat_fails_if_earlier_changes_cannot_be_appended():
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    first_beat(coordinator)
    coordinator.log.dawdle()
    again = first_beat(coordinator)
    coordinator.log.failing = ErrorCode.NOT_COORDINATOR
    coordinator.log.acknowledge()
    assert again.answer.error is ErrorCode.NOT_COORDINATOR
    assert coordinator.diverged


def test_a_classic_member_of_a_consumer_group_receives_only_durable_assignments():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    coordinator.log.held = True
    heartbeat_result, synced = Once(), Once()
    coordinator.groups.members.beat(
        "g", HeartbeatRequest("new", coordinator.group().consumer.members["new"].epoch, rack_id="r"), heartbeat_result
    )
    coordinator.groups.members.sync("g", SyncRequest(old, generation, {}), synced)
    assert heartbeat_result.waits
    assert synced.waits
    coordinator.log.acknowledge()
    assert synced.answer.error is NONE


def test_a_leave_group_in_a_consumer_group_is_answered_after_it_is_durable():
    coordinator = GroupsUnderTest()
    old, _ = coordinator.both()
    coordinator.log.held = True
    left = Once()
    coordinator.groups.members.leave("g", [(old, None, ""), ("nobody", None, "")], left)
    assert left.waits
    coordinator.log.acknowledge()
    assert left.answer == (NONE, [NONE, ErrorCode.UNKNOWN_MEMBER_ID])
    coordinator = GroupsUnderTest()
    old, _ = coordinator.both()
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.held = True
    left = Once()
    coordinator.groups.members.leave("g", [(old, None, "")], left)
    coordinator.log.acknowledge()
    assert left.answer == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    assert coordinator.diverged


def test_an_unchanged_heartbeat_that_fails_with_an_earlier_commit_reloads_nothing():
    coordinator = GroupsUnderTest()
    epoch = first_beat(coordinator).answer.member_epoch
    coordinator.log.held, coordinator.log.failing = True, ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit, once = Once(), Once()
    coordinator.groups.commit(Commit("h", "", -1, None, {("orders", 0): CommittedOffset(7)}), commit)
    coordinator.groups.members.beat("g", HeartbeatRequest("a", epoch), once)
    coordinator.log.acknowledge()
    assert commit.answer is once.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.diverged == []
    coordinator.log.held, coordinator.log.failing = False, None
    assert coordinator.beat("a", epoch).error is NONE
