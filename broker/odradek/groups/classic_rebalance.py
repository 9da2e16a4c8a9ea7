"""The rebalance of a classic group: its members rejoin, the leader assigns, the coordinator stores and returns the
assignment.

States (Kafka's names), and the constants below:

    Empty                EMPTY       no members; offsets may exist
    PreparingRebalance   PREPARING   the coordinator collects the JoinGroups of all members
    CompletingRebalance  COMPLETING  the next generation is fixed; the leader must send the assignment
    Stable               STABLE      the assignment is stored; members fetch it and send heartbeats
    Dead                 DEAD        deleted, or moved to another coordinator or to the consumer protocol; final

Transitions (FOLLOWS has all that are allowed), and the events that cause them:

    Empty -> PreparingRebalance
        The first member joins. The join phase then lasts group.initial.rebalance.delay.ms, and again as long while
        members keep joining, at most the rebalance timeout.
    Stable, CompletingRebalance -> PreparingRebalance
        A member joins or rejoins with a change, the leader rejoins, a member leaves or its session expires, a member does
        not send SyncGroup in time (`_sync_deadline`), or the append of the assignment fails; also after a downgrade, or a
        load with more than group.max.size members. Pending SyncGroups get REBALANCE_IN_PROGRESS, or the error.
    PreparingRebalance -> CompletingRebalance
        All members have rejoined and no member id is pending, or the longest rebalance timeout is over (`_join_deadline`).
        Dynamic members that did not rejoin are removed; static ones stay. `generation_id` increases; every JoinGroup is
        answered; the leader's response has all subscriptions. If only static members are left and none rejoined, the
        timeout restarts.
    PreparingRebalance -> Empty
        The join phase ends without members.
    CompletingRebalance -> Stable
        The leader's SyncGroup brought the assignment, and the append to the log succeeded. Only then all SyncGroups are
        answered: no member owns what the log does not have.
    any -> Dead
        `die`: every pending request gets the error.

A member's session deadline is suspended while its JoinGroup or SyncGroup is pending (a new member has NEW_MEMBER_TIMEOUT_MS for
its first rebalance; a client that disconnects starts the session). State machine without I/O, a member of `ClassicGroup`
(`classic.py`). Runs in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from odradek.coordination.environment import AppendCallback, Deadline, Timers
from odradek.groups.classic_member import JoinResult, Member, SyncRequest, SyncResult
from odradek.groups.classic_roster import Roster
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode

Store = Callable[[Mapping[str, bytes], AppendCallback], None]
"""Stores the present generation of the group with these assignments by member id."""


class State(Enum):
    """Kafka's names of the states."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING = State.EMPTY, State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE
NONE = ErrorCode.NONE
STABLE, DEAD = State.STABLE, State.DEAD

FOLLOWS: Mapping[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}
"""The allowed next states of each state."""


class RecordEvent(Protocol):
    """Adds an event to the history of the group; see `history.Event`."""

    def __call__(self, kind: str, member: Member | None = None, why: str = "", took_ms: int | None = None) -> None: ...


class Rebalance:
    """The state, the generations and the pending requests of a group.

    :param roster: the members, shared with the group, which adds them and gives them new ids; the rebalance removes them.
    :param store: see `Store`; called with the assignment of each generation.
    :param record_event: see `RecordEvent`.
    :ivar state_since_ms: wall clock of the last transition, ms since 1970.
    """

    def __init__(
        self,
        group_id: str,
        roster: Roster,
        timers: Timers,
        settings: GroupSettings,
        store: Store,
        record_event: RecordEvent,
    ) -> None:
        self._group_id = group_id
        self._roster = roster
        self._timers = timers
        self._settings = settings
        self._store = store
        self._record_event = record_event
        self.state = EMPTY
        self.state_since_ms = timers.wall_ms()
        self.generation_id = 0
        self._join_deadline = Deadline(timers, self._join_phase_due)
        self._sync_deadline = Deadline(timers, self._sync_due)
        self._unsynced: set[str] = set()
        # Remaining delay of the first rebalance, which waits for more members; otherwise None.
        self._delay_left_ms: int | None = None
        self._joined_lately = False
        self._storing = False
        self._began_ms = 0

    # -- members join ---------------------------------------------------------------------------------------------------

    def begin(self, why: str, new_member: bool = False) -> None:
        """Begin a rebalance, unless one is in its join phase; end the join phase if all members have joined.

        :param why: the reason, for the history. :param new_member: a new member joined, so the initial delay is extended.
        """
        if new_member:
            self._joined_lately = True
        if self.state in (EMPTY, COMPLETING, STABLE):
            self.prepare(why)
        self.complete_if_all_joined()

    def prepare(self, why: str) -> None:
        """Begin a rebalance: all members must rejoin."""
        self._sync_deadline.clear()
        self._unsynced.clear()
        if self.state is COMPLETING:
            self._cancel_generation(ErrorCode.REBALANCE_IN_PROGRESS)
        first = self.state is EMPTY
        self._transition(PREPARING)
        self._began_ms = self._timers.now_ms()
        self._record_event("rebalance began", why=why)
        timeout_ms = self._roster.rebalance_timeout_ms
        delay_ms = self._settings.initial_rebalance_delay_ms
        if first and delay_ms > 0:
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._joined_lately = False
            timeout_ms = delay_ms
        else:
            self._delay_left_ms = None
        self._join_deadline.set(self._timers.now_ms() + timeout_ms)

    def _join_phase_due(self) -> None:
        if self._delay_left_ms is not None:
            if self._joined_lately and self._delay_left_ms > 0:
                delay_ms = min(self._settings.initial_rebalance_delay_ms, self._delay_left_ms)
                self._delay_left_ms -= delay_ms
                self._joined_lately = False
                self._join_deadline.set(self._timers.now_ms() + delay_ms)
                return
            self._delay_left_ms = None
        self._complete_join()

    def complete_if_all_joined(self) -> None:
        """End the join phase if all members have joined and no member id is pending."""
        if self.state is not PREPARING or self._delay_left_ms is not None or self._roster.pending:
            return
        if self._roster.joining == len(self._roster.members):
            self._complete_join()

    def _complete_join(self) -> None:
        """Form the next generation. Dynamic members that did not rejoin are removed; static members stay."""
        roster = self._roster
        for member in list(roster.members.values()):
            if member.joining is not None or member.instance_id is not None:
                continue
            self.drop(member)
            self._record_event("expelled", member, "it did not join the rebalance within the rebalance timeout")
        joined = [member for member in roster.members.values() if member.joining is not None]
        if roster.members and not joined:
            self._join_deadline.set(self._timers.now_ms() + roster.rebalance_timeout_ms)
            return
        self._join_deadline.clear()
        self._delay_left_ms = None
        self.generation_id += 1
        if not roster.members:
            roster.protocol_name = roster.leader = None
            self._transition(EMPTY)
            self._record_event("rebalance ended", why="no members are left", took_ms=self._took_ms())
            self._store({}, _ignore)
            return
        if roster.leader is None or roster.members[roster.leader].joining is None:
            roster.leader = joined[0].member_id
        roster.protocol_name = roster.vote()
        self._transition(COMPLETING)
        self._unsynced = set(roster.members)
        self._sync_deadline.set(self._timers.now_ms() + roster.rebalance_timeout_ms)
        for member in list(roster.members.values()):
            if member.joining is not None:
                if not member.disconnected:
                    member.extend_session(self._timers.now_ms())
                roster.answer_join(member, self.join_result(member))

    def join_result(self, member: Member) -> JoinResult:
        """The successful response to a JoinGroup of the present generation."""
        leads = member.member_id == self._roster.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self._roster.protocol_type,
            self._roster.protocol_name,
            self._roster.leader or "",
            members=self._roster.subscriptions() if leads else (),
        )

    def _took_ms(self) -> int:
        return self._timers.now_ms() - self._began_ms

    # -- the leader assigns ----------------------------------------------------------------------------------------------

    def sync(self, sync: SyncRequest, then: Callable[[SyncResult], None]) -> None:
        """Handle a SyncGroup: a member requests its assignment; the leader brings all assignments."""
        error = self._sync_error(sync)
        if error is not None:
            then(SyncResult(error))
            return
        member = self._roster.members[sync.member_id]
        self._unsynced.discard(member.member_id)
        if self.state is STABLE:
            member.extend_session(self._timers.now_ms())
            then(self._synced(member))
            return
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = then
        member.session.suspend()
        if member.member_id == self._roster.leader and not self._storing:
            self._store_assignments(
                {member_id: sync.assignments.get(member_id, b"") for member_id in self._roster.members}
            )

    def _sync_error(self, sync: SyncRequest) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._roster.member_error(sync.member_id, sync.instance_id)
        if error is not None:
            return error
        if sync.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        protocol_type, protocol_name = self._roster.protocol_type, self._roster.protocol_name
        if sync.protocol_type not in (None, protocol_type) or sync.protocol_name not in (None, protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else None

    def _store_assignments(self, assignments: Mapping[str, bytes]) -> None:
        generation = self.generation_id
        self._storing = True

        def stored(error: ErrorCode) -> None:
            if self.generation_id != generation or self.state is not COMPLETING:
                return  # another rebalance began meanwhile
            self._storing = False
            if error is not ErrorCode.NONE:
                self._cancel_generation(error)
                self.prepare(f"cannot store the assignment: {error.name}")
                return
            for member in self._roster.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            self._transition(STABLE)
            self._record_event("rebalance ended", why=f"generation {generation}", took_ms=self._took_ms())
            for member in list(self._roster.members.values()):
                if member.syncing is not None:
                    member.extend_session(self._timers.now_ms())
                    member.answer_sync(self._synced(member))

        self._store(assignments, stored)

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self._roster.protocol_type, self._roster.protocol_name, member.assignment)

    def _cancel_generation(self, error: ErrorCode) -> None:
        """Cancel the generation: clear all assignments and answer pending SyncGroups with `error`."""
        self._storing = False
        for member in list(self._roster.members.values()):
            member.assignment = b""
            if member.syncing is not None:
                if member.joining is None:  # otherwise the pending JoinGroup keeps the session suspended
                    member.extend_session(self._timers.now_ms())
                member.answer_sync(SyncResult(error))

    def _sync_due(self) -> None:
        """Remove members that joined and did not send SyncGroup within the rebalance timeout."""
        if self.state not in (COMPLETING, STABLE):
            return
        late = [self._roster.members[member_id] for member_id in self._unsynced if member_id in self._roster.members]
        self._unsynced.clear()
        for member in late:
            self.drop(member)
            self._record_event("expelled", member, "it did not request its assignment within the rebalance timeout")
        if late:
            self.after_removal("members did not request their assignments within the rebalance timeout")

    # -- sessions and removal --------------------------------------------------------------------------------------------

    def drop(self, member: Member) -> None:
        """Remove a member and answer its pending requests with UNKNOWN_MEMBER_ID."""
        member.session.clear()
        self._roster.remove(member)
        self._unsynced.discard(member.member_id)
        self._roster.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def after_removal(self, why: str) -> None:
        """Begin a rebalance after members were removed, or end its join phase if they were the last that it waited for."""
        if self.state in (COMPLETING, STABLE):
            self.prepare(why)
        self.complete_if_all_joined()

    def _transition(self, state: State) -> None:
        assert state in FOLLOWS[self.state], f"group {self._group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = self._timers.wall_ms()

    def member_renamed(self, old_id: str, member_id: str) -> None:
        """Apply the new id of a member."""
        if old_id in self._unsynced:
            self._unsynced.discard(old_id)
            self._unsynced.add(member_id)

    # -- load and end ----------------------------------------------------------------------------------------------------

    def restore(self, generation_id: int, state_since_ms: int) -> None:
        """Restore the state from the group's record in the log: Stable, or Empty without members."""
        self.generation_id = generation_id
        self.state = STABLE if self._roster.members else EMPTY
        self.state_since_ms = state_since_ms

    def die(self, error: ErrorCode) -> None:
        """End in state Dead: answer all pending requests with `error`, stop all timers."""
        self._join_deadline.clear()
        self._sync_deadline.clear()
        for deadline in self._roster.pending.values():
            deadline.clear()
        self._roster.pending.clear()
        for member in list(self._roster.members.values()):
            member.session.clear()
            self._roster.answer_join(member, JoinResult(error, member.member_id))
            member.answer_sync(SyncResult(error))
        if self.state is not DEAD:
            self._transition(DEAD)


def _ignore(error: ErrorCode) -> None:
    """Ignore a failed append of an empty generation: the next JoinGroup begins a new generation."""
