"""A group of the classic protocol: JoinGroup, Heartbeat, LeaveGroup, session timeouts, and commits of members.

`classic_rebalance.py` has the states and the rebalance, `classic_roster.py` the members. Here is what each request does in
each state:

    event            Empty              PreparingRebalance    CompletingRebalance     Stable
    JoinGroup, new   begins a           waits for the         begins a new            begins a rebalance
                     rebalance          generation            rebalance
    JoinGroup,       UNKNOWN_MEMBER_ID  waits for the         unchanged: repeats      unchanged follower: repeats the
      known id                          generation            the response; changed:  response; leader or changed:
                                                              new rebalance           new rebalance
    Heartbeat        UNKNOWN_MEMBER_ID  REBALANCE_            NONE                    NONE
                                        IN_PROGRESS
    LeaveGroup,      -                  removes it; may       begins a new            begins a rebalance
      session over                      complete the join     rebalance
    OffsetCommit     NONE without       NONE                  REBALANCE_              NONE
                     generation                               IN_PROGRESS

Other ids get UNKNOWN_MEMBER_ID, another generation ILLEGAL_GENERATION, and every request COORDINATOR_NOT_AVAILABLE in state
Dead.

New dynamic members (version 4 and later) first receive a member id (MEMBER_ID_REQUIRED) and are then `pending`: a rebalance
waits for them until their session timeout. A static member that rejoins without id replaces its former self: the old id is
fenced, and a Stable group whose subscription and assignor do not change stays Stable (KIP-345, KIP-814); the new id is
stored before the response.

State machine without I/O: methods take plain values and a callback, which is called exactly once; timers and the log are passed
in. Runs in the coordinator process's loop, its only protection. Sources: KIP-62, 134, 345, 394, 559, 568, 800, 814; Kafka's
coordinator where they leave the behaviour open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.groups.classic_member import JoinRequest, JoinResult, Member, SyncResult
from odradek.groups.classic_rebalance import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Rebalance
from odradek.groups.environment import Deadline, new_member_id
from odradek.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member that waits this long for its first rebalance is removed."""


class ClassicGroup(Rebalance):
    """A classic group. :param persist: see `Persist`; called with each generation, and when a static member gets a new id."""

    # -- JoinGroup -------------------------------------------------------------------------------------------------------

    def join(self, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        """Handle a JoinGroup; `then` receives the result after the rebalance that the request causes or takes part in."""
        error = self._refusal(join)
        if error is not None:
            then(JoinResult(error, join.member_id))
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._turn_away(join.member_id)
            return
        if join.member_id:
            self._join_again(join, then)
        elif join.instance_id is not None:
            old = self.static_members.get(join.instance_id)
            if old is None:
                self._add(new_member_id(join.instance_id), join, then)
            else:
                self._replace_static(self.members[old], join, then)
        elif join.id_required:
            member_id = new_member_id(join.client_id)
            deadline = Deadline(self._timers, lambda: self._pending_expired(member_id))
            deadline.set(self._timers.now_ms() + join.session_timeout_ms)
            self.pending[member_id] = deadline
            then(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(new_member_id(join.client_id), join, then)

    def _refusal(self, join: JoinRequest) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._can_join(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._full(join.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return None

    def _full(self, member_id: str) -> bool:
        """Whether group.max.size refuses the member. During a rebalance the members that rejoin first are accepted."""
        if self.state is PREPARING:
            member = self.members.get(member_id)
            return (member is None or member.joining is None) and self._joining >= self._settings.max_size
        return (
            self.state is not EMPTY and member_id not in self.members and len(self.members) >= self._settings.max_size
        )

    def _turn_away(self, member_id: str) -> None:
        """Remove a member, or pending id, that group.max.size refuses; the rebalance no longer waits for it."""
        member = self.members.get(member_id)
        if member is not None:
            self._drop(member)
            self._record_event(
                "expelled", member, f"the group already has group.max.size ({self._settings.max_size}) members"
            )
        elif member_id in self.pending:
            self._forget_pending(member_id)
        self._complete_if_all_joined()

    def _join_again(self, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        if join.member_id in self.pending:
            if join.instance_id is not None:
                then(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            self._forget_pending(join.member_id)
            self._add(join.member_id, join, then)
            return
        error = self.member_error(join.member_id, join.instance_id)
        if error is not None:
            then(JoinResult(error, join.member_id))
            return
        member = self.members[join.member_id]
        unchanged = list(member.protocols) == list(join.protocols)
        if self.state is COMPLETING and unchanged:
            # The response was lost; send it again.
            self._extend_session(member)
            then(self._joined(member))
        elif self.state is STABLE and unchanged and member.member_id != self.leader:
            self._extend_session(member)
            then(self._joined(member))
        elif self.state is EMPTY:
            then(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
        else:
            self._update(member, join, then)
            why = ""
            if self.state is not PREPARING:  # otherwise other members have begun the rebalance
                why = "the leader rejoined" if member.member_id == self.leader else "a member rejoined"
                why = _reason(f"{why}: {member.client}", join.reason)
            self._maybe_rebalance(why)

    def client_disconnected(self, then: Callable[[JoinResult], None]) -> None:
        """Start the session of a member whose client closed the connection while its JoinGroup was pending.

        Otherwise the session would start with the response, which nobody reads: if the rebalance waits for another member
        for the time of a session, the member's partitions would be without a consumer for that time and another session.
        """
        for member in self.members.values():
            if member.joining is then:
                member.disconnected = True
                self._extend_session(member)
                return

    def _update(self, member: Member, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        if member.joining is not None:
            self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._set_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        member.skip_assignment = join.skip_assignment
        member.disconnected = False
        self._set_joining(member, then)
        member.session.suspend()

    def _add(self, member_id: str, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            join.protocol_type,
            join.protocols,
            self._session_of(member_id),
            skip_assignment=join.skip_assignment,
        )
        self._admit(member)
        self._set_joining(member, then)
        self._joined_lately = True
        member.session.set(self._timers.now_ms() + NEW_MEMBER_TIMEOUT_MS)
        self._record_event("joined", member, join.reason)
        self._maybe_rebalance(_reason(f"a new member joined: {member.client}", join.reason))

    def _replace_static(self, member: Member, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        """A static member rejoined: give it a new id and fence the old one; an unchanged stable group needs no rebalance."""
        assert member.instance_id is not None
        old_id, new_id = member.member_id, new_member_id(member.instance_id)
        before = member.metadata(self.protocol_name)
        old_protocols = member.protocols
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(member, JoinResult(fenced, old_id))
        member.answer_sync(SyncResult(fenced))
        self._rename(member, new_id)
        self._update(member, join, then)
        self._record_event("came back", member, f"static member {member.instance_id}, former member id {old_id}")
        unchanged = self.state is STABLE and self._vote() == self.protocol_name
        if not (unchanged and before == member.metadata(self.protocol_name)):
            if self.state is STABLE or self.state is COMPLETING:
                self._prepare(f"static member {member.instance_id} rejoined with another subscription")
            self._complete_if_all_joined()
            return

        generation = self.generation_id

        def stored(error: ErrorCode) -> None:
            if self.members.get(new_id) is not member or self.generation_id != generation or self.state is not STABLE:
                return  # a rebalance that began meanwhile answers the request
            if error is not ErrorCode.NONE:
                self._rename(member, old_id)
                self._set_protocols(member, old_protocols)
                self._answer_join(member, JoinResult(error, old_id))
                self._extend_session(member)
                return
            leads = self.leader == new_id
            answer = self._joined(member)
            if leads and not join.skip_assignment:
                # Without SkipAssignment, name the old id as leader: the member acts as a follower and fetches its assignment.
                answer = JoinResult(
                    ErrorCode.NONE, new_id, generation, self.protocol_type, self.protocol_name, old_id, members=()
                )
            elif leads:
                answer = JoinResult(
                    ErrorCode.NONE, new_id, generation, self.protocol_type, self.protocol_name, new_id, True,
                    self._subscriptions(),
                )  # fmt: skip
            self._answer_join(member, answer)
            self._extend_session(member)

        self._persist(self, self.assignments(), stored)

    def _rename(self, member: Member, member_id: str) -> None:
        old_id = member.member_id
        super()._rename(member, member_id)
        member.session.clear()
        member.session = self._session_of(member_id)
        if old_id in self._unsynced:
            self._unsynced.discard(old_id)
            self._unsynced.add(member_id)

    # -- Heartbeat, LeaveGroup, sessions ---------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        """Handle a Heartbeat."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.member_error(member_id, instance_id)
        if error is not None:
            return error
        if self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._extend_idle_session(self.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, members: Sequence[tuple[str, str | None, str]]) -> list[ErrorCode]:
        """Remove members, each (member id or "", instance id or None, reason); return one error for each.

        The rebalance begins or completes only after all of them are removed, so that no generation includes a leaving member.
        """
        why: list[str] = []
        errors = [self._leave(*member, why) for member in members]
        if why:
            self._after_removal(why[0])
        else:
            self._complete_if_all_joined()  # only pending ids were removed
        return errors

    def _leave(self, member_id: str, instance_id: str | None, reason: str, why: list[str]) -> ErrorCode:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is None and member_id in self.pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        if instance_id is not None and not member_id:
            member_id = self.static_members.get(instance_id, "")
        error = self.member_error(member_id, instance_id)
        if error is not None:
            return error
        member = self.members[member_id]
        self._drop(member)
        self._record_event("left", member, reason)
        why.append(_reason(f"a member left: {member.client}", reason))
        return ErrorCode.NONE

    def commit_error(self, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """The error of an OffsetCommit, or NONE; a client without generation may commit while the group is empty."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is EMPTY:
            return NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.member_error(member_id, instance_id)
        if error is not None:
            return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._extend_idle_session(self.members[member_id])
        return NONE

    def _extend_idle_session(self, member: Member) -> None:
        """Extend the session of a member, unless a pending request suspends it."""
        if member.joining is None and member.syncing is None:
            self._extend_session(member)

    def _session_expired(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._drop(member)
        self._record_event(
            "expelled", member, f"no heartbeat within its session timeout of {member.session_timeout_ms} ms"
        )
        self._after_removal(
            f"no heartbeat from a member within its session timeout of {member.session_timeout_ms} ms: {member.client}"
        )

    def _pending_expired(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._complete_if_all_joined()

    def _forget_pending(self, member_id: str) -> None:
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.clear()

    # -- load and end-----------------------------------------------------------------------------------------------------

    def restore(self, generation_id: int, protocol_type: str | None, protocol_name: str | None, leader: str | None,
                members: list[tuple[JoinRequest, bytes]], state_since_ms: int) -> None:  # fmt: skip
        """Restore the group from its record in the log: members and assignments. Sessions start with `begin_sessions`."""
        self.generation_id, self.protocol_type = generation_id, protocol_type
        for join, assignment in members:
            member_id = join.member_id
            member = Member(
                member_id, join.instance_id, join.client_id, join.client_host, join.session_timeout_ms,
                join.rebalance_timeout_ms, join.protocol_type, join.protocols, self._session_of(member_id), assignment,
            )  # fmt: skip
            self._admit(member)
            if join.instance_id is not None:
                self.unconfirmed.add(member_id)
        self.protocol_type, self.protocol_name, self.leader = protocol_type, protocol_name, leader
        self.state = STABLE if members else EMPTY
        self.state_since_ms = state_since_ms

    def begin_sessions(self) -> None:
        """Start the sessions of all members. The caller does so only after the whole log is loaded, however long that takes."""
        for member in self.members.values():
            self._extend_session(member)
        max_size = self._settings.max_size
        if len(self.members) > max_size:
            self._prepare(f"the group has {len(self.members)} members, more than group.max.size ({max_size})")

    def _session_of(self, member_id: str) -> Deadline:
        return Deadline(self._timers, lambda: self._session_expired(member_id))

    def die(self, error: ErrorCode) -> None:
        """End the group (deleted, or coordinated elsewhere): answer all pending requests with `error`."""
        self._rebalance.clear()
        self._sync.clear()
        for deadline in self.pending.values():
            deadline.clear()
        self.pending.clear()
        for member in list(self.members.values()):
            member.session.clear()
            self._answer_join(member, JoinResult(error, member.member_id))
            member.answer_sync(SyncResult(error))
        if self.state is not DEAD:
            self._transition(DEAD)


def _reason(what: str, client_reason: str) -> str:
    return f"{what} ({client_reason})" if client_reason else what
