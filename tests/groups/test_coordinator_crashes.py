"""Coordinators that crash and lose the unsynced end of their log: every client rejoins, every partition is consumed again.

The simulated clients react to errors as Kafka's Java clients do. Answers get lost, too.
"""

import os
import random
from collections import Counter

import pytest

from odradek.groups.classic_member import JoinRequest, SyncRequest
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import HandTimers
from tests.groups.test_consumer_group import FewTopics
from tests.groups.test_migration import assignment, partitions_in, subscription

SESSION_MS, REBALANCE_MS, BEAT_MS = 10_000, 20_000, 1_000
TURN_MS = 100
SEEDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "60"))
PARTITIONS = 4
FATAL = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
)
AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Machine:
    """The coordinator and its log; `power_cut` removes the unsynced end of the log.

    :param synced: flush.messages=1: what was acknowledged is on the device.
    """

    def __init__(self, rng, synced):
        self.rng, self.synced = rng, synced
        self.timers, self.topics = HandTimers(), FewTopics()
        self.records, self.batches, self.on_device, self.lives = [], [], 0, 0
        self.start()

    def start(self):
        self.lives += 1
        self.unacknowledged = []
        self.groups = GroupCoordinator(
            self.timers,
            GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1),
            1,
            self.topics,
            ConsumerSettings(session_timeout_ms=SESSION_MS, assignment_interval_ms=0),
            self.diverged,
        )
        self.groups.shards.begin(0, Log(self))
        self.groups.shards.replay(0, self.records)
        if self.synced:
            self.on_device = len(self.records)
        self.groups.loaded(0)

    def diverged(self, partition):
        raise AssertionError("no append fails here")

    def append(self, records, then):
        self.records += records
        self.batches.append(len(self.records))
        self.unacknowledged.append((len(self.records), then))

    def acknowledge(self):
        done, self.unacknowledged = self.unacknowledged, []
        for end, then in done:
            if self.synced:
                self.on_device = max(self.on_device, end)
            then(ErrorCode.NONE)
        if not self.synced and self.rng.random() < 0.1:
            self.on_device = len(self.records)

    def crash(self):
        """Kill the process: the log stays, including unacknowledged records."""
        self.start()

    def power_cut(self):
        whole = self.rng.choice([end for end in [self.on_device, *self.batches] if end >= self.on_device])
        del self.records[whole:]
        self.batches = [end for end in self.batches if end <= whole]
        self.on_device = whole
        self.start()

    def caller(self, client):
        """A callback that reaches the client only while the coordinator and the connection are still the same."""
        life, call = self.lives, object()
        client.call, client.answers = call, []

        def answered(answer):
            if self.lives == life and client.call is call:
                client.answers.append(answer)

        client.asked_in, client.asked_at, client.answered = life, self.timers.now_ms(), answered
        return answered


class Log:
    """The machine's log for one coordinator process: a dead process can no longer write."""

    def __init__(self, machine):
        self.machine, self.life = machine, machine.lives

    def append(self, records, then, late=None):
        if self.life == self.machine.lives:
            self.machine.append(records, then)


class Client:
    """A simulated client. :ivar call: its pending request. :ivar fatal: the error that ended it."""

    def __init__(self, machine, name, static):
        self.machine = machine
        self.name, self.instance_id = name, f"i-{name}" if static else None
        self.call, self.answers, self.asked_in, self.asked_at = None, [], 0, 0
        self.fatal, self.held, self.beats_at = None, frozenset(), 0

    def turn(self):
        if self.fatal is not None:
            return
        if self.call is not None:
            waits_ms = self.machine.timers.now_ms() - self.asked_at
            if self.answers:
                answer, self.call = self.answers.pop(), None
                self.take(answer)
            elif self.asked_in != self.machine.lives or waits_ms > REBALANCE_MS + 5000:
                self.lose()
        elif self.machine.timers.now_ms() >= self.beats_at:
            self.beats_at = self.machine.timers.now_ms() + BEAT_MS
            self.ask()

    def lose(self):
        """Close the connection; the response is lost."""
        if self.call is not None:
            self.call = None
            self.machine.groups.members.join_disconnected("g", self.answered)
            self.lost()
            self.beats_at = self.machine.timers.now_ms() + TURN_MS

    def lost(self):
        pass

    def again(self):
        self.beats_at = 0


class ClassicClient(Client):
    def __init__(self, *args):
        super().__init__(*args)
        self.member_id, self.generation, self.doing, self.leads = "", -1, "join", ()

    def ask(self):
        groups, then = self.machine.groups, self.machine.caller(self)
        if self.doing == "join":
            self.held = frozenset()
            protocols = [("range", subscription())]
            join = JoinRequest(
                self.member_id, SESSION_MS, REBALANCE_MS, "consumer", protocols, self.name, "/h", self.instance_id
            )
            groups.members.join("g", join, then)
        elif self.doing == "sync":
            parts = {member_id: [] for member_id, _, _ in self.leads}
            for partition in range(PARTITIONS if parts else 0):
                parts[sorted(parts)[partition % len(parts)]].append(partition)
            assignments = {member_id: assignment(*partitions) for member_id, partitions in parts.items()}
            groups.members.sync("g", SyncRequest(self.member_id, self.generation, assignments, self.instance_id), then)
        else:
            then(groups.members.heartbeat("g", self.member_id, self.generation, self.instance_id))

    def lost(self):
        if self.doing == "sync":
            self.doing = "join"

    def take(self, answer):
        error = answer if isinstance(answer, ErrorCode) else answer.error
        if error in FATAL:
            self.fatal = error
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.again()
        elif error is not ErrorCode.NONE:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            if error not in AGAIN or self.doing == "sync":
                self.doing = "join"
            self.again()
        elif self.doing == "join":
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.members if answer.leader == answer.member_id else ()
            self.doing = "sync"
            self.again()
        elif self.doing == "sync":
            self.held, self.doing = frozenset(partitions_in(answer.assignment)), "beat"


class NewClient(Client):
    def __init__(self, *args):
        super().__init__(*args)
        self.member_id, self.epoch, self.full = f"m-{self.name}", 0, True

    def ask(self):
        topic = self.machine.topics.find("orders")[0]
        owned = frozenset((topic, partition) for partition in self.held)
        fields = {"topics": ("orders",), "rebalance_timeout_ms": REBALANCE_MS} if self.full or not self.epoch else {}
        beat = HeartbeatRequest(
            self.member_id, self.epoch, self.instance_id, owned=owned, client_id=self.name, **fields
        )
        self.machine.groups.members.beat("g", beat, self.machine.caller(self))

    def lost(self):
        self.full = True

    def take(self, answer):
        self.full = answer.error is not ErrorCode.NONE
        if answer.error in FATAL:
            self.fatal = answer.error
        elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.held, self.epoch = frozenset(), 0
            self.again()
        elif answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                before, self.held = self.held, frozenset(partition for _, partition in answer.assignment)
                if before != self.held:
                    self.again()


def run(machine, clients, rng, turns, disturbed):
    """Let time pass. :param disturbed: whether responses are lost and appends are slow."""
    for _ in range(turns):
        machine.timers.advance(TURN_MS)
        rng.shuffle(clients)
        for client in clients:
            client.turn()
            if disturbed and rng.random() < 0.02:
                client.lose()
        if not disturbed or rng.random() < 0.5:
            machine.acknowledge()


def restart(machine, clients, rng):
    """Restart the application of a client, without leaving the group if its protocol allows that."""
    number = rng.randrange(len(clients))
    old = clients[number]
    old.lose()
    new = clients[number] = type(old)(machine, old.name, old.instance_id is not None)
    if isinstance(old, NewClient):
        new.member_id = f"m-{old.name}-{rng.random()}"
        if old.instance_id is not None:  # KIP-848 refuses its instance id to another until it left, for a while
            if not machine.synced or not old.epoch:
                clients[number] = old
                return
            machine.groups.members.beat("g", HeartbeatRequest(old.member_id, -2, old.instance_id), machine.caller(old))
            machine.acknowledge()


KINDS = {"classic": [ClassicClient], "new": [NewClient], "both": [ClassicClient, NewClient]}


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "unsynced"])
@pytest.mark.parametrize("kinds", KINDS)
def test_every_client_rejoins_and_every_partition_is_consumed(kinds, synced):
    for seed in range(SEEDS):
        rng = random.Random(f"{seed} {kinds} {synced}")
        machine = Machine(rng, synced)
        clients = [rng.choice(KINDS[kinds])(machine, f"{n}", rng.random() < 0.5) for n in range(rng.randint(1, 4))]
        for _ in range(rng.randint(1, 6)):
            run(machine, clients, rng, rng.choice([1, 3, 10, 40, 150]), disturbed=True)
            if rng.random() < 0.3:
                restart(machine, clients, rng)
            else:
                rng.choice([machine.crash, machine.power_cut])()
        # Members in the log without client are removed after a session timeout, or by the rebalance that waits for them.
        run(machine, clients, rng, (SESSION_MS + REBALANCE_MS + 10_000) // TURN_MS, disturbed=False)
        assert {client.fatal for client in clients} == {None}, f"seed {seed}"
        held = Counter(partition for client in clients for partition in client.held)
        assert held == Counter(range(PARTITIONS)), f"seed {seed}: {[(client.name, client.held) for client in clients]}"
