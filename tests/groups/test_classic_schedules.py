"""A classic group under random schedules: members join, sync, send heartbeats, stop, leave; time passes and appends fail."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import JoinRequest, SyncRequest
from odradek.groups.classic_rebalance import State
from odradek.groups.settings import GroupSettings
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import HandTimers, Once

PARTITIONS = 6
PROTOCOLS = [["range"], ["range", "sticky"], ["sticky", "range"], ["sticky"], ["range", "range"], []]


class Client:
    """A simulated consumer: it joins, assigns as leader, syncs and sends heartbeats; its assignment belongs to a generation."""

    def __init__(self, instance_id):
        self.instance_id = instance_id
        self.metadata = b""
        self.protocols = PROTOCOLS[0]
        self.member_id, self.generation = "", -1
        self.join = self.sync = None
        self.leads, self.members = False, []
        self.held = None


class Schedule(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self):
        super().__init__()
        self.timers = HandTimers()
        self.pending = []
        self.failing = False
        self.all = []
        self.requests = []
        self.group = ClassicGroup("g", self.timers, GroupSettings(initial_rebalance_delay_ms=100), self.persist)
        self.generations = []

    def persist(self, group, assignments, then):
        self.generations.append((group.rebalance.generation_id, dict(assignments)))
        self.pending.append(then)

    @rule(target=clients, static=st.booleans())
    def a_client_starts(self, static):
        client = Client(f"i{len(self.all)}" if static else None)
        self.all.append(client)
        return client

    @rule(client=clients, protocols=st.sampled_from(PROTOCOLS), metadata=st.sampled_from([b"", b"x"]))
    def subscribes_anew(self, client, protocols, metadata):
        client.protocols = protocols
        client.metadata = metadata
        self.joins(client)

    @rule(client=clients)
    def joins(self, client):
        self.look(client)
        if client.join is not None:
            return
        client.held, client.join = None, Once()
        self.requests.append(client.join)
        member_id = "" if client.instance_id and not client.member_id else client.member_id
        self.group.join(
            JoinRequest(
                member_id,
                1000,
                2000,
                "consumer",
                [(name, client.metadata) for name in client.protocols],
                instance_id=client.instance_id,
            ),
            client.join,
        )
        self.look(client)

    def look(self, client):
        """Process the received results."""
        if client.join is not None and not client.join.waits:
            answer, client.join = client.join.answer, None
            if answer.error is ErrorCode.NONE:
                client.member_id, client.generation = answer.member_id, answer.generation_id
                client.leads, client.members = answer.leader == answer.member_id, answer.members
                client.sync = Once()
                self.requests.append(client.sync)
                assignments = {}
                if client.leads:
                    for p in range(PARTITIONS):
                        to = client.members[p % len(client.members)][0]
                        assignments[to] = assignments.get(to, b"") + bytes([p])
                self.group.rebalance.sync(
                    SyncRequest(client.member_id, client.generation, assignments, client.instance_id), client.sync
                )
            elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1
        if client.sync is not None and not client.sync.waits:
            answer, client.sync = client.sync.answer, None
            client.held = (client.generation, answer.assignment) if answer.error is ErrorCode.NONE else None

    @rule(client=clients)
    def beats(self, client):
        self.look(client)
        if client.held is not None:
            error = self.group.heartbeat(client.member_id, client.generation, client.instance_id)
            if error is not ErrorCode.NONE:
                client.held = None
                if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    client.member_id = "" if client.instance_id is None else client.member_id

    @rule(client=consumes(clients))
    def leaves(self, client):
        self.look(client)
        if client.member_id:
            self.group.leave([(client.member_id, client.instance_id, "")])
        client.held = None
        if client.join is None and client.sync is None:
            self.all.remove(client)

    @rule(ms=st.sampled_from([1, 50, 100, 500, 999, 1000, 2500]))
    def time_passes(self, ms):
        self.timers.advance(ms)

    @rule(failing=st.booleans())
    def the_log_acknowledges(self, failing):
        pending, self.pending = self.pending, []
        for then in pending:
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE if failing else ErrorCode.NONE)

    @invariant()
    def nobody_shares_a_partition_in_a_generation(self):
        for client in self.all:
            self.look(client)
        held = [
            p
            for client in self.all
            if client.held and client.held[0] == self.group.rebalance.generation_id
            for p in client.held[1]
        ]
        if self.group.rebalance.state is State.STABLE:
            assert len(held) == len(set(held))

    @invariant()
    def the_state_fits_the_members(self):
        group = self.group
        if group.rebalance.state is State.EMPTY:
            assert not group.members
        if group.rebalance.state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert group.members and group.roster.leader in group.members
            assert all(member.joining is None or member.instance_id for member in group.members.values())
        if group.rebalance.state is State.STABLE:
            assert all(member.syncing is None for member in group.members.values())
        assert {m.instance_id for m in group.members.values() if m.instance_id} == set(group.static_members)

    @invariant()
    def what_is_counted_is_what_there_is(self):
        """A join uses counts and does not scan all members."""
        members = self.group.members.values()
        assert self.group.roster.joining == sum(member.joining is not None for member in members)
        supporters = Counter(name for member in members for name in {name for name, _ in member.protocols})
        assert dict(self.group.roster._supporters) == dict(supporters)

    @invariant()
    def nobody_waits_for_a_join_without_a_deadline(self):
        if any(member.joining is not None for member in self.group.members.values()):
            assert (
                self.group.rebalance._join_deadline.when_ms is not None
                or self.pending
                or self.group.rebalance.state is State.STABLE
            )

    def teardown(self):
        """Every request is answered after the last client has stopped."""
        self.group.die(ErrorCode.NOT_COORDINATOR)
        assert not [request for request in self.requests if request.waits]


Schedule.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_random_schedules = Schedule.TestCase
