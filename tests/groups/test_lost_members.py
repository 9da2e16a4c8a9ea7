"""Members that are missing in the log of a restarted coordinator: they must rejoin and are not fenced."""

import pytest

from odradek.groups.classic_member import JoinRequest, SyncRequest
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.offsets import CommittedOffset
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import Once
from tests.groups.test_migration import SESSION_MS, GroupsUnderTest, assignment, subscription

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


def successor(coordinator, count=None):
    """A coordinator that has loaded the first `count` records of the log of another."""
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records[:count])
    after.groups.loaded(0)
    return after


def join(coordinator, member_id="", instance_id=None):
    once = Once()
    protocols = [("range", subscription())]
    join = JoinRequest(member_id, SESSION_MS, 30_000, "consumer", protocols, "c", "/h", instance_id, id_required=False)
    coordinator.groups.members.join("g", join, once)
    return once


def sync(coordinator, joined, instance_id=None):
    once = Once()
    assignments = {member_id: assignment(0) for member_id, _, _ in joined.members}
    coordinator.groups.members.sync(
        "g", SyncRequest(joined.member_id, joined.generation_id, assignments, instance_id), once
    )
    return once.answer


def commit(coordinator, member_id, epoch, instance_id=None, knows_epochs=True):
    once = Once()
    place = {("orders", 0): CommittedOffset(5)}
    coordinator.groups.commit(Commit("g", member_id, epoch, instance_id, place, knows_epochs), once)
    return once.answer


# -- groups of KIP-848 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [3, -1, -2])
def test_a_member_of_an_unknown_group_must_rejoin(epoch):
    coordinator = GroupsUnderTest()
    assert coordinator.beat("m", epoch).error is UNKNOWN
    assert coordinator.group() is None
    response = coordinator.beat("m", 0)
    assert (response.error, len(response.assignment)) == (NONE, 4)


def test_a_consumer_member_of_a_classic_group_must_rejoin():
    coordinator = GroupsUnderTest()
    coordinator.classic_member()
    assert coordinator.beat("m", 3).error is UNKNOWN
    assert coordinator.group().type_name == "classic"
    assert coordinator.beat("m", 0).error is NONE


@pytest.mark.parametrize(("knows_epochs", "error"), [(True, UNKNOWN), (False, ErrorCode.ILLEGAL_GENERATION)])
def test_a_commit_of_a_member_of_an_unknown_group_gets_an_error_that_clients_handle(knows_epochs, error):
    assert commit(GroupsUnderTest(), "m", 3, knows_epochs=knows_epochs) is error


def static_beat(coordinator, member_id, epoch, **fields):
    return coordinator.beat(member_id, epoch, instance_id="i", **fields)


def left_and_came_back():
    """A static member left for a while and rejoined; a power loss removed that join. Returns (coordinator, successor)."""
    coordinator = GroupsUnderTest()
    assert static_beat(coordinator, "before", 0).error is NONE
    joined = len(coordinator.log.records)
    assert static_beat(coordinator, "before", -2).error is NONE
    left = len(coordinator.log.records)
    assert static_beat(coordinator, "after", 0).error is NONE
    return successor(coordinator, joined), successor(coordinator, left)


def test_a_static_member_whose_join_was_lost_replaces_its_former_self():
    for coordinator in left_and_came_back():
        assert static_beat(coordinator, "after", 1).error is UNKNOWN
        response = static_beat(coordinator, "after", 0)
        assert (response.error, len(response.assignment)) == (NONE, 4)
        assert static_beat(coordinator, "before", 1).error is FENCED


def test_a_confirmed_static_member_keeps_its_instance_id():
    coordinator, _ = left_and_came_back()
    assert static_beat(coordinator, "before", 1).error is NONE
    assert static_beat(coordinator, "after", 1).error is FENCED
    assert static_beat(coordinator, "after", 0).error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert static_beat(coordinator, "before", 1).error is NONE


def test_an_unknown_member_does_not_take_over_an_instance_id_after_a_restart():
    coordinator, _ = left_and_came_back()
    assert static_beat(coordinator, "other", 0).error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert static_beat(coordinator, "before", 1).error is NONE


# -- classic groups -------------------------------------------------------------------------------------------------------


def test_a_static_member_whose_id_was_not_stored_is_not_fenced():
    coordinator = GroupsUnderTest()
    first, other = join(coordinator, instance_id="i").answer, join(coordinator)
    join(coordinator, first.member_id, "i")
    assert sync(coordinator, join(coordinator, first.member_id, "i").answer, "i").error is NONE
    stored = len(coordinator.log.records)
    join(coordinator, other.answer.member_id)
    again = join(coordinator, instance_id="i").answer  # the application restarted during a rebalance
    assert again.member_id != first.member_id

    after = successor(coordinator, stored)
    assert sync(after, again, "i").error is UNKNOWN
    assert after.groups.members.heartbeat("g", again.member_id, again.generation_id, "i") is UNKNOWN
    assert commit(after, again.member_id, again.generation_id, "i") is UNKNOWN
    assert join(after, again.member_id, "i").answer.error is UNKNOWN
    newest = join(after, instance_id="i")
    join(after, other.answer.member_id)
    assert newest.answer.error is NONE
    assert after.groups.members.heartbeat("g", first.member_id, 1, "i") is FENCED
    assert after.groups.members.heartbeat("g", again.member_id, 1, "i") is FENCED


def test_an_unlogged_member_is_fenced_after_the_holder_of_its_instance_id_is_confirmed():
    coordinator = GroupsUnderTest()
    joined = join(coordinator, instance_id="i").answer
    sync(coordinator, joined, "i")
    after = successor(coordinator)
    assert after.groups.members.heartbeat("g", joined.member_id, joined.generation_id, "i") is NONE
    assert after.groups.members.heartbeat("g", "other", joined.generation_id, "i") is FENCED


def test_a_duplicate_static_member_is_fenced_without_a_load():
    coordinator = GroupsUnderTest()
    old = join(coordinator, instance_id="i").answer
    sync(coordinator, old, "i")
    assert join(coordinator, instance_id="i").answer.error is NONE
    assert coordinator.groups.members.heartbeat("g", old.member_id, old.generation_id, "i") is FENCED


# -- clients that disconnect while they join-------------------------------------------------------------------------------


def test_the_session_of_a_member_that_disconnects_during_its_join_starts_then():
    coordinator = GroupsUnderTest()
    stays = coordinator.classic_member()
    lost = join(coordinator)
    coordinator.groups.members.join_disconnected("g", lost)
    coordinator.timers.advance(SESSION_MS - 1)
    assert coordinator.heartbeat(stays, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(coordinator.group().classic.members) == 2
    coordinator.timers.advance(1)
    assert list(coordinator.group().classic.members) == [stays]
    assert join(coordinator, stays).answer.error is NONE


def test_a_disconnected_member_gets_no_second_session_from_the_rebalance():
    coordinator = GroupsUnderTest()
    stays = coordinator.classic_member()
    lost = join(coordinator)
    coordinator.groups.members.join_disconnected("g", lost)
    coordinator.timers.advance(SESSION_MS // 2)
    again = join(coordinator, stays)
    assert lost.answer.error is again.answer.error is NONE
    assert sync(coordinator, again.answer).error is NONE
    coordinator.timers.advance(SESSION_MS // 2)
    assert list(coordinator.group().classic.members) == [stays]


def test_a_member_that_reconnects_is_waited_for_like_any_other():
    coordinator = GroupsUnderTest()
    stays = coordinator.classic_member()
    lost = join(coordinator)
    member_id = next(member_id for member_id in coordinator.group().classic.members if member_id != stays)
    coordinator.groups.members.join_disconnected("g", lost)
    back = join(coordinator, member_id)
    assert lost.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(3):
        coordinator.timers.advance(SESSION_MS // 2)
        coordinator.heartbeat(stays, 1)
    join(coordinator, stays)
    assert back.answer.error is NONE


def test_a_disconnect_without_pending_join_has_no_effect():
    coordinator = GroupsUnderTest()
    coordinator.groups.members.join_disconnected("g", Once())
    stays = coordinator.classic_member()
    coordinator.groups.members.join_disconnected("g", Once())
    coordinator.groups.members.beat(
        "h", HeartbeatRequest("m", 0, topics=("orders",), rebalance_timeout_ms=1, owned=frozenset()), Once()
    )
    coordinator.groups.members.join_disconnected("h", Once())
    assert coordinator.heartbeat(stays, 1) is NONE
