"""A group of the classic protocol, event by event."""

import pytest

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import JoinRequest, SyncRequest
from odradek.groups.classic_rebalance import State
from odradek.groups.history import LONGEST_TEXT
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import HandTimers, Once

SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 60_000, 3_000


class Room:
    """A group and its clock."""

    def __init__(self, delay_ms=DELAY_MS, **settings):
        self.timers = HandTimers()
        self.stored = []
        self.error = ErrorCode.NONE
        self.held = []
        self.hold = False
        self.group = ClassicGroup(
            "g", self.timers, GroupSettings(initial_rebalance_delay_ms=delay_ms, **settings), self._persist
        )

    def _persist(self, group, assignments, then):
        self.stored.append((group.rebalance.generation_id, dict(assignments)))
        if self.hold:
            self.held.append(then)
        else:
            then(self.error)

    def join(self, member_id="", protocols=(("range", b"m"),), **options):
        once = Once()
        options.setdefault("id_required", False)
        self.group.join(
            JoinRequest(member_id, SESSION_MS, REBALANCE_MS, "consumer", list(protocols), client_id="c", **options),
            once,
        )
        return once

    def sync(self, member_id, generation, assignments=(), **options):
        once = Once()
        self.group.rebalance.sync(SyncRequest(member_id, generation, dict(assignments), **options), once)
        return once

    def settled(self, count=2, **options):
        """Build a stable group; return the member ids, the leader first."""
        joins = [self.join(**options) for _ in range(count)]
        self.timers.advance(2 * DELAY_MS)
        answers = [join.answer for join in joins]
        leader = answers[0].leader
        ids = sorted((answer.member_id for answer in answers), key=lambda member_id: member_id != leader)
        syncs = [self.sync(member_id, answers[0].generation_id) for member_id in ids[1:]]
        self.sync(leader, answers[0].generation_id, {member_id: member_id.encode() for member_id in ids})
        assert all(sync.answer.assignment for sync in syncs)
        assert self.group.rebalance.state is State.STABLE
        return ids


def test_the_first_rebalance_waits_for_more_members_and_gives_the_leader_all_subscriptions():
    room = Room()
    first = room.join()
    room.timers.advance(DELAY_MS - 1)
    second = room.join()
    room.timers.advance(1)
    assert first.waits, "a member that came within the delay makes the wait longer"
    room.timers.advance(DELAY_MS)
    leader, follower = first.answer, second.answer
    assert (leader.error, leader.generation_id, leader.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert leader.leader == leader.member_id == follower.leader
    assert {member_id for member_id, _, _ in leader.members} == {leader.member_id, follower.member_id}
    assert not follower.members


def test_a_new_dynamic_member_rejoins_with_the_member_id_it_received():
    room = Room(delay_ms=0)
    response = room.join(id_required=True).answer
    assert response.error is ErrorCode.MEMBER_ID_REQUIRED
    assert room.group.rebalance.state is State.EMPTY
    assert room.join(response.member_id, id_required=True).answer.error is ErrorCode.NONE
    other = room.join(id_required=True).answer
    room.timers.advance(SESSION_MS)
    assert room.join(other.member_id, id_required=True).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_are_returned_after_they_are_stored():
    room = Room()
    room.hold = True
    joins = [room.join(), room.join()]
    room.timers.advance(2 * DELAY_MS)
    leader, follower = (join.answer for join in joins)
    waiting = room.sync(follower.member_id, 1)
    brought = room.sync(leader.member_id, 1, {follower.member_id: b"F", leader.member_id: b"L"})
    assert waiting.waits and brought.waits
    room.held[0](ErrorCode.NONE)
    assert (waiting.answer.assignment, brought.answer.assignment) == (b"F", b"L")
    assert room.stored == [(1, {leader.member_id: b"L", follower.member_id: b"F"})]


def test_an_assignment_that_cannot_be_stored_makes_the_group_rebalance():
    room = Room()
    room.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    join = room.join()
    room.timers.advance(2 * DELAY_MS)
    answer = room.sync(join.answer.member_id, 1, {join.answer.member_id: b"x"}).answer
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.group.rebalance.state is State.PREPARING_REBALANCE


def test_a_member_that_leaves_makes_the_others_rebalance():
    room = Room()
    leader, follower = room.settled()
    assert room.group.leave([(leader, None, "")]) == [ErrorCode.NONE]
    assert room.group.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = room.join(follower).answer
    assert (again.generation_id, again.leader) == (2, follower)


def test_a_member_without_heartbeats_is_expelled_and_one_with_heartbeats_is_not():
    room = Room()
    leader, follower = room.settled()
    for _ in range(3):
        room.timers.advance(SESSION_MS - 1)
        if room.group.rebalance.state is State.STABLE:
            assert room.group.heartbeat(leader, 1) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    room.timers.advance(1)
    assert follower not in room.group.members
    assert [event.kind for event in room.group.history].count("expelled") >= 1


def test_a_member_that_does_not_join_the_rebalance_in_time_is_expelled():
    room = Room()
    leader, follower = room.settled()
    join = room.join(leader)
    elapsed = 0
    while join.waits and elapsed < REBALANCE_MS:
        room.group.heartbeat(follower, 1)
        room.timers.advance(SESSION_MS // 2)
        elapsed += SESSION_MS // 2
    assert join.answer.generation_id == 2
    assert list(room.group.members) == [leader]


def test_a_member_that_does_not_sync_in_time_is_expelled():
    room = Room()
    joins = [room.join(), room.join()]
    room.timers.advance(2 * DELAY_MS)
    leader, follower = (
        joins[0].answer.leader,
        next(join.answer.member_id for join in joins if join.answer.member_id != join.answer.leader),
    )
    waiting = room.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5000):
        room.group.heartbeat(leader, 1)
        room.timers.advance(5000)
    assert list(room.group.members) == [follower]
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_generations_and_members_are_fenced():
    room = Room()
    leader, follower = room.settled()
    group = room.group
    assert group.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert group.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.sync(leader, 0).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert room.sync("nobody", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.sync(leader, 1, protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocols=[("other", b"")]).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.leave([("nobody", None, "")]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert group.commit_error(follower, 1, None) is ErrorCode.NONE
    assert group.commit_error(follower, 0, None) is ErrorCode.ILLEGAL_GENERATION
    assert group.commit_error("", -1, None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error("nobody", 1, None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_further_members():
    room = Room(max_size=2)
    room.settled()
    assert room.join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_assignor_is_supported_by_all_members_and_has_most_votes():
    room = Room()
    likes = [("sticky", "range"), ("range", "sticky"), ("range", "own", "sticky")]
    joins = [room.join(protocols=[(name, name.encode()) for name in names]) for names in likes]
    room.timers.advance(2 * DELAY_MS)
    assert {join.answer.protocol_name for join in joins} == {"range"}


@pytest.mark.parametrize("skip", [True, False])
def test_a_rejoining_static_member_keeps_its_assignment_without_a_rebalance(skip):
    room = Room()
    joins = [room.join(instance_id=name) for name in ("a", "b")]
    room.timers.advance(2 * DELAY_MS)
    ids = {name: join.answer.member_id for name, join in zip("ab", joins, strict=True)}
    leader = joins[0].answer.leader
    room.sync(leader, 1, {member_id: member_id.encode() for member_id in ids.values()})
    name = next(name for name, member_id in ids.items() if member_id == leader)
    back = room.join(instance_id=name, skip_assignment=skip).answer
    assert (back.error, back.generation_id, back.skip_assignment) == (ErrorCode.NONE, 1, skip)
    assert back.member_id != leader
    assert (back.leader == back.member_id) is skip
    assert room.sync(back.member_id, 1, instance_id=name).answer.assignment == leader.encode()
    assert room.group.heartbeat(leader, 1, name) is ErrorCode.FENCED_INSTANCE_ID
    assert room.group.rebalance.state is State.STABLE


def test_a_static_member_with_another_subscription_makes_the_group_rebalance():
    room = Room()
    join = room.join(instance_id="a")
    room.timers.advance(2 * DELAY_MS)
    room.sync(join.answer.member_id, 1, {join.answer.member_id: b"x"})
    back = room.join(instance_id="a", protocols=[("range", b"other")])
    assert back.answer.generation_id == 2


def test_a_deleted_group_answers_all_pending_requests():
    room = Room()
    join = room.join()
    room.group.die(ErrorCode.NOT_COORDINATOR)
    assert join.answer.error is ErrorCode.NOT_COORDINATOR
    assert room.group.heartbeat("x", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.timers.advance(10 * REBALANCE_MS)


def test_a_rebalance_does_not_wait_for_a_member_that_the_maximum_size_refuses():
    room = Room(delay_ms=0, max_size=1)
    response = room.join(id_required=True).answer
    waiting = room.join()
    assert waiting.waits, "it waits for the client that received an id"
    assert room.join(response.member_id, id_required=True).answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting.answer.error is ErrorCode.NONE
    assert not room.group.roster.pending


def test_a_session_is_suspended_while_a_response_is_pending():
    room = Room(delay_ms=0)
    first = room.settled(1)[0]
    other = room.join()  # 60 s may pass until the first member joins again
    for _ in range(5):
        room.timers.advance(SESSION_MS - 1)
        assert room.group.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert other.waits
    room.join(first)
    assert other.answer.error is ErrorCode.NONE
    waiting = room.sync(other.answer.member_id, 2)
    room.timers.advance(SESSION_MS)  # the leader is silent before it brings the assignments
    assert set(room.group.members) == {other.answer.member_id}
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    room.timers.advance(SESSION_MS)
    assert not room.group.members


@pytest.mark.parametrize("sign", ["heartbeat", "commit"])
def test_a_heartbeat_during_a_pending_join_does_not_expel_the_member(sign):
    room = Room()
    first, second = room.settled()
    waits = room.join(first, [("range", b"other")])
    if sign == "heartbeat":
        assert room.group.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert room.group.commit_error(first, 1, None) is ErrorCode.NONE
    for _ in range(3):
        room.timers.advance(SESSION_MS - 1)
        assert room.group.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waits.waits
    again = room.join(second)
    assert {waits.answer.error, again.answer.error} == {ErrorCode.NONE}


def test_a_heartbeat_during_a_pending_sync_does_not_expel_the_member():
    room = Room()
    first, second = room.settled()
    joins = {member_id: room.join(member_id, [("range", b"other")]) for member_id in (first, second)}
    leader = joins[first].answer.leader
    follower = first if leader == second else second
    synced = room.sync(follower, 2)
    assert room.group.heartbeat(follower, 2) is ErrorCode.NONE
    for _ in range(3):
        room.timers.advance(SESSION_MS - 1)
        assert room.group.heartbeat(leader, 2) is ErrorCode.NONE
    assert synced.waits
    room.sync(leader, 2, {follower: b"x"})
    assert synced.answer.assignment == b"x"


def test_a_group_above_its_maximum_size_keeps_the_members_that_join_first():
    room = Room()
    ids = room.settled(3)
    small = Room(max_size=2)
    members = [
        (
            JoinRequest(member_id, SESSION_MS, REBALANCE_MS, "consumer", [("range", b"m")], client_id="c"),
            member_id.encode(),
        )
        for member_id in ids
    ]
    small.group.restore(1, "consumer", "range", ids[0], members, small.timers.wall_ms())
    small.group.begin_sessions()
    assert {small.group.heartbeat(member_id, 1) for member_id in ids} == {ErrorCode.REBALANCE_IN_PROGRESS}
    first, second, late = (small.join(member_id) for member_id in ids)
    assert late.answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (first.answer.error, second.answer.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert set(small.group.members) == set(ids[:2])


def test_a_rebalance_does_not_wait_for_members_that_leave_together():
    room = Room()
    first, second, third = room.settled(3)
    joins = {member_id: room.join(member_id, [("range", b"other")]) for member_id in (first, second)}
    assert room.group.leave([(third, None, ""), (second, None, "scaled down")]) == [ErrorCode.NONE, ErrorCode.NONE]
    assert joins[second].answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    response = joins[first].answer
    assert (response.generation_id, [member_id for member_id, _, _ in response.members]) == (2, [first])
    assert room.group.rebalance.state is State.COMPLETING_REBALANCE


def test_texts_of_clients_are_kept_with_bounded_length():
    room = Room()
    room.join(reason="r" * 30_000, client_host="h" * 30_000)
    assert all(len(event.client) <= LONGEST_TEXT and len(event.why) <= LONGEST_TEXT for event in room.group.history)
    assert any(event.why for event in room.group.history)


def test_a_member_that_rejoins_during_a_pending_sync_is_not_expelled():
    room = Room()
    joins = [room.join(), room.join()]
    room.timers.advance(2 * DELAY_MS)
    leader = joins[0].answer.leader
    follower = next(join.answer.member_id for join in joins if join.answer.member_id != leader)
    waiting = room.sync(follower, 1)
    again = room.join(follower, protocols=[("range", b"another subscription")])
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(4):
        room.timers.advance(SESSION_MS // 2)
        assert room.group.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits
    room.join(leader)
    assert again.answer.error is ErrorCode.NONE
