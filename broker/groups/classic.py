"""A group of the classic protocol: members that join, one of them (the leader) that assigns, sessions that expire.

A state machine without I/O: verbs take plain values and a callback that is called exactly once; time and durability are
handed in. Runs in the coordinator process's loop. Source: KIP-62, 134, 345, 394, 559, 568, 800, 814; the behaviour is that of
Kafka's coordinator where they leave it open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from broker.groups.classic_member import Join, Joined, Member, Protocols, Sync, Synced
from broker.groups.environment import Appended, Deadline, GroupSettings, Timers, new_member_id
from broker.groups.history import Event, History
from broker.protocol.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member that waits so long for its first rebalance is taken for gone."""

Persist = Callable[["ClassicGroup", Mapping[str, bytes], Appended], None]
"""Makes the group durable as it is, with these assignments by member id."""


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
"""From each state, those that may come next."""


class ClassicGroup:
    """:param persist: see `Persist`; called when a generation is complete, and when a static member gets a new id."""

    def __init__(self, group_id: str, timers: Timers, settings: GroupSettings, persist: Persist) -> None:
        self.group_id = group_id
        self._timers = timers
        self._settings = settings
        self._persist = persist
        self.state = EMPTY
        self.state_since_ms = timers.wall_ms()
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, Deadline] = {}
        self.history = History()
        self._rebalance = Deadline(timers, self._rebalance_due)
        self._sync = Deadline(timers, self._sync_due)
        self._joining = 0  # members with a JoinGroup under way
        self._supporters: Counter[str] = Counter()  # members by assignor
        self._unsynced: set[str] = set()
        self._delay_left_ms: int | None = None  # of the first rebalance, which waits for more members; None later
        self._joined_lately = False
        self._storing = False
        self._rebalance_began_ms = 0

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    # -- JoinGroup ------------------------------------------------------------------------------------------------

    def join(self, join: Join, then: Callable[[Joined], None]) -> None:
        """A member joins, or joins again. The answer comes when the rebalance that this may cause is through."""
        error = self._refusal(join)
        if error is not None:
            then(Joined(error, join.member_id))
            if join.member_id in self.pending and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._forget_pending(join.member_id)
                self._complete_if_all_joined()  # it may have been the last that was waited for
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
            then(Joined(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(new_member_id(join.client_id), join, then)

    def _refusal(self, join: Join) -> ErrorCode | None:
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._can_join(join):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.member_id not in self.members and self._full():
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return None

    def _full(self) -> bool:
        if self.state is EMPTY:
            return False
        if self.state is PREPARING:
            return self._joining >= self._settings.max_size
        return len(self.members) >= self._settings.max_size

    def _can_join(self, join: Join) -> bool:
        """Whether a member with these protocols has one in common with all the others, itself as it was among them."""
        if not self.members:
            return can_be_first(join)
        if join.protocol_type == self.protocol_type:
            for name, _ in join.protocols:
                if self._all_support(name):
                    return True
        return False

    def _all_support(self, name: str) -> bool:
        return self._supporters[name] == len(self.members)

    def _join_again(self, join: Join, then: Callable[[Joined], None]) -> None:
        if join.member_id in self.pending:
            if join.instance_id is not None:
                then(Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            self._forget_pending(join.member_id)
            self._add(join.member_id, join, then)
            return
        error = self.member_error(join.member_id, join.instance_id)
        if error is not None:
            then(Joined(error, join.member_id))
            return
        member = self.members[join.member_id]
        unchanged = list(member.protocols) == list(join.protocols)
        if self.state is COMPLETING and unchanged:
            # Its answer was lost: here it is again.
            self._stay_alive(member)
            then(self._joined(member))
        elif self.state is STABLE and unchanged and member.member_id != self.leader:
            self._stay_alive(member)
            then(self._joined(member))
        elif self.state is EMPTY:
            then(Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
        else:
            self._update(member, join, then)
            why = ""
            if self.state is not PREPARING:  # else it comes to the rebalance that others began
                why = "the leader joins again" if member.member_id == self.leader else "a member joins again"
                why = _reason(f"{why}: {member.client}", join.reason)
            self._maybe_rebalance(why)

    def _update(self, member: Member, join: Join, then: Callable[[Joined], None]) -> None:
        if member.joining is not None:
            self._answer_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._set_protocols(member, join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.client_id, member.client_host = join.client_id, join.client_host
        member.skip_assignment = join.skip_assignment
        self._set_joining(member, then)
        member.session.suspend()

    def _set_joining(self, member: Member, then: Callable[[Joined], None]) -> None:
        """Of one who has no JoinGroup under way: it has."""
        member.joining = then
        self._joining += 1

    def _answer_join(self, member: Member, answer: Joined) -> None:
        """Answer a member's JoinGroup, if one is under way."""
        then, member.joining = member.joining, None
        if then is not None:
            self._joining -= 1
            then(answer)

    def _set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Of a member of the group."""
        before, after = names_of(member.protocols), names_of(protocols)
        member.protocols = protocols
        if before != after:
            self._count_out(before)
            self._supporters.update(after)

    def _count_out(self, names: set[str]) -> None:
        for name in names:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def _add(self, member_id: str, join: Join, then: Callable[[Joined], None]) -> None:
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
        self._note("joined", member, join.reason)
        self._maybe_rebalance(_reason(f"a new member: {member.client}", join.reason))

    def _admit(self, member: Member) -> None:
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        self._supporters.update(names_of(member.protocols))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _replace_static(self, member: Member, join: Join, then: Callable[[Joined], None]) -> None:
        """A static member came back: it gets a new id, whoever still uses the old one is fenced, and a stable group goes on."""
        assert member.instance_id is not None
        old_id, new_id = member.member_id, new_member_id(member.instance_id)
        before = member.metadata(self.protocol_name)
        old_protocols = member.protocols
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(member, Joined(fenced, old_id))
        member.answer_sync(Synced(fenced))
        self._rename(member, new_id)
        self._update(member, join, then)
        self._note("came back", member, f"static member {member.instance_id}, before {old_id}")
        same = self.state is STABLE and self._vote() == self.protocol_name
        if not (same and before == member.metadata(self.protocol_name)):
            if self.state is STABLE or self.state is COMPLETING:
                self._prepare(f"static member {member.instance_id} came back with another subscription")
            self._complete_if_all_joined()
            return

        generation = self.generation_id

        def stored(error: ErrorCode) -> None:
            if self.members.get(new_id) is not member or self.generation_id != generation or self.state is not STABLE:
                return  # meanwhile another rebalance answers it
            if error is not ErrorCode.NONE:
                self._rename(member, old_id)
                self._set_protocols(member, old_protocols)
                self._answer_join(member, Joined(error, old_id))
                self._stay_alive(member)
                return
            leads = self.leader == new_id
            answer = self._joined(member)
            if leads and not join.skip_assignment:
                # It takes itself for a follower then, and asks for its assignment instead of computing all anew.
                answer = Joined(
                    ErrorCode.NONE, new_id, generation, self.protocol_type, self.protocol_name, old_id, members=()
                )
            elif leads:
                answer = Joined(
                    ErrorCode.NONE, new_id, generation, self.protocol_type, self.protocol_name, new_id, True,
                    self._subscriptions(),
                )  # fmt: skip
            self._answer_join(member, answer)
            self._stay_alive(member)

        self._persist(self, self.assignments(), stored)

    def _rename(self, member: Member, member_id: str) -> None:
        old_id = member.member_id
        self.members = {
            (member_id if one == old_id else one): other for one, other in self.members.items()
        }  # in its place, so that the order of members stays
        member.member_id = member_id
        member.session.clear()
        member.session = self._session_of(member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self._unsynced:
            self._unsynced.discard(old_id)
            self._unsynced.add(member_id)

    def _joined(self, member: Member) -> Joined:
        leads = member.member_id == self.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            members=self._subscriptions() if leads else (),
        )

    def _subscriptions(self) -> list[tuple[str, str | None, bytes]]:
        return [
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    # -- the rebalance --------------------------------------------------------------------------------------------

    def rebalance(self, why: str) -> None:
        """Have all members join again."""
        self._maybe_rebalance(why)

    def _maybe_rebalance(self, why: str) -> None:
        if self.state in (EMPTY, COMPLETING, STABLE):
            self._prepare(why)
        self._complete_if_all_joined()

    def _prepare(self, why: str) -> None:
        """Begin a rebalance: all members are to join again."""
        self._sync.clear()
        self._unsynced.clear()
        if self.state is COMPLETING:
            self._drop_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        first = self.state is EMPTY
        self._transition(PREPARING)
        self._rebalance_began_ms = self._timers.now_ms()
        self._note("rebalance began", why=why)
        timeout_ms = self.rebalance_timeout_ms
        delay_ms = self._settings.initial_rebalance_delay_ms
        if first and delay_ms > 0:
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            self._joined_lately = False
            timeout_ms = delay_ms
        else:
            self._delay_left_ms = None
        self._rebalance.set(self._timers.now_ms() + timeout_ms)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

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
        """Those who joined make the next generation; a dynamic member who did not is out, a static one keeps its place."""
        for member in [one for one in self.members.values() if one.joining is None and one.instance_id is None]:
            self._drop(member)
            self._note("expelled", member, "it did not join the rebalance in time")
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
            self._note("rebalance ended", why="nobody is left", took_ms=self._took_ms())
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
                self._stay_alive(member)
                self._answer_join(member, self._joined(member))

    def _vote(self) -> str | None:
        """The assignor that most members like best among those that all support."""
        candidates = [
            name
            for name, _ in self.members[self.leader or next(iter(self.members))].protocols
            if self._all_support(name)
        ]
        if len(candidates) == 1:
            return candidates[0]
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        return max(candidates, key=lambda name: votes[name])

    def _took_ms(self) -> int:
        return self._timers.now_ms() - self._rebalance_began_ms

    # -- SyncGroup ------------------------------------------------------------------------------------------------

    def sync(self, sync: Sync, then: Callable[[Synced], None]) -> None:
        """A member asks for its assignment; the leader brings those of all."""
        error = self._sync_error(sync)
        if error is not None:
            then(Synced(error))
            return
        member = self.members[sync.member_id]
        self._unsynced.discard(member.member_id)
        if self.state is STABLE:
            self._stay_alive(member)
            then(self._synced(member))
            return
        member.answer_sync(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = then
        member.session.suspend()
        if member.member_id == self.leader and not self._storing:
            self._store({one: sync.assignments.get(one, b"") for one in self.members})

    def _sync_error(self, sync: Sync) -> ErrorCode | None:
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
                return  # that generation came to nothing meanwhile
            self._storing = False
            if error is not ErrorCode.NONE:
                self._drop_syncs(error)
                self._prepare(f"the assignment could not be stored: {error.name}")
                return
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            self._transition(STABLE)
            self._note("rebalance ended", why=f"generation {generation}", took_ms=self._took_ms())
            for member in list(self.members.values()):
                if member.syncing is not None:
                    self._stay_alive(member)
                    member.answer_sync(self._synced(member))

        self._persist(self, assignments, stored)

    def _synced(self, member: Member) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _drop_syncs(self, error: ErrorCode) -> None:
        """The generation comes to nothing: assignments are void, whoever waits for one is told `error`."""
        self._storing = False
        for member in list(self.members.values()):
            member.assignment = b""
            if member.syncing is not None:
                self._stay_alive(member)
                member.answer_sync(Synced(error))

    def _sync_due(self) -> None:
        """Members that joined and did not come for their assignment are gone."""
        if self.state not in (COMPLETING, STABLE):
            return
        late = [self.members[one] for one in self._unsynced if one in self.members]
        self._unsynced.clear()
        for member in late:
            self._drop(member)
            self._note("expelled", member, "it did not ask for its assignment in time")
        if late:
            self._after_removal("members did not ask for their assignments in time")

    # -- Heartbeat, LeaveGroup, sessions --------------------------------------------------------------------------

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        """A sign of life."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.member_error(member_id, instance_id)
        if error is not None:
            return error
        if self.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._stay_alive(self.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None = None, reason: str = "") -> ErrorCode:
        """A member leaves by its id, or by its instance id with an empty member id."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is None and member_id in self.pending:
            self._forget_pending(member_id)
            self._complete_if_all_joined()
            return ErrorCode.NONE
        if instance_id is not None and not member_id:
            member_id = self.static_members.get(instance_id, "")
        error = self.member_error(member_id, instance_id)
        if error is not None:
            return error
        member = self.members[member_id]
        self._drop(member)
        self._note("left", member, reason)
        self._after_removal(_reason(f"a member left: {member.client}", reason))
        return ErrorCode.NONE

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this is not a member of the group; None if it is."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_error(self, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """Whether a member may commit offsets now; a client without generation may while the group is empty."""
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
        self._stay_alive(self.members[member_id])
        return NONE

    def _stay_alive(self, member: Member) -> None:
        member.session.set(self._timers.now_ms() + member.session_timeout_ms)

    def _session_expired(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        self._drop(member)
        self._note("expelled", member, f"silent for {member.session_timeout_ms} ms")
        self._after_removal(f"a member was silent for {member.session_timeout_ms} ms: {member.client}")

    def _pending_expired(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._complete_if_all_joined()

    def _forget_pending(self, member_id: str) -> None:
        deadline = self.pending.pop(member_id, None)
        if deadline is not None:
            deadline.clear()

    def _drop(self, member: Member) -> None:
        member.session.clear()
        del self.members[member.member_id]
        self._count_out(names_of(member.protocols))
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self._answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.answer_sync(Synced(ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_removal(self, why: str) -> None:
        if self.state in (COMPLETING, STABLE):
            self._prepare(why)
        self._complete_if_all_joined()

    # -- the rest -------------------------------------------------------------------------------------------------

    def assignments(self) -> dict[str, bytes]:
        """By member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    def restore(self, generation_id: int, protocol_type: str | None, protocol_name: str | None, leader: str | None,
                members: list[tuple[Join, bytes]], state_since_ms: int) -> None:  # fmt: skip
        """Take over what the log says of the group: its members with their assignments; see `begin_sessions`."""
        self.generation_id, self.protocol_type = generation_id, protocol_type
        for join, assignment in members:
            member_id = join.member_id
            member = Member(
                member_id, join.instance_id, join.client_id, join.client_host, join.session_timeout_ms,
                join.rebalance_timeout_ms, join.protocol_type, join.protocols, self._session_of(member_id), assignment,
            )  # fmt: skip
            self._admit(member)
        self.protocol_type, self.protocol_name, self.leader = protocol_type, protocol_name, leader
        self.state = STABLE if members else EMPTY
        self.state_since_ms = state_since_ms

    def begin_sessions(self) -> None:
        """From now on members may be expelled; not before all of the log was read, however long that takes."""
        for member in self.members.values():
            self._stay_alive(member)

    def _session_of(self, member_id: str) -> Deadline:
        return Deadline(self._timers, lambda: self._session_expired(member_id))

    def die(self, error: ErrorCode) -> None:
        """The group is deleted, or another broker coordinates it from now on: whoever waits is told `error`."""
        self._rebalance.clear()
        self._sync.clear()
        for deadline in self.pending.values():
            deadline.clear()
        self.pending.clear()
        for member in list(self.members.values()):
            member.session.clear()
            self._answer_join(member, Joined(error, member.member_id))
            member.answer_sync(Synced(error))
        if self.state is not DEAD:
            self._transition(DEAD)

    def _transition(self, state: State) -> None:
        assert state in FOLLOWS[self.state], f"group {self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = self._timers.wall_ms()

    def _note(self, kind: str, member: Member | None = None, why: str = "", took_ms: int | None = None) -> None:
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


def names_of(protocols: Protocols) -> set[str]:
    """The assignors, each once."""
    return {name for name, _ in protocols}


def can_be_first(join: Join) -> bool:
    """Whether this makes a member of a group that has none."""
    return bool(join.protocol_type) and bool(join.protocols)


def _reason(what: str, clients: str) -> str:
    return f"{what} ({clients})" if clients else what


def _ignore(error: ErrorCode) -> None:
    """An empty generation that is not stored is made again at the next join."""
