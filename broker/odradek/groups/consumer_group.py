"""A group of the consumer protocol (KIP-848): members send only heartbeats; the broker assigns partitions and
reconciles members.

Epochs, and what raises them:

    group epoch (`epoch`)                   raised by any change of members, subscriptions, or subscribed topics
    assignment epoch (`assignment_epoch`)   the group epoch for which the assignor computed `target`, at most `epoch`
    member epoch (`member.epoch`)           the assignment epoch that the member has reached

States of the group (Kafka's names; derived from the epochs, not stored):

    Empty         no members
    Assigning     epoch > assignment_epoch: the next heartbeat or JoinGroup computes the target, but not before
                  group.consumer.assignment.interval.ms has passed since the last assignment
    Reconciling   the target is computed; some members have not reached it
    Stable        every member is STABLE in the assignment epoch
    Dead          deleted, moved to another coordinator, or downgraded to the classic protocol; final

States of a member (`ConsumerMember.reconcile` makes the steps, at the member's own heartbeats):

    STABLE                 owns `assigned`. If its epoch is below the assignment epoch: with partitions outside the target
                           -> UNREVOKED_PARTITIONS, otherwise it gets the assignment epoch and the free partitions of its target
    UNREVOKED_PARTITIONS   must release `revoking`; the epoch stays. A heartbeat that no longer reports them completes the step.
                           After its rebalance timeout the member is removed (`revocation` deadline)
    UNRELEASED_PARTITIONS  has the assignment epoch and waits for partitions that other members still hold; each heartbeat
                           adds partitions that became free -> STABLE when it has all. A newer target: see STABLE

A partition has at most one holder (`Holdings`: the member that it is assigned to, or that must still release it), so two
members never own it at once.

Events: a heartbeat with epoch 0 joins; -1 leaves; -2 is a static member that leaves for a while and keeps its assignment
for the next member with its instance id; any other epoch keeps the member alive. A session or revocation deadline removes
the member. Members of the classic protocol send JoinGroup, SyncGroup and Heartbeat, which `migration.py` translates.

What is stored when: each event appends the records of what it changed, as one batch, and the member receives its response
when they are durable. The kinds of records: group epoch; a member and its subscription; assignment epoch; a member's target;
a member's assignment, epoch and state (`consumer_records.py`). An event without changes waits for the appends before it,
because its response may depend on them. If an append fails, the group in memory is ahead of its log, so its partition is
loaded again.

What survives the death of the coordinator: the records, and so every epoch, target and assignment; members continue with
their next heartbeat. Sessions and revocation deadlines start in full when the log is loaded (`loaded`). The history is lost,
and the time of the last assignment: the next target is computed without waiting for the interval. Until its first request a
member is not `confirmed`, see `fencing.py`.

State machine without I/O; runs in the coordinator's loop, its only protection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from odradek.coordination.environment import AppendCallback, Deadline, Record, Timers
from odradek.groups import consumer_records
from odradek.groups.assignors import ASSIGNORS, Subscriber
from odradek.groups.classic_member import JoinRequest
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
from odradek.groups.consumer_refusals import identity_refusal, pattern_refusal, refusal
from odradek.groups.environment import Topics
from odradek.groups.fencing import instance_error
from odradek.groups.history import Event, History, client_text
from odradek.groups.holdings import Holdings
from odradek.groups.patterns import TopicPatterns
from odradek.groups.settings import ConsumerSettings, SettingsSource
from odradek.groups.subscriptions import Subscriptions, subscription_of
from odradek.groups.visible_topics import Visible, presumed
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicIdPartition, TopicPartition

Persist = Callable[["ConsumerGroup", Sequence[Record], AppendCallback], None]
"""Appends records durably and in order, see `GroupLog.append`; may be called without records."""


class ConsumerGroup:
    """A consumer group.

    :param persist: see `Persist`.
    :param patterns: the patterns of all groups; None: separate patterns of this group, matched at once.
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
        self.target: dict[str, frozenset[TopicIdPartition]] = {}
        self.history = History()
        self.dead = False
        self.state_since_ms = timers.wall_ms()
        self._holdings = Holdings()
        self._assigned_at_ms: int | None = None
        self._unseen = False  # no heartbeat with rights was handled since the load
        self._subscriptions = Subscriptions(topics, patterns or TopicPatterns(topics))

    @property
    def _settings(self) -> ConsumerSettings:
        return self._source.of(self.group_id)

    # -- properties ------------------------------------------------------------------------------------------------------

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
        """Whether the group has no members."""
        return not self.members

    def subscribed(self) -> set[str]:
        """Names of the existing topics that members subscribe to."""
        return self._subscriptions.of(self.members.values())

    def refusal(self, request: HeartbeatRequest) -> HeartbeatResult | None:
        """The error of a heartbeat, apart from that of its pattern, before the heartbeat is handled; None if it is valid."""
        return refusal(self, self._settings, request)

    @property
    def patterns(self) -> frozenset[str]:
        """The patterns that members subscribe to."""
        return self._subscriptions.patterns(self.members)

    @property
    def assignor(self) -> str:
        """The assignor that most members request; the broker's first one if no member requests any."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else self._settings.assignors[0]

    @property
    def all_classic(self) -> bool:
        """Whether the group has members, and all of them use the classic protocol."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    # -- heartbeats ------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, then: Callable[[HeartbeatResult], None]) -> None:
        """Handle a heartbeat; `then` receives the result when all changes are durable."""
        if self.dead:
            then(HeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._record_claim(request)
        if request.member_epoch in (LEAVING, LEAVING_STATIC):
            self._leave(request, then)
            return
        refused = refusal(self, self._settings, request)
        if refused is None:
            refused = pattern_refusal(request, self._subscriptions.pattern_error)
        if refused is not None:
            if request.member_epoch == JOINING:
                self.record_refusal(request, refused.error, refused.message or "")
            then(refused)
            return
        changes: list[Record] = []
        returns = request.member_id not in self.members
        member = self._member(request, changes)
        member.confirmed, member.claimed_by = True, None
        self._take_over(member, request, returns, changes)
        self._assign(changes)
        joins = request.member_epoch == JOINING
        if member.reconcile(
            self.target.get(member.member_id, frozenset()),
            self.assignment_epoch,
            request.owned,
            self._holdings.holder_of,
        ):
            self.hold(member)
            changes.append(consumer_records.current_record(self, member))
        self._watch(member)
        # A full heartbeat, and a join, get the assignment even if it is unchanged: the member may have lost the last response.
        unchanged = member.reported_assignment is member.assigned or member.reported_assignment == member.assigned
        report = joins or not unchanged or (request.owned is not None and request.topics is not None)
        member.reported_assignment = member.assigned if report else member.reported_assignment
        answer = HeartbeatResult(
            ErrorCode.NONE, None, member.member_id, member.epoch, member.assigned if report else None
        )

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                member.reported_assignment = None
            then(answer if error is ErrorCode.NONE else HeartbeatResult(error))

        # Also without changes: changes of other members, and of earlier unfinished appends, must be durable first.
        self._persist(self, changes, stored)

    def _record_claim(self, request: HeartbeatRequest) -> None:
        """Note that a member claims an instance id whose holder has sent no request since it was loaded from the log.

        The log may have lost the member's join. The member must rejoin, which replaces the holder; see `fencing`.
        """
        if request.instance_id is None or request.member_epoch == JOINING:
            return
        holder = self.members.get(self.static_members.get(request.instance_id, ""))
        if holder is not None and not holder.confirmed and holder.member_id != request.member_id:
            holder.claimed_by = request.member_id

    def instance_error(self, instance_id: str | None, member_id: str) -> ErrorCode | None:
        """The error if a classic member does not own its instance id; None if it owns it or has none."""
        holder = self.members.get(self.static_members.get(instance_id or "", ""))
        unconfirmed = () if holder is None or holder.confirmed else (holder.member_id,)
        return instance_error(self.static_members, instance_id, member_id, unconfirmed)

    def _member(self, request: HeartbeatRequest, changes: list[Record]) -> ConsumerMember:
        """The member that sent the heartbeat, created if it joins; a returning static member takes over its former state."""
        member = self.members.get(request.member_id)
        if member is not None:
            if request.member_epoch == JOINING:
                member.reported_assignment = None
            return member
        member = ConsumerMember(request.member_id, request.instance_id)
        old = (
            self.members.get(self.static_members.get(request.instance_id, ""))
            if request.instance_id is not None
            else None
        )
        if old is not None:
            changes += self.forget(old)
            member.assigned, member.revoking, member.state = old.assigned, old.revoking, old.state
            member.since = dict.fromkeys(old.since, 0)
            member.topics, member.pattern, member.assignor = old.topics, old.pattern, old.assignor
            member.visible = old.visible
            member.rack_id, member.rebalance_timeout_ms = old.rack_id, old.rebalance_timeout_ms
            target = self.target.pop(old.member_id, None)
            if target is not None:
                self.target[member.member_id] = target
                changes.append(consumer_records.target_record(self, member.member_id))
            member.client_id, member.client_host = request.client_id, request.client_host
            changes.append(consumer_records.member_record(self, member))
        self.admit(member)
        self.hold(member)
        kind = "came back" if old is not None else "joined"
        client = client_text(request.client_id, request.client_host)  # `member` does not have it yet
        self._record_event(kind, member, client=client)
        return member

    def admit(self, member: ConsumerMember) -> None:
        """Add a member without registering its partitions; see `hold`."""
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

    def _take_over(
        self, member: ConsumerMember, request: HeartbeatRequest, returns: bool, changes: list[Record]
    ) -> None:
        """Apply the fields of a heartbeat; a change of the subscription or of the subscribed topics raises the group epoch.

        A JoinGroup states the whole subscription, as does the first heartbeat of a member, and of a member that was a classic
        one. So nothing of the former subscription remains: the topics and the pattern were those of another program.

        :param returns: the member is new, or has taken over the state of a static member.
        """
        subscription = member.topics, member.pattern, member.assignor
        before = (*subscription, member.rack_id, member.rebalance_timeout_ms, member.client_id, member.client_host)
        if returns or request.classic is not None or member.classic is not None:
            member.forget_subscription()
        if request.topics is not None:
            member.topics = request.topics
        if request.pattern is not None:
            member.pattern = request.pattern or None
        if request.assignor is not None:
            member.assignor = request.assignor
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        if member.pattern is None:
            member.visible = None
        former_classic, member.classic = member.classic, request.classic
        changed = subscription != (member.topics, member.pattern, member.assignor)
        if request.classic is None:
            if self._unseen and request.visible is not None:
                self._presume_sight()
            self._subscriptions.see(member, request.visible)
        now = (*subscription, member.rack_id, member.rebalance_timeout_ms, member.client_id, member.client_host)
        if changed or before != now or former_classic != member.classic:
            changes.append(consumer_records.member_record(self, member))
        if changed:
            self._subscriptions.changed()
            if returns or (former_classic is None) is not (member.classic is None):
                self._narrow_target(member, changes)
        metadata_hash = self._subscriptions.hash(self.members)
        new = member.member_id not in self.target and member.epoch == 0 and not member.assigned
        if changed or new or self._subscriptions.sight_changed or metadata_hash != self.metadata_hash:
            self.metadata_hash, self._subscriptions.sight_changed = metadata_hash, False
            self._raise_epoch(changes)

    def _narrow_target(self, member: ConsumerMember, changes: list[Record]) -> None:
        """Remove topics to which a member does not subscribe from the target that it took over: its program may not know
        them, and the next target may come only after the assignment interval."""
        target = self.target.get(member.member_id, frozenset())
        found = map(self._topics.find, self._subscriptions.names_of(subscription_of(member)))
        subscribed = {topic[0] for topic in found if topic is not None}
        narrowed = frozenset(place for place in target if place[0] in subscribed)
        if narrowed != target:
            self.target[member.member_id] = narrowed
            changes.append(consumer_records.target_record(self, member.member_id))

    def see(self, seen: Mapping[str, tuple[Visible, Visible]]) -> None:
        """Change what members may see, by member id, from one to the other. The next heartbeat takes it into account."""
        for member_id, (before, after) in seen.items():
            member = self.members.get(member_id)
            if member is not None and member.visible is before:  # otherwise the member's own heartbeat was faster
                self._subscriptions.see(member, after)

    def _presume_sight(self) -> None:
        """At the first heartbeat after a load, if there is an authorizer: let the members see the topics of the target, so that
        their heartbeats begin no rebalance."""
        self._unseen = False
        ids = {topic for places in self.target.values() for topic, _ in places}
        names = frozenset(name for name in map(self._topics.name_of, ids) if name is not None)
        for member in self.members.values():
            if member.pattern is not None and member.visible is None:
                member.visible = presumed(names)
        self._subscriptions.changed()

    def _raise_epoch(self, changes: list[Record]) -> None:
        self.epoch += 1
        changes.append(consumer_records.group_record(self))

    def _assign(self, changes: list[Record]) -> None:
        """Compute the target of the group epoch if it is due.

        Until then members follow the last target. The first heartbeat after the assignment interval computes the new one.
        """
        if not self.assignment_due:
            return
        self._assigned_at_ms = self._timers.now_ms()
        topics = {name: self._topics.find(name) for name in self.subscribed()}
        known = {name: topic for name, topic in topics.items() if topic is not None}
        topics_of = {
            subscription: frozenset(
                known[name][0] for name in self._subscriptions.names_of(subscription) if name in known
            )
            for subscription in {subscription_of(member) for member in self.members.values()}
        }
        subscribers = [
            Subscriber(
                member.member_id,
                member.instance_id,
                topics_of[subscription_of(member)],
                self.target.get(member.member_id, frozenset()),
            )
            for member in self.members.values()
        ]
        target = ASSIGNORS[self.assignor](subscribers, dict(known.values()))
        for member_id, places in target.items():
            assigned = frozenset(places)
            if self.target.get(member_id) != assigned:
                self.target[member_id] = assigned
                changes.append(consumer_records.target_record(self, member_id))
        self.assignment_epoch = self.epoch
        changes.append(consumer_records.target_epoch_record(self, self._timers.wall_ms()))
        self._record_event("assigned", why=f"epoch {self.epoch}, {self.assignor}")

    @property
    def assignment_due(self) -> bool:
        """Whether the next heartbeat or JoinGroup computes the target of the group epoch."""
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
            member.revocation.clear()  # a classic member has joined; `start_rejoin_timeout` sets its next deadline
        elif member.revocation.when_ms is None and member.rebalance_timeout_ms >= 0:
            member.revocation.set(now_ms + member.rebalance_timeout_ms)

    # -- held partitions -----------------------------------------------------------------------------------------------

    def hold(self, member: ConsumerMember) -> None:
        """Register the partitions that a member holds, after its assignment changed."""
        self._holdings.register(member.member_id, member.assigned | member.revoking)

    def has_free_partitions(self, member: ConsumerMember) -> bool:
        """Whether a partition of the target that the member waits for is free."""
        missing = self.target.get(member.member_id, frozenset()) - member.assigned
        return self._holdings.any_free_for(member.member_id, missing)

    # -- members of the classic protocol, see migration.py ---------------------------------------------------------------

    def add_migrated_member(self, member: ConsumerMember, target: frozenset[TopicIdPartition]) -> None:
        """Add a member that migrates from the classic protocol, with its partitions and its target."""
        self.admit(member)
        self.target[member.member_id] = target
        self.hold(member)
        self._watch(member)

    def finish_migration(self) -> None:
        """Take the current subscriptions as those of the current assignment, which needs no new epoch."""
        self.metadata_hash = self._subscriptions.hash(self.members)

    def all_records(self) -> list[Record]:
        """The records of the whole group."""
        return consumer_records.all_records(self, self._timers.wall_ms())

    def release_instance(self, instance_id: str) -> None:
        """Release an instance id for a static member that returns without having left; the former holder loses it."""
        member = self.members[self.static_members[instance_id]]
        member.previous_epoch, member.epoch = member.epoch, LEAVING_STATIC

    def extend_session(self, member: ConsumerMember) -> None:
        """Restart the session timeout of a member."""
        assert member.session is not None
        timeout_ms = member.classic.session_timeout_ms if member.classic else self._settings.session_timeout_ms
        member.session.set(self._timers.now_ms() + timeout_ms)

    def start_rejoin_timeout(self, member: ConsumerMember) -> None:
        """Remove a member that was asked to rejoin if it does not do so within its rebalance timeout."""
        assert member.revocation is not None
        if member.revocation.when_ms is None:
            timeout_ms = max(member.rebalance_timeout_ms, 0)
            member.revocation.set(self._timers.now_ms() + timeout_ms)

    # -- removal --------------------------------------------------------------------------------------------------------

    def _leave(self, request: HeartbeatRequest, then: Callable[[HeartbeatResult], None]) -> None:
        refused = identity_refusal(self, request)
        if refused is not None:
            then(refused)
            return
        member = self.members[request.member_id]
        answer = HeartbeatResult(ErrorCode.NONE, None, request.member_id, request.member_epoch)
        if request.member_epoch == LEAVING_STATIC and member.instance_id is not None:
            member.epoch, member.previous_epoch = LEAVING_STATIC, member.epoch
            member.revoking = frozenset()  # a member that leaves has released them
            member.since = dict.fromkeys(member.assigned, 0)
            self.hold(member)
            member.state = MemberState.STABLE
            if member.revocation is not None:
                member.revocation.clear()
            changes: list[Record] = [consumer_records.current_record(self, member)]
            self._record_event("left for a while", member)
        else:
            changes = self._remove(member)
            self._record_event("left", member)
        self._persist(self, changes, lambda error: then(answer if error is ErrorCode.NONE else HeartbeatResult(error)))

    def leave_classic(self, member_id: str, instance_id: str | None, reason: str) -> ErrorCode:
        """Handle a LeaveGroup for a member of either protocol; the change is not yet durable on return."""
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
        # If the append is lost, the session of the member expires again at the next coordinator.
        self._persist(self, changes, lambda _: None)

    def _remove(self, member: ConsumerMember) -> list[Record]:
        changes = self.forget(member)
        self.target.pop(member.member_id, None)
        self._raise_epoch(changes)
        if not self.members:
            self.state_since_ms = self._timers.wall_ms()
        return changes

    def forget(self, member: ConsumerMember) -> list[Record]:
        """Remove a member; return the tombstones of its records."""
        for deadline in (member.session, member.revocation):
            if deadline is not None:
                deadline.clear()
        member_id = member.member_id
        del self.members[member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._holdings.release(member_id)
        self._subscriptions.changed()
        return consumer_records.tombstones_of_member(self.group_id, member_id)

    def tombstones(self) -> list[Record]:
        """The tombstones of the group and of its members."""
        of_members = [
            tombstone
            for member_id in self.members
            for tombstone in consumer_records.tombstones_of_member(self.group_id, member_id)
        ]
        return [*of_members, *consumer_records.tombstones_of_group(self.group_id)]

    def die(self, error: ErrorCode) -> None:
        """End the group: it is deleted or coordinated elsewhere. `error` is not used: requests wait only for appends."""
        for member in self.members.values():
            for deadline in (member.session, member.revocation):
                if deadline is not None:
                    deadline.clear()
        self.dead = True

    # -- offsets ---------------------------------------------------------------------------------------------------------

    def commit_error(
        self, member_id: str, member_epoch: int, knows_epochs: bool, places: Callable[[], Iterable[TopicPartition]]
    ) -> ErrorCode:
        """The error of an OffsetCommit, or NONE; a client without epoch may commit while the group is empty.

        :param knows_epochs: the request has a version that members of this protocol may use.
        :param places: returns topics and partitions of the commit; called only if the epoch is not the current one.
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

    def transactional_commit_error(
        self,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        places: Callable[[], Iterable[TopicPartition]],
    ) -> ErrorCode:
        """The error of a TxnOffsetCommit, or NONE; the client need not name a member. :param places: see `commit_error`."""
        if self.dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_epoch < 0 and (self.empty or (member_epoch == -1 and not member_id and instance_id is None)):
            return ErrorCode.NONE
        error = self.epoch_error(member_id, member_epoch)
        member = self.members.get(member_id)
        if member is None or error is ErrorCode.NONE or member.may_commit(member_epoch, self._ids(places())):
            return error if member is None else ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION

    def _ids(self, places: Iterable[TopicPartition]) -> Iterator[TopicIdPartition | None]:
        for topic, partition in places:
            known = self._topics.find(topic)
            yield None if known is None else (known[0], partition)

    def epoch_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        """The error if `member_epoch` is not the epoch of the member, or NONE."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    # -- load and end-----------------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """Start the sessions of all members, after all records are loaded."""
        self._unseen = True
        for member in self.members.values():
            self._watch(member)

    def record_refusal(self, request: HeartbeatRequest | JoinRequest, error: ErrorCode, why: str) -> None:
        """Add a request to join that was refused to the history."""
        client = client_text(request.client_id, request.client_host)
        self.history.add_refusal(Event(self._timers.wall_ms(), "", request.member_id, client, f"{error.name}: {why}"))

    def _record_event(self, kind: str, member: ConsumerMember | None = None, why: str = "", client: str = "") -> None:
        self.history.add(
            Event(
                self._timers.wall_ms(),
                kind,
                member.member_id if member else "",
                client or (member.client if member else ""),
                why,
            )
        )
