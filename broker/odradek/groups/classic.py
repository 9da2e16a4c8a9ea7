"""A group of the classic protocol: JoinGroup, Heartbeat, LeaveGroup, session timeouts, and commits of members.

The group has two members: `Roster` (`classic_roster.py`) owns the members and their counts, `Rebalance`
(`classic_rebalance.py`) the state, the generation and SyncGroup; that module describes the states and transitions. The group
itself owns the sessions and the history. What each request does in each state:

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

What is stored, as one record with the generation, the assignor, the leader, the members and their assignments:

    - each generation, with the leader's assignment, before any member receives its part;
    - the empty generation after the last member left; no request waits for it, the next join replaces it;
    - the new member id of a static member in a Stable group, before its JoinGroup is answered.

What survives the death of the coordinator: the last stored generation, in state Stable (Empty without members). Sessions start
in full when the log is loaded. A rebalance that was in progress is lost: its members get UNKNOWN_MEMBER_ID or
ILLEGAL_GENERATION from the next coordinator, and join again. Pending ids and the history are lost, too. Static members are
`unconfirmed` until their first request, see `fencing.py`.

State machine without I/O: methods take plain values and a callback, which is called exactly once; timers and the log are passed
in. Runs in the coordinator process's loop, its only protection. Sources: KIP-62, 134, 345, 394, 559, 568, 800, 814; Kafka's
coordinator where they leave the behaviour open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.coordination.environment import AppendCallback, Deadline, Timers
from odradek.groups.classic_member import JoinRequest, JoinResult, Member, SyncResult
from odradek.groups.classic_rebalance import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Rebalance
from odradek.groups.classic_roster import Roster
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.environment import new_member_id
from odradek.groups.history import Event, History, client_text
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member that waits this long for its first rebalance is removed."""


Persist = Callable[["ClassicGroup", Mapping[str, bytes], AppendCallback], None]
"""Stores the present generation of the group with these assignments by member id."""


class ClassicGroup:
    """A classic group. :param persist: see `Persist`; called with each generation, and when a static member gets a new id.

    The properties are those that a group of either protocol has, see `Group.protocol`; other facts are read from `roster` and
    `rebalance`.
    """

    def __init__(self, group_id: str, timers: Timers, settings: GroupSettings, persist: Persist) -> None:
        self.group_id = group_id
        self._timers = timers
        self._settings = settings
        self._store = partial(persist, self)
        self.history = History()
        self.roster = Roster()
        self.rebalance = Rebalance(group_id, self.roster, timers, settings, self._store, self._record_event)

    @property
    def members(self) -> Mapping[str, Member]:
        """The members by member id, in the order in which they joined."""
        return self.roster.members

    @property
    def static_members(self) -> Mapping[str, str]:
        """Member ids by instance id."""
        return self.roster.static_members

    @property
    def protocol_type(self) -> str | None:
        """The protocol type, "consumer" for consumers; None if the group never had members."""
        return self.roster.protocol_type

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.rebalance.state.value

    @property
    def state_since_ms(self) -> int:
        """Wall clock of the last change of the state, ms since 1970."""
        return self.rebalance.state_since_ms

    @property
    def empty(self) -> bool:
        """Whether the group has no members and no pending member ids."""
        return self.rebalance.state is EMPTY and not self.roster.pending

    # -- JoinGroup -------------------------------------------------------------------------------------------------------

    def join(self, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        """Handle a JoinGroup; `then` receives the result after the rebalance that the request causes or takes part in."""
        error = self._refusal(join)
        if error is not None:
            why = self._text_of_refusal(join, error)
            if why:
                self.record_refusal(join, error, why)
            then(JoinResult(error, join.member_id))
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._turn_away(join.member_id)
            return
        if join.member_id:
            self._join_again(join, then)
        elif join.instance_id is not None:
            old = self.roster.static_members.get(join.instance_id)
            if old is None:
                self._add(new_member_id(join.instance_id), join, then)
            else:
                self._replace_static(self.roster.members[old], join, then)
        elif join.id_required:
            member_id = new_member_id(join.client_id)
            deadline = Deadline(self._timers, lambda: self._pending_expired(member_id))
            deadline.set(self._timers.now_ms() + join.session_timeout_ms)
            self.roster.pending[member_id] = deadline
            then(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(new_member_id(join.client_id), join, then)

    def _refusal(self, join: JoinRequest) -> ErrorCode | None:
        if self.rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.roster.can_join(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._full(join.member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return None

    def _full(self, member_id: str) -> bool:
        """Whether group.max.size refuses the member. During a rebalance the members that rejoin first are accepted."""
        if self.rebalance.state is PREPARING:
            member = self.roster.members.get(member_id)
            return (member is None or member.joining is None) and self.roster.joining >= self._settings.max_size
        return (
            self.rebalance.state is not EMPTY
            and member_id not in self.roster.members
            and len(self.roster.members) >= self._settings.max_size
        )

    def _turn_away(self, member_id: str) -> None:
        """Remove a member, or pending id, that group.max.size refuses; the rebalance no longer waits for it."""
        member = self.roster.members.get(member_id)
        if member is not None:
            self.rebalance.drop(member)
            self._record_event(
                "expelled", member, f"the group already has group.max.size ({self._settings.max_size}) members"
            )
        else:
            self.roster.forget_pending(member_id)
        self.rebalance.complete_if_all_joined()

    def _join_again(self, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        if join.member_id in self.roster.pending:
            if join.instance_id is not None:
                then(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            self.roster.forget_pending(join.member_id)
            self._add(join.member_id, join, then)
            return
        error = self.roster.member_error(join.member_id, join.instance_id)
        if error is not None:
            then(JoinResult(error, join.member_id))
            return
        member = self.roster.members[join.member_id]
        unchanged = list(member.protocols) == list(join.protocols)
        if self.rebalance.state is COMPLETING and unchanged:
            # The response was lost; send it again.
            member.extend_session(self._timers.now_ms())
            then(self.rebalance.join_result(member))
        elif self.rebalance.state is STABLE and unchanged and member.member_id != self.roster.leader:
            member.extend_session(self._timers.now_ms())
            then(self.rebalance.join_result(member))
        elif self.rebalance.state is EMPTY:
            then(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
        else:
            self._update(member, join, then)
            why = ""
            if self.rebalance.state is not PREPARING:  # otherwise other members have begun the rebalance
                why = "the leader rejoined" if member.member_id == self.roster.leader else "a member rejoined"
                why = _reason(f"{why}: {member.client}", join.reason)
            self.rebalance.begin(why)

    def client_disconnected(self, then: Callable[[JoinResult], None]) -> None:
        """Start the session of a member whose client closed the connection while its JoinGroup was pending.

        Otherwise the session would start with the response, which nobody reads: if the rebalance waits for another member
        for the time of a session, the member's partitions would be without a consumer for that time and another session.
        """
        for member in self.roster.members.values():
            if member.joining is then:
                member.disconnected = True
                member.extend_session(self._timers.now_ms())
                return

    def _update(self, member: Member, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        if member.joining is not None:
            self.roster.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.roster.set_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        member.skip_assignment = join.skip_assignment
        member.disconnected = False
        self.roster.set_joining(member, then)
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
        self.roster.admit(member)
        self.roster.set_joining(member, then)
        member.session.set(self._timers.now_ms() + NEW_MEMBER_TIMEOUT_MS)
        self._record_event("joined", member, join.reason)
        self.rebalance.begin(_reason(f"a new member joined: {member.client}", join.reason), new_member=True)

    def _replace_static(self, member: Member, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        """A static member rejoined: give it a new id and fence the old one; an unchanged stable group needs no rebalance."""
        assert member.instance_id is not None
        old_id, new_id = member.member_id, new_member_id(member.instance_id)
        before = member.metadata(self.roster.protocol_name)
        old_protocols = member.protocols
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.roster.answer_join(member, JoinResult(fenced, old_id))
        member.answer_sync(SyncResult(fenced))
        self._rename(member, new_id)
        self._update(member, join, then)
        self._record_event("came back", member, f"static member {member.instance_id}, former member id {old_id}")
        unchanged = self.rebalance.state is STABLE and self.roster.vote() == self.roster.protocol_name
        if not (unchanged and before == member.metadata(self.roster.protocol_name)):
            if self.rebalance.state is STABLE or self.rebalance.state is COMPLETING:
                self.rebalance.prepare(f"static member {member.instance_id} rejoined with another subscription")
            self.rebalance.complete_if_all_joined()
            return

        generation = self.rebalance.generation_id

        def stored(error: ErrorCode) -> None:
            if (
                self.roster.members.get(new_id) is not member
                or self.rebalance.generation_id != generation
                or self.rebalance.state is not STABLE
            ):
                return  # a rebalance that began meanwhile answers the request
            if error is not ErrorCode.NONE:
                self._rename(member, old_id)
                self.roster.set_protocols(member, old_protocols)
                self.roster.answer_join(member, JoinResult(error, old_id))
                member.extend_session(self._timers.now_ms())
                return
            leads = self.roster.leader == new_id
            answer = self.rebalance.join_result(member)  # with the subscriptions, for a leader
            if leads and not join.skip_assignment:
                # Without SkipAssignment, name the old id as leader: the member acts as a follower and fetches its assignment.
                answer = answer._replace(leader=old_id, members=())
            elif leads:
                answer = answer._replace(skip_assignment=True)
            self.roster.answer_join(member, answer)
            member.extend_session(self._timers.now_ms())

        self._store(self.roster.assignments(), stored)

    def _rename(self, member: Member, member_id: str) -> None:
        old_id = member.member_id
        self.roster.rename(member, member_id)
        member.session.clear()
        member.session = self._session_of(member_id)
        self.rebalance.member_renamed(old_id, member_id)

    # -- Heartbeat, LeaveGroup, sessions ---------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        """Handle a Heartbeat."""
        if self.rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.member_error(member_id, instance_id)
        if error is not None:
            return error
        if self.rebalance.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != self.rebalance.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._extend_idle_session(self.roster.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.rebalance.state is PREPARING else ErrorCode.NONE

    def leave(self, members: Sequence[tuple[str, str | None, str]]) -> list[ErrorCode]:
        """Remove members, each (member id or "", instance id or None, reason); return one error for each.

        The rebalance begins or completes only after all of them are removed, so that no generation includes a leaving member.
        """
        why: list[str] = []
        errors = [self._leave(*member, why) for member in members]
        if why:
            self.rebalance.after_removal(why[0])
        else:
            self.rebalance.complete_if_all_joined()  # only pending ids were removed
        return errors

    def _leave(self, member_id: str, instance_id: str | None, reason: str, why: list[str]) -> ErrorCode:
        if self.rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is None and member_id in self.roster.pending:
            self.roster.forget_pending(member_id)
            return ErrorCode.NONE
        if instance_id is not None and not member_id:
            member_id = self.roster.static_members.get(instance_id, "")
        error = self.roster.member_error(member_id, instance_id)
        if error is not None:
            return error
        member = self.roster.members[member_id]
        self.rebalance.drop(member)
        self._record_event("left", member, reason)
        why.append(_reason(f"a member left: {member.client}", reason))
        return ErrorCode.NONE

    def commit_error(self, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """The error of an OffsetCommit, or NONE; a client without generation may commit while the group is empty."""
        if self.rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.rebalance.state is EMPTY:
            return NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.roster.member_error(member_id, instance_id)
        if error is not None:
            return error
        if generation_id != self.rebalance.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.rebalance.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._extend_idle_session(self.roster.members[member_id])
        return NONE

    def transactional_commit_error(self, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """The error of a TxnOffsetCommit, or NONE. Unlike for OffsetCommit, the group may be in any state but DEAD, and the
        client need not name a member, which it cannot before version 3."""
        if self.rebalance.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and (self.rebalance.state is EMPTY or (not member_id and instance_id is None)):
            return NONE
        error = self.roster.member_error(member_id, instance_id)
        if error is not None:
            return error
        return NONE if generation_id == self.rebalance.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _extend_idle_session(self, member: Member) -> None:
        """Extend the session of a member, unless a pending request suspends it."""
        if member.joining is None and member.syncing is None:
            member.extend_session(self._timers.now_ms())

    def _session_expired(self, member_id: str) -> None:
        member = self.roster.members.get(member_id)
        if member is None:
            return
        self.rebalance.drop(member)
        self._record_event(
            "expelled", member, f"no heartbeat within its session timeout of {member.session_timeout_ms} ms"
        )
        self.rebalance.after_removal(
            f"no heartbeat from a member within its session timeout of {member.session_timeout_ms} ms: {member.client}"
        )

    def _pending_expired(self, member_id: str) -> None:
        if self.roster.pending.pop(member_id, None) is not None:
            self.rebalance.complete_if_all_joined()

    # -- load and end ----------------------------------------------------------------------------------------------------

    def restore(self, generation_id: int, protocol_type: str | None, protocol_name: str | None, leader: str | None,
                members: list[tuple[JoinRequest, bytes]], state_since_ms: int) -> None:  # fmt: skip
        """Restore the group from its record in the log: members and assignments. Sessions start with `begin_sessions`."""
        roster = self.roster
        for join, assignment in members:
            member_id = join.member_id
            member = Member(
                member_id, join.instance_id, join.client_id, join.client_host, join.session_timeout_ms,
                join.rebalance_timeout_ms, join.protocol_type, join.protocols, self._session_of(member_id), assignment,
            )  # fmt: skip
            roster.admit(member)
            if join.instance_id is not None:
                roster.unconfirmed.add(member_id)
        roster.protocol_type, roster.protocol_name, roster.leader = protocol_type, protocol_name, leader
        self.rebalance.restore(generation_id, state_since_ms)

    def begin_sessions(self) -> None:
        """Start the sessions of all members. The caller does so only after the whole log is loaded, however long that takes."""
        for member in self.roster.members.values():
            member.extend_session(self._timers.now_ms())
        max_size = self._settings.max_size
        if len(self.roster.members) > max_size:
            self.rebalance.prepare(
                f"the group has {len(self.roster.members)} members, more than group.max.size ({max_size})"
            )

    def _session_of(self, member_id: str) -> Deadline:
        return Deadline(self._timers, lambda: self._session_expired(member_id))

    def die(self, error: ErrorCode) -> None:
        """End the group (deleted, or coordinated elsewhere): answer all pending requests with `error`."""
        self.rebalance.die(error)

    def _text_of_refusal(self, join: JoinRequest, error: ErrorCode) -> str:
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            return f"the group has group.max.size ({self._settings.max_size}) members"
        if error is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return ""
        names = ", ".join(name for name, _ in join.protocols) or "none"
        members = "the first member must state a protocol type and an assignor"
        if self.roster.members:
            members = f"all members must have the type {self.roster.protocol_type!r} and an assignor in common"
        return f"its protocol type is {join.protocol_type!r}, its assignors are {names}; {members}"

    def record_refusal(self, request: JoinRequest | HeartbeatRequest, error: ErrorCode, why: str) -> None:
        """Add a request to join that was refused to the history."""
        client = client_text(request.client_id, request.client_host)
        self.history.add_refusal(Event(self._timers.wall_ms(), "", request.member_id, client, f"{error.name}: {why}"))

    def _record_event(self, kind: str, member: Member | None = None, why: str = "", took_ms: int | None = None) -> None:
        member_id, client = (member.member_id, member.client) if member is not None else ("", "")
        self.history.add(Event(self._timers.wall_ms(), kind, member_id, client, why, took_ms))


def _reason(what: str, client_reason: str) -> str:
    return f"{what} ({client_reason})" if client_reason else what
