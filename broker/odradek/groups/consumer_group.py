"""A group of the newer protocol (KIP-848): members send heartbeats only; the broker assigns and leads each to its target.

A change of who is there or what is subscribed raises the group's epoch; the assignor then computes a target assignment of
that epoch; each member, at its own heartbeats, gives up what it shall not have and only then gets what others gave up.
A state machine without I/O, as `classic.py`. Every change is made durable by records before the member is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from odradek.groups import consumer_records as written
from odradek.groups.assignors import ASSIGNORS, Place, Subscriber
from odradek.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    ConsumerMember,
    HeartbeatRequest,
    HeartbeatResult,
    MemberState,
)
from odradek.groups.consumer_metadata import CONSUMER
from odradek.groups.consumer_refusals import identity_refusal, refusal
from odradek.groups.environment import AppendCallback, Deadline, Record, Timers, Topics
from odradek.groups.fencing import instance_error
from odradek.groups.history import Event, History
from odradek.groups.patterns import TopicPatterns
from odradek.groups.settings import ConsumerSettings, SettingsSource
from odradek.groups.subscriptions import Subscriptions, subscription_of
from odradek.protocol.errors import ErrorCode

Persist = Callable[["ConsumerGroup", Sequence[Record], AppendCallback], None]
"""Makes records durable, as `GroupLog.append`, in order; also without records."""


class ConsumerGroup:
    """:param persist: see `Persist`.
    :param patterns: of all groups; None: of this one alone, matched at once.
    """

    protocol_type = CONSUMER

    def __init__(
        self,
        group_id: str,
        timers: Timers,
        settings: SettingsSource,
        topics: Topics,
        persist: Persist,
        patterns: TopicPatterns | None = None,
    ) -> None:
        self.group_id = group_id
        self._timers = timers
        self._source = settings
        self._topics = topics
        self._persist = persist
        self.epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, frozenset[Place]] = {}
        self.history = History()
        self.dead = False
        self.state_since_ms = timers.wall_ms()
        self._holders: dict[Place, str] = {}
        self._held: dict[str, frozenset[Place]] = {}
        self._assigned_at_ms: int | None = None
        self._subscriptions = Subscriptions(topics, patterns or TopicPatterns(topics))

    @property
    def _settings(self) -> ConsumerSettings:
        return self._source.of(self.group_id)

    # -- what it is ------------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        if self.dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        stable = all(
            member.state is MemberState.STABLE and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if stable else "Reconciling"

    @property
    def empty(self) -> bool:
        """Whether nobody is a member."""
        return not self.members

    def subscribed(self) -> set[str]:
        """Names of the topics that members read."""
        return self._subscriptions.of(self.members.values())

    @property
    def patterns(self) -> frozenset[str]:
        """The patterns that members subscribe to."""
        return self._subscriptions.patterns(self.members)

    @property
    def assignor(self) -> str:
        """The one that most members ask for; the broker's first where nobody asks."""
        asked = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return asked.most_common(1)[0][0] if asked else self._settings.assignors[0]

    @property
    def all_classic(self) -> bool:
        """Whether members are there, and all of them are of the classic protocol."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    # -- heartbeats ------------------------------------------------------------------------------------------------------

    def heartbeat(self, beat: HeartbeatRequest, then: Callable[[HeartbeatResult], None]) -> None:
        """A member joins, lives or leaves; answered when what changed is durable."""
        if self.dead:
            then(HeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._record_claim(beat)
        if beat.member_epoch in (LEAVING, LEAVING_STATIC):
            self._leave(beat, then)
            return
        refused = refusal(self, self._settings, beat)
        if refused is not None:
            then(refused)
            return
        changes: list[Record] = []
        member = self._member(beat, changes)
        member.confirmed, member.claimed_by = True, None
        self._take_over(member, beat, changes)
        self._assign(changes)
        joins = beat.member_epoch == JOINING
        if member.reconcile(
            self.target.get(member.member_id, frozenset()), self.assignment_epoch, beat.owned, self._holders.get
        ):
            self.hold(member)
            changes.append(written.current_record(self, member))
        self._watch(member)
        # CachedContext in full when it joins and when it reports everything, because then it may have lost what it was told.
        same = member.reported_assignment is member.assigned or member.reported_assignment == member.assigned
        tell = joins or not same or (beat.owned is not None and beat.topics is not None)
        member.reported_assignment = member.assigned if tell else member.reported_assignment
        answer = HeartbeatResult(
            ErrorCode.NONE, None, member.member_id, member.epoch, member.assigned if tell else None
        )

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                member.reported_assignment = None
            then(answer if error is ErrorCode.NONE else HeartbeatResult(error))

        # Also without changes: what others, or an answer that came late, brought about must be durable.
        self._persist(self, changes, stored)

    def _record_claim(self, beat: HeartbeatRequest) -> None:
        """Note that a member claims an instance id whose holder has sent no request since it was read from the log.

        The log may have lost the member's join. The member is made to join again, which replaces the holder; see `fencing`.
        """
        if beat.instance_id is None or beat.member_epoch == JOINING:
            return
        holder = self.members.get(self.static_members.get(beat.instance_id, ""))
        if holder is not None and not holder.confirmed and holder.member_id != beat.member_id:
            holder.claimed_by = beat.member_id

    def instance_error(self, instance_id: str | None, member_id: str) -> ErrorCode | None:
        """Why a member of the classic protocol with this id does not own the instance id; None if it does, or names none."""
        holder = self.members.get(self.static_members.get(instance_id or "", ""))
        unconfirmed = () if holder is None or holder.confirmed else (holder.member_id,)
        return instance_error(self.static_members, instance_id, member_id, unconfirmed)

    def _member(self, beat: HeartbeatRequest, changes: list[Record]) -> ConsumerMember:
        """The member that the heartbeat is of, made if it joins; a static one that came back takes over what it had."""
        member = self.members.get(beat.member_id)
        if member is not None:
            if beat.member_epoch == JOINING:
                member.reported_assignment = None
            return member
        member = ConsumerMember(beat.member_id, beat.instance_id)
        old = self.members.get(self.static_members.get(beat.instance_id, "")) if beat.instance_id is not None else None
        if old is not None:
            changes += self.forget(old)
            member.assigned, member.revoking, member.state = old.assigned, old.revoking, old.state
            member.since = dict.fromkeys(old.since, 0)
            member.topics, member.pattern, member.assignor = old.topics, old.pattern, old.assignor
            member.rack_id, member.rebalance_timeout_ms = old.rack_id, old.rebalance_timeout_ms
            target = self.target.pop(old.member_id, None)
            if target is not None:
                self.target[member.member_id] = target
                changes.append(written.target_record(self, member.member_id))
            member.client_id, member.client_host = beat.client_id, beat.client_host
            changes.append(written.member_record(self, member))
        self.admit(member)
        self.hold(member)
        what = "came back" if old is not None else "joined"
        self._record_event(
            what, member, client=f"{beat.client_id} at {beat.client_host}"
        )  # the member is told of it later
        return member

    def admit(self, member: ConsumerMember) -> None:
        """Make it a member; what it holds is another matter."""
        member_id = member.member_id
        member.session = Deadline(
            self._timers, lambda: self._expel(member_id, "no heartbeat within its session timeout")
        )
        member.revocation = Deadline(
            self._timers,
            lambda: self._expel(member_id, "it did not release revoked partitions within its rebalance timeout"),
        )
        self.members[member_id] = member
        self._subscriptions.changed()
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _take_over(self, member: ConsumerMember, beat: HeartbeatRequest, changes: list[Record]) -> None:
        """What the heartbeat says of the member; a change of subscription, or of the topics, raises the group's epoch."""
        subscription = member.topics, member.pattern, member.assignor
        before = (*subscription, member.rack_id, member.rebalance_timeout_ms, member.client_id, member.client_host)
        if beat.topics is not None:
            member.topics = tuple(sorted(set(beat.topics)))
        if beat.pattern is not None:
            member.pattern = beat.pattern or None
        if beat.assignor is not None:
            member.assignor = beat.assignor
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        member.client_id, member.client_host = beat.client_id, beat.client_host
        side, member.classic = member.classic, beat.classic
        changed = subscription != (member.topics, member.pattern, member.assignor)
        now = (*subscription, member.rack_id, member.rebalance_timeout_ms, member.client_id, member.client_host)
        if changed or before != now or side != member.classic:
            changes.append(written.member_record(self, member))
        if changed:
            self._subscriptions.changed()
        metadata_hash = self._subscriptions.hash(self.members)
        new = member.member_id not in self.target and member.epoch == 0 and not member.assigned
        if changed or new or metadata_hash != self.metadata_hash:
            self.metadata_hash = metadata_hash
            self._raise_epoch(changes)

    def _raise_epoch(self, changes: list[Record]) -> None:
        self.epoch += 1
        changes.append(written.group_record(self))

    def _assign(self, changes: list[Record]) -> None:
        """Compute the target of the group's epoch, if that is not done; not too soon after the last one.

        Until then members go by the last target. Whoever sends the first heartbeat afterwards has it computed.
        """
        if not self.assignment_due:
            return
        self._assigned_at_ms = self._timers.now_ms()
        found = {name: self._topics.find(name) for name in self.subscribed()}
        known = {name: one for name, one in found.items() if one is not None}
        kinds = {
            kind: frozenset(known[name][0] for name in self._subscriptions.names_of(kind) if name in known)
            for kind in {subscription_of(member) for member in self.members.values()}
        }
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id,
                kinds[subscription_of(member)],
                self.target.get(member.member_id, frozenset()),
            )
            for member in self.members.values()
        ]
        target = ASSIGNORS[self.assignor](subscribers, dict(known.values()))
        for member_id, places in target.items():
            if self.target.get(member_id) != places:
                self.target[member_id] = frozenset(places)
                changes.append(written.target_record(self, member_id))
        self.assignment_epoch = self.epoch
        changes.append(written.target_epoch_record(self, self._timers.wall_ms()))
        self._record_event("assigned", why=f"epoch {self.epoch}, {self.assignor}")

    @property
    def assignment_due(self) -> bool:
        """Whether the next heartbeat, or JoinGroup, is to have the target of the group's epoch computed."""
        if self.assignment_epoch >= self.epoch:
            return False
        if self._assigned_at_ms is None or self.assignment_epoch == 0 or len(self.members) < 2:
            return True
        return self._timers.now_ms() >= self._assigned_at_ms + self._settings.assignment_interval_ms

    def _watch(self, member: ConsumerMember) -> None:
        assert member.session is not None and member.revocation is not None
        now_ms = self._timers.now_ms()
        self.extend_session(member)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            member.revocation.clear()  # one of the classic protocol has joined; it gets another with its next "join again"
        elif member.revocation.when_ms is None and member.rebalance_timeout_ms >= 0:
            member.revocation.set(now_ms + member.rebalance_timeout_ms)

    # -- who holds what --------------------------------------------------------------------------------------------------

    def hold(self, member: ConsumerMember) -> None:
        """Note who holds what, after the member's assignment changed."""
        self._release_holdings(member.member_id)
        held = self._held[member.member_id] = member.assigned | member.revoking
        for place in held:
            self._holders[place] = member.member_id

    def _release_holdings(self, member_id: str) -> None:
        for place in self._held.pop(member_id, ()):
            if self._holders.get(place) == member_id:
                del self._holders[place]

    def has_free_partitions(self, member: ConsumerMember) -> bool:
        """Whether something of the member's target, that it waits for, has been given up."""
        wanted = self.target.get(member.member_id, frozenset()) - member.assigned
        return any(self._holders.get(place) in (None, member.member_id) for place in wanted)

    # -- members of the classic protocol, see migration.py ---------------------------------------------------------------

    def add_migrated_member(self, member: ConsumerMember, target: frozenset[Place]) -> None:
        """Admit a member with what it holds and is to hold."""
        self.admit(member)
        self.target[member.member_id] = target
        self.hold(member)
        self._watch(member)

    def finish_migration(self) -> None:
        """What its members read is what it was assigned by: no reason for another epoch."""
        self.metadata_hash = self._subscriptions.hash(self.members)

    def all_records(self) -> list[Record]:
        """The whole group, as records."""
        return written.all_records(self, self._timers.wall_ms())

    def release_instance(self, instance_id: str) -> None:
        """A static member comes back without having left: whoever had the instance id loses it."""
        member = self.members[self.static_members[instance_id]]
        member.previous_epoch, member.epoch = member.epoch, LEAVING_STATIC

    def extend_session(self, member: ConsumerMember) -> None:
        """The member gave a sign of life."""
        assert member.session is not None
        timeout_ms = member.classic.session_timeout_ms if member.classic else self._settings.session_timeout_ms
        member.session.set(self._timers.now_ms() + timeout_ms)

    def start_rejoin_timeout(self, member: ConsumerMember) -> None:
        """A member that was told to join again is out if it does not."""
        assert member.revocation is not None
        if member.revocation.when_ms is None:
            timeout_ms = max(member.rebalance_timeout_ms, 0)
            member.revocation.set(self._timers.now_ms() + timeout_ms)

    # -- going -----------------------------------------------------------------------------------------------------------

    def _leave(self, beat: HeartbeatRequest, then: Callable[[HeartbeatResult], None]) -> None:
        refused = identity_refusal(self, beat)
        if refused is not None:
            then(refused)
            return
        member = self.members[beat.member_id]
        answer = HeartbeatResult(ErrorCode.NONE, None, beat.member_id, beat.member_epoch)
        if beat.member_epoch == LEAVING_STATIC and member.instance_id is not None:
            member.epoch, member.previous_epoch = LEAVING_STATIC, member.epoch
            member.revoking = frozenset()  # what it was to give up it has given up
            member.since = dict.fromkeys(member.assigned, 0)
            self.hold(member)
            member.state = MemberState.STABLE
            if member.revocation is not None:
                member.revocation.clear()
            changes: list[Record] = [written.current_record(self, member)]
            self._record_event("left for a while", member)
        else:
            changes = self._remove(member)
            self._record_event("left", member)
        self._persist(self, changes, lambda error: then(answer if error is ErrorCode.NONE else HeartbeatResult(error)))

    def leave_classic(self, member_id: str, instance_id: str | None, reason: str) -> ErrorCode:
        """A LeaveGroup of a member of either protocol, by its id or its instance id; not yet durable."""
        if instance_id is not None and not member_id:
            member_id = self.static_members.get(instance_id, "")
        error = self.instance_error(instance_id, member_id)
        if error is not None:
            return error
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._record_event("left", member, reason)
        self._persist(self, self._remove(member), lambda _: None)
        return ErrorCode.NONE

    def _expel(self, member_id: str, why: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        changes = self._remove(member)
        self._record_event("expelled", member, why)
        self._persist(self, changes, lambda _: None)  # what is lost here is done again by the successor's sessions

    def _remove(self, member: ConsumerMember) -> list[Record]:
        changes = self.forget(member)
        self.target.pop(member.member_id, None)
        self._raise_epoch(changes)
        if not self.members:
            self.state_since_ms = self._timers.wall_ms()
        return changes

    def forget(self, member: ConsumerMember) -> list[Record]:
        """Take a member out; the tombstones of its records."""
        for deadline in (member.session, member.revocation):
            if deadline is not None:
                deadline.clear()
        member_id = member.member_id
        del self.members[member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._release_holdings(member_id)
        self._subscriptions.changed()
        return written.tombstones_of_member(self.group_id, member_id)

    def tombstones(self) -> list[Record]:
        """Those that end the group, and members if it has any."""
        members = [one for member_id in self.members for one in written.tombstones_of_member(self.group_id, member_id)]
        return [*members, *written.tombstones_of_group(self.group_id)]

    def die(self, error: ErrorCode) -> None:
        """The group is deleted, or coordinated elsewhere from now on."""
        for member in self.members.values():
            for deadline in (member.session, member.revocation):
                if deadline is not None:
                    deadline.clear()
        self.dead = True

    # -- offsets ---------------------------------------------------------------------------------------------------------

    def commit_error(
        self, member_id: str, member_epoch: int, knows_epochs: bool, places: Callable[[], Iterable[tuple[str, int]]]
    ) -> ErrorCode:
        """Whether a member may commit offsets now; a client without epoch may while the group is empty.

        :param knows_epochs: the request is of a version that members of this protocol may use.
        :param places: topics and partitions of the commit; not looked at where the member knows its epoch.
        """
        if self.dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_epoch < 0 and self.empty:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is not None and member.classic is None and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        error = self.epoch_error(member_id, member_epoch)
        if error is not ErrorCode.NONE and member is not None and member.may_commit(member_epoch, self._ids(places())):
            error = ErrorCode.NONE
        if error is ErrorCode.NONE and member is not None and member.classic is not None:
            self.extend_session(member)
        return error

    def _ids(self, places: Iterable[tuple[str, int]]) -> Iterator[Place | None]:
        for topic, partition in places:
            known = self._topics.find(topic)
            yield None if known is None else (known[0], partition)

    def epoch_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Whether a member knows its own epoch."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    # -- the rest --------------------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records were taken over: sessions begin now."""
        for member in self.members.values():
            self._watch(member)

    def _record_event(self, what: str, member: ConsumerMember | None = None, why: str = "", client: str = "") -> None:
        self.history.add(
            Event(
                self._timers.wall_ms(),
                what,
                member.member_id if member else "",
                client or (member.client if member else ""),
                why,
            )
        )
