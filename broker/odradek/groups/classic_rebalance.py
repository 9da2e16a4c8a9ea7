"""The rebalance of a classic group: its members rejoin, the leader assigns, the coordinator stores and returns the
assignment.

States (Kafka's names), and the constants below:

    Empty                EMPTY       no members; offsets may exist
    PreparingRebalance   PREPARING   the coordinator collects JoinGroup requests of all members
    CompletingRebalance  COMPLETING  the next generation is fixed; the leader must send the assignment
    Stable               STABLE      the assignment is stored; members fetch it and send heartbeats
    Dead                 DEAD        deleted, or moved to another coordinator or to the consumer protocol; final

Transitions and their causes (FOLLOWS contains each transition):

    Empty -> PreparingRebalance
        The first member joins. `_rebalance` fires after group.initial.rebalance.delay.ms, and later while members keep
        joining, at most until the rebalance timeout.
    Stable, CompletingRebalance -> PreparingRebalance
        A member joins, or rejoins with a change; the leader rejoins; a member leaves or its session expires; a member does not
        send SyncGroup in time (`_sync`); or the append of the assignment fails. Also after a downgrade, and after a load with
        more than group.max.size members. Pending SyncGroups get REBALANCE_IN_PROGRESS (or the error).
    PreparingRebalance -> CompletingRebalance
        All members have rejoined and no member id is pending, or `_rebalance` fires after the longest rebalance timeout.
        Dynamic members that did not rejoin are removed; static ones stay. `generation_id` increases; every JoinGroup is
        answered; the leader's response has all subscriptions. If only static members are left and none rejoined, the timer
        restarts.
    PreparingRebalance -> Empty
        The timer fires or the last member leaves, and no member is left.
    CompletingRebalance -> Stable
        The leader's SyncGroup brought the assignment, and the append to the log succeeded. Only then all SyncGroups are
        answered: no member owns what the log does not contain.
    any -> Dead
        `ClassicGroup.die`: every pending request gets the error.

A member's session deadline is suspended while its JoinGroup or SyncGroup is pending (a new member has NEW_MEMBER_TIMEOUT_MS for
its first rebalance; a client that disconnects starts the session). State machine without I/O; its subclass is
in `classic.py`. Runs in the coordinator's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from odradek.groups.classic_member import JoinResult, Member, SyncRequest, SyncResult
from odradek.groups.classic_roster import Roster
from odradek.groups.environment import AppendCallback, Deadline, Timers
from odradek.groups.history import Event, History
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode

Persist = Callable[["Rebalance", Mapping[str, bytes], AppendCallback], None]
"""Stores the current state of the group with the given assignments by member id."""


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


class Rebalance(Roster):
    """The members and the rebalance of a group.

    :param persist: see `Persist`; called with the assignment of each generation.
    """

    def __init__(self, group_id: str, timers: Timers, settings: GroupSettings, persist: Persist) -> None:
        super().__init__()
        self.group_id = group_id
        self._timers = timers
        self._settings = settings
        self._persist = persist
        self.state = EMPTY
        self.state_since_ms = timers.wall_ms()
        self.generation_id = 0
        self.pending: dict[str, Deadline] = {}
        self.history = History()
        self._rebalance = Deadline(timers, self._rebalance_due)
        self._sync = Deadline(timers, self._sync_due)
        self._unsynced: set[str] = set()
        self._delay_left_ms: int | None = (
            None  # remaining delay of the first rebalance, which waits for more members; otherwise None
        )
        self._joined_lately = False
        self._storing = False
        self._rebalance_began_ms = 0

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    # -- members join ---------------------------------------------------------------------------------------------------

    def rebalance(self, why: str) -> None:
        """Begin a rebalance, unless one is in its join phase."""
        self._maybe_rebalance(why)

    def _maybe_rebalance(self, why: str) -> None:
        if self.state in (EMPTY, COMPLETING, STABLE):
            self._prepare(why)
        self._complete_if_all_joined()

    def _prepare(self, why: str) -> None:
        """Begin a rebalance: all members must rejoin."""
        self._sync.clear()
        self._unsynced.clear()
        if self.state is COMPLETING:
            self._drop_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        first = self.state is EMPTY
        self._transition(PREPARING)
        self._rebalance_began_ms = self._timers.now_ms()
        self._record_event("rebalance began", why=why)
        timeout_ms = self.rebalance_timeout_ms
        delay_ms = self._settings.initial_rebalance_delay_ms
        if first and delay_ms > 0:
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._joined_lately = False
            timeout_ms = delay_ms
        else:
            self._delay_left_ms = None
        self._rebalance.set(self._timers.now_ms() + timeout_ms)

    def _rebalance_due(self) -> None:
        if self._delay_left_ms is not None:
            if self._joined_lately and self._delay_left_ms > 0:
                delay_ms = min(self._settings.initial_rebalance_delay_ms, self._delay_left_ms)
                self._delay_left_ms -= delay_ms
                self._joined_lately = False
                self._rebalance.set(self._timers.now_ms() + delay_ms)
                return
            self._delay_left_ms = None
        self._complete_join()

    def _complete_if_all_joined(self) -> None:
        if self.state is not PREPARING or self._delay_left_ms is not None or self.pending:
            return
        if self._joining == len(self.members):
            self._complete_join()

    def _complete_join(self) -> None:
        """Form the next generation. Dynamic members that did not rejoin are removed; static members stay."""
        for member in [late for late in self.members.values() if late.joining is None and late.instance_id is None]:
            self._drop(member)
            self._record_event("expelled", member, "it did not join the rebalance within the rebalance timeout")
        joined = [member for member in self.members.values() if member.joining is not None]
        if self.members and not joined:
            self._rebalance.set(self._timers.now_ms() + self.rebalance_timeout_ms)
            return
        self._rebalance.clear()
        self._delay_left_ms = None
        self.generation_id += 1
        if not self.members:
            self.protocol_name = self.leader = None
            self._transition(EMPTY)
            self._record_event("rebalance ended", why="no members are left", took_ms=self._took_ms())
            self._persist(self, {}, _ignore)
            return
        if self.leader is None or self.members[self.leader].joining is None:
            self.leader = joined[0].member_id
        self.protocol_name = self._vote()
        self._transition(COMPLETING)
        self._unsynced = set(self.members)
        self._sync.set(self._timers.now_ms() + self.rebalance_timeout_ms)
        for member in list(self.members.values()):
            if member.joining is not None:
                if not member.disconnected:
                    self._extend_session(member)
                self._answer_join(member, self._joined(member))

    def _joined(self, member: Member) -> JoinResult:
        leads = member.member_id == self.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            members=self._subscriptions() if leads else (),
        )

    def _took_ms(self) -> int:
        return self._timers.now_ms() - self._rebalance_began_ms

    # -- the leader assigns ----------------------------------------------------------------------------------------------

    def sync(self, sync: SyncRequest, then: Callable[[SyncResult], None]) -> None:
        """Handle a SyncGroup: a member requests its assignment; the leader brings all assignments."""
        error = self._sync_error(sync)
        if error is not None:
            then(SyncResult(error))
            return
        member = self.members[sync.member_id]
        self._unsynced.discard(member.member_id)
        if self.state is STABLE:
            self._extend_session(member)
            then(self._synced(member))
            return
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = then
        member.session.suspend()
        if member.member_id == self.leader and not self._storing:
            self._store({member_id: sync.assignments.get(member_id, b"") for member_id in self.members})

    def _sync_error(self, sync: SyncRequest) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.member_error(sync.member_id, sync.instance_id)
        if error is not None:
            return error
        if sync.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else None

    def _store(self, assignments: Mapping[str, bytes]) -> None:
        generation = self.generation_id
        self._storing = True

        def stored(error: ErrorCode) -> None:
            if self.generation_id != generation or self.state is not COMPLETING:
                return  # another rebalance began meanwhile
            self._storing = False
            if error is not ErrorCode.NONE:
                self._drop_syncs(error)
                self._prepare(f"cannot store the assignment: {error.name}")
                return
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            self._transition(STABLE)
            self._record_event("rebalance ended", why=f"generation {generation}", took_ms=self._took_ms())
            for member in list(self.members.values()):
                if member.syncing is not None:
                    self._extend_session(member)
                    member.answer_sync(self._synced(member))

        self._persist(self, assignments, stored)

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _drop_syncs(self, error: ErrorCode) -> None:
        """Cancel the generation: clear all assignments and answer pending SyncGroups with `error`."""
        self._storing = False
        for member in list(self.members.values()):
            member.assignment = b""
            if member.syncing is not None:
                if member.joining is None:  # otherwise the pending JoinGroup keeps the session suspended
                    self._extend_session(member)
                member.answer_sync(SyncResult(error))

    def _sync_due(self) -> None:
        """Remove members that joined and did not send SyncGroup within the rebalance timeout."""
        if self.state not in (COMPLETING, STABLE):
            return
        late = [self.members[member_id] for member_id in self._unsynced if member_id in self.members]
        self._unsynced.clear()
        for member in late:
            self._drop(member)
            self._record_event("expelled", member, "it did not request its assignment within the rebalance timeout")
        if late:
            self._after_removal("members did not request their assignments within the rebalance timeout")

    # -- sessions and removal --------------------------------------------------------------------------------------------

    def _extend_session(self, member: Member) -> None:
        member.session.set(self._timers.now_ms() + member.session_timeout_ms)

    def _drop(self, member: Member) -> None:
        member.session.clear()
        self._remove_member(member)
        self._unsynced.discard(member.member_id)
        self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_removal(self, why: str) -> None:
        if self.state in (COMPLETING, STABLE):
            self._prepare(why)
        self._complete_if_all_joined()

    def _transition(self, state: State) -> None:
        assert state in FOLLOWS[self.state], f"group {self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = self._timers.wall_ms()

    def _record_event(self, kind: str, member: Member | None = None, why: str = "", took_ms: int | None = None) -> None:
        self.history.add(
            Event(
                self._timers.wall_ms(),
                kind,
                member.member_id if member else "",
                member.client if member else "",
                why,
                took_ms,
            )
        )


def _ignore(error: ErrorCode) -> None:
    """Ignore a failed append of an empty generation: the next join begins a new one."""
