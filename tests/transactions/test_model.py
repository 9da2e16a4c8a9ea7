"""Random schedules: requests, lost and late acknowledgements, deaths of the coordinator, timeouts, changes of the protocol.

Each verb does what the reference (`reference.py`) says for the id as it is in the log. After each step:

- memory is a replay of the log: no state changes without an acknowledged record;
- records of an id follow each other as the state machine allows;
- no marker is sent without its PREPARE_* record being the newest record of the id in the log;
- a producer id with an epoch is given out once, and belongs to one transactional id.

At the end, when nothing fails any more, every decided transaction is complete, no partition has an open transaction, and each
transaction has one outcome in all its partitions: the one in the log and, if EndTxn was answered, in the answer.
"""

import os
from collections import defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.protocol.errors import ErrorCode
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Environment, Settings
from odradek.transactions.records import key_of, value_of
from odradek.transactions.states import BY_NUMBER
from odradek.transactions.transaction import Facts
from tests.groups.by_hand import HandTimers
from tests.transactions import reference
from tests.transactions.by_hand import Reply
from tests.transactions.reference import SUCCESSORS, Partition, Told, Written, stored_of

AWAY, NOT_ENOUGH, LOST = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR,
)
NAMES = ("a", "b")
PLACES = (("x", 0), ("x", 1), ("y", 0))
TIMEOUT_MS, EXPIRATION_MS = 10_000, 100_000
EXAMPLES = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "60"))

names = st.sampled_from((NAMES[0], NAMES[0], NAMES[1]))
who = st.sampled_from(("current",) * 6 + ("before", "before", "previous id", "other id", "ahead", "handed"))
seldom = st.integers(0, 3).map(lambda number: number == 0)
some_places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)


class Log:
    """The log as one coordinator sees it. :ivar queue: appends that are not acknowledged."""

    def __init__(self, world):
        self.world = world
        self.queue = []

    def append(self, records, then, late=None):
        self.queue.append((list(records), then, late))


class World(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.timers, self.settings = HandTimers(), Settings(id_expiration_ms=EXPIRATION_MS)
        self.records, self.epoch, self.next_id, self.ids = [], 0, 1000, True
        self.partitions = {place: Partition() for place in PLACES}
        self.flights, self.stale = [], []  # markers on their way; callbacks of appends to logs that are closed
        self.handed = defaultdict(list)  # by transactional id: producer ids and epochs that clients received
        self.reasons = {}  # why a producer id and an epoch were given out
        self.owners = {}  # transactional id by producer id
        self.ends = []  # answered EndTxn: producer id, epoch of the data, version, commits
        self.last = {}  # by transactional id: the epoch that a retry of InitProducerId may name
        self.given = {}  # by transactional id: the last epoch after the append in progress
        self.unconfirmed = {}  # ids before a completion that is in the log though its append has failed
        self.previous = {}  # producer ids before the newest record: in memory also if the record, of version 0, has none
        self.diverged = False

    @initialize(
        epochs=st.tuples(*[st.sampled_from((None, 0, 32764, 32765, 32766, 32767))] * len(NAMES)),
        state=st.sampled_from((0, 4, 5)),
        version=st.integers(0, 2),
    )
    def begin(self, epochs, state, version):
        """The log may already have ids whose epochs are nearly exhausted."""
        self.settings.transaction_version = version
        for number, (name, epoch) in enumerate(zip(NAMES, epochs, strict=True)):
            if epoch is not None:
                start = self.timers.wall_ms() if state else -1
                facts = Facts(
                    number, number, -1, epoch, -1, TIMEOUT_MS, BY_NUMBER[state], (), start, self.timers.wall_ms(), 0
                )
                self.records.append((key_of(name), value_of(facts, version)))
                self.owners[number] = name
                self.handed[name].append((number, epoch))
        self.start()

    # -- the coordinator's process

    def start(self):
        """A new process reads the log. The former one has neither timers nor callbacks any more."""
        now_ms, self.timers = self.timers.time_ms, HandTimers()
        self.timers.time_ms = now_ms
        self.stale.clear()
        self.flights = [(batch, lambda codes: None) for batch, _ in self.flights]
        self.coordinator = TransactionCoordinator(
            self.timers, self.settings, 1, Environment(self, self, self, self, self.has_diverged)
        )
        self.load()

    def load(self):
        self.epoch += 1
        self.diverged = False
        self.last.clear()
        self.given.clear()
        self.unconfirmed.clear()
        self.previous.clear()
        self.log = Log(self)
        self.coordinator.begin(0, self.log, self.epoch)
        self.coordinator.replay(0, self.records)
        for _ in self.coordinator.loaded(0):
            pass

    def has_diverged(self, partition):
        assert not self.diverged
        self.diverged = True

    def next(self):
        if not self.ids:
            return None
        self.next_id += 1
        return self.next_id

    def exists(self, topic, partition):
        return True

    def leadership(self, topic, partition):
        return 0, 0

    def allow(self, places, mark):
        assert self.stored(mark.transactional_id).producer_id == mark.producer_id
        return [ErrorCode(self.partitions[place].allow(mark.producer_id, mark.epoch)) for place in places]

    def send(self, batch, then):
        for marker in batch:
            stored = self.stored(marker.transactional_id)
            state = "PrepareCommit" if marker.commits else "PrepareAbort"
            assert (stored.state, stored.producer_id, stored.epoch) == (
                state,
                marker.producer_id,
                marker.producer_epoch,
            ), "a marker without its record"
            assert (marker.topic, marker.partition) in stored.places
        self.flights.append((batch, then))

    # -- the log

    def stored(self, name):
        """An id in the log, as far as its coordinator knows."""
        if name in self.unconfirmed:
            return self.unconfirmed[name]
        found = None
        for key, value in self.records:
            if key == key_of(name):
                _, found = stored_of(key, value)
        if found is not None and name in self.previous:
            return found._replace(previous=self.previous[name])
        return found

    def resolve(self, landed, error):
        """The outcome of the oldest append."""
        records, then, _ = self.log.queue.pop(0)
        for key, value in records if landed else ():
            before = self.land(key, value)
            name, after = stored_of(key, value)
            if after is not None and after.state.startswith("Complete") and error is AWAY:
                self.unconfirmed[name] = before
        if error is ErrorCode.NONE:
            for key, value in records:
                name, _ = stored_of(key, value)
                if value is None:
                    self.last.pop(name, None)
                else:
                    self.last[name] = self.given.pop(name, self.last.get(name, -1))
        else:
            for key, _ in records:
                self.given.pop(stored_of(key, None)[0], None)
        then(error)

    def land(self, key, value):
        """A record gets into the log. Return what was there before, as far as the coordinator knew."""
        name, after = stored_of(key, value)
        before = self.stored(name)
        self.unconfirmed.pop(name, None)
        self.previous[name] = before.producer_id if before is not None else after and after.producer_id
        self.records.append((key, value))
        state = before and before.state
        assert (after and after.state) in SUCCESSORS[state], f"{before}, then {after}"
        if after is not None:
            assert self.owners.setdefault(after.producer_id, name) == name
            if before is not None and after.producer_id == before.producer_id:
                assert after.epoch >= before.epoch
            if after.state.startswith("Complete"):
                rotates = before.next != -1 and before.version == 2
                producer = (before.next, 0) if rotates else (before.producer_id, before.epoch)
                if before.format > 0:  # otherwise the next id is only in memory
                    assert (after.producer_id, after.epoch) == producer
                assert not after.places
        return before

    def pending(self, name):
        stored = self.stored(name)
        return self.writing(name) is not None or (stored is not None and stored.state.startswith("Prepare"))

    def writing(self, name):
        """The record of an id that is being appended; None if none is."""
        for records, _, _ in self.log.queue:
            for key, value in records:
                if key == key_of(name):
                    return key, value
        return None

    @precondition(lambda self: self.log.queue)
    @rule(count=st.integers(1, 3))
    def acknowledge(self, count):
        while count and self.log.queue and not self.diverged:
            self.resolve(True, ErrorCode.NONE)
            count -= 1

    @precondition(lambda self: self.log.queue)
    @rule(now=seldom)
    def refuse(self, now):
        """Too few replicas: the oldest append is certainly not written."""
        if now and not self.diverged:
            self.resolve(False, NOT_ENOUGH)

    @precondition(lambda self: self.log.queue)
    @rule(now=seldom, landed=st.booleans(), error=st.sampled_from((AWAY, LOST)))
    def lose(self, now, landed, error):
        """The outcome of the oldest append is not known. A completion may be appended again without a load."""
        if now and not self.diverged:
            self.resolve(landed, error)

    @precondition(lambda self: self.log.queue)
    @rule(number=st.integers(0, 3))
    def dawdle(self, number):
        number %= len(self.log.queue)
        records, then, late = self.log.queue[number]
        if late is not None:
            self.log.queue[number] = records, then, None
            late()

    @precondition(lambda self: self.diverged)
    @rule(landed=st.integers(0, 5), told=st.booleans())
    def load_again(self, landed, told):
        """The log is closed: some of the appends in progress are in it."""
        self.close(landed, told)
        self.load()

    @rule(now=seldom, landed=st.integers(0, 5), told=st.booleans(), lives=st.booleans())
    def move(self, now, landed, told, lives):
        """The coordinator dies, or another one takes the partition over. :param lives: the former one still gets answers."""
        if not now:
            return
        if lives:
            self.coordinator.resign(0)
        self.close(landed, told)
        if lives:
            self.load()
        else:
            self.start()

    def close(self, landed, told):
        for _ in range(min(landed, len(self.log.queue))):
            records, then, _ = self.log.queue.pop(0)
            for key, value in records:
                self.land(key, value)
            self.stale.append(then)
        self.stale += [then for _, then, _ in self.log.queue]
        self.log.queue = []
        if told:
            self.tell_stale()

    @precondition(lambda self: self.stale)
    @rule()
    def tell_stale(self):
        """A closed log reports what became of its appends, whichever way."""
        stale, self.stale = self.stale, []
        for number, then in enumerate(stale):
            then(ErrorCode.NONE if number % 2 else LOST)

    # -- markers

    @precondition(lambda self: self.flights)
    @rule(number=st.integers(0, 5), arrives=st.lists(st.booleans(), min_size=3, max_size=3), lost=st.booleans())
    def deliver(self, number, arrives, lost):
        """A batch of markers arrives in some of its partitions. :param lost: the answer does not come back."""
        batch, then = self.flights.pop(number % len(self.flights))
        codes = []
        for marker, comes in zip(batch, arrives, strict=False):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if comes:
                code = ErrorCode(self.partitions[marker.topic, marker.partition].marker(marker))
                if marker.coordinator_epoch == self.epoch:
                    assert code is ErrorCode.NONE, f"{marker}: {code.name}"
            codes.append(code)
        if lost:
            codes = [ErrorCode.REQUEST_TIMED_OUT] * len(batch)
        then(codes)

    # -- clients

    def producer(self, name, which):
        """A producer id and an epoch that a client may have."""
        stored = self.stored(name)
        if stored is None:
            return (7, 0)
        handed = self.handed[name]
        return {
            "current": (stored.producer_id, stored.epoch),
            "before": (stored.producer_id, max(stored.epoch - 1, 0)),
            "previous id": (stored.previous if stored.previous != -1 else 77, 32766),
            "other id": (77, stored.epoch),
            "ahead": (stored.producer_id, min(stored.epoch + 1, 32767)),
            "handed": handed[-1] if handed else (7, 0),
        }[which]

    def check(self, name, expected, reply, queued):
        """Compare what a verb did with what the reference says. Return whether it appended a record."""
        if self.diverged:
            assert reply.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return False
        if isinstance(expected, Told):
            assert len(self.log.queue) == queued, "a record that was not expected"
            assert reply.code == expected.code, (reply.answer, expected, self.stored(name))
            return False
        assert len(self.log.queue) == queued + 1, (reply.answers, expected)
        assert reply.waits
        written = stored_of(*self.log.queue[-1][0][0])[1]
        before = self.stored(name)
        producer_id, epoch = (before.producer_id, before.epoch) if before else (-1, -1)
        assert written.state == expected.state
        if expected.rotates and expected.state == "Empty":
            assert (written.producer_id, written.epoch) == (self.next_id, 0)
        else:
            assert (written.producer_id, written.epoch) == (producer_id, epoch + expected.bump)
            if self.settings.transaction_version > 0:
                assert written.next == (self.next_id if expected.rotates else -1)
        return True

    @rule(name=names, given=st.none() | who)
    def init(self, name, given):
        stated = None if given is None else self.producer(name, given)
        if stated is not None and stated[0] == -1:
            stated = None
        expected = reference.expected_init(
            self.stored(name),
            self.pending(name),
            self.last.get(name, -1),
            stated,
            self.settings.transaction_version,
            self.ids,
        )
        queued, before, last = len(self.log.queue), self.stored(name), self.last.get(name, -1)
        reply = Reply()

        def answered(code, producer_id, epoch):
            reply(code, producer_id, epoch)
            if code is ErrorCode.NONE:
                repeated = stated is not None and before is not None and stated[1] == last
                self.hand(name, producer_id, epoch, None if repeated else reply)

        producer_id, epoch = stated or (-1, -1)
        self.coordinator.init_producer_id(name, TIMEOUT_MS, producer_id, epoch, False, False, answered)
        if self.check(name, expected, reply, queued):
            if expected.state == "Empty":
                kept = before.epoch if before else -1
                if stated is None:
                    kept = -1
                elif expected == Written("Empty"):
                    kept = last
                self.given[name] = kept
            else:
                self.given[name] = before.epoch if self.settings.transaction_version >= 2 else -1

    def hand(self, name, producer_id, epoch, why):
        """A client receives a producer id and an epoch. :param why: differs for each; None for a retry."""
        assert self.owners.setdefault(producer_id, name) == name
        known = self.reasons.setdefault((producer_id, epoch), why)
        assert why is None or known is None or known == why, f"{producer_id}, {epoch}: given out twice"
        self.handed[name].append((producer_id, epoch))

    @rule(name=names, which=who, places=some_places, version=st.sampled_from((0, 2)))
    def add(self, name, which, places, version):
        producer_id, epoch = self.producer(name, which)
        expected = reference.expected_add(self.stored(name), self.pending(name), producer_id, epoch, places)
        queued, reply = len(self.log.queue), Reply()
        self.coordinator.add_partitions(name, producer_id, epoch, places, version, reply)
        self.check(name, expected, reply, queued)

    @rule(name=names, which=who, place=st.sampled_from(PLACES))
    def verify(self, name, which, place):
        producer_id, epoch = self.producer(name, which)
        writing = self.writing(name)
        ending = writing is not None and writing[1] is not None
        ending = ending and stored_of(*writing)[1].state.startswith("Prepare")
        reply = Reply()
        self.coordinator.verify(name, producer_id, epoch, [place], reply)
        code = reply.answer[0][place]
        if self.diverged:
            assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        else:
            assert code == reference.expected_verify(self.stored(name), ending, producer_id, epoch, place)

    @rule(name=names, which=who, commits=st.booleans(), version=st.sampled_from((0, 2)), wait=st.sampled_from((0, 20)))
    def end(self, name, which, commits, version, wait):
        self.settings.end_wait_ms = wait
        producer_id, epoch = self.producer(name, which)
        before = self.stored(name)
        expected = reference.expected_end(before, self.pending(name), producer_id, epoch, commits, version, self.ids)
        queued, reply = len(self.log.queue), Reply()
        ends = isinstance(expected, Written) and before.state == "Ongoing"

        def answered(code, new_id, new_epoch):
            reply(code, new_id, new_epoch)
            if code is not ErrorCode.NONE:
                assert (new_id, new_epoch) == (-1, -1)
                return
            if ends:
                self.ends.append((name, producer_id, epoch, version, commits))
            if version == 2:
                self.hand(name, new_id, new_epoch, reply if isinstance(expected, Written) else None)

        self.coordinator.end(name, producer_id, epoch, commits, version, answered)
        if self.check(name, expected, reply, queued):
            self.given[name] = before.epoch if version == 2 else self.last.get(name, -1)

    @rule(name=names, which=who, place=st.sampled_from(PLACES))
    def produce(self, name, which, place):
        """Send data without asking the coordinator: accepted only with a mark or in an open transaction."""
        producer_id, epoch = self.producer(name, which)
        if self.partitions[place].append(producer_id, epoch):
            assert self.owners[producer_id] == name

    @rule(name=names, place=st.sampled_from(PLACES), commits=st.booleans(), version=st.sampled_from((0, 2)))
    def go_on(self, name, place, commits, version):
        """A client without failures takes its next step."""
        if self.diverged:
            self.load_again(0, True)
        self.finish()
        stored = self.stored(name)
        if stored is None:
            self.init(name, None)
        elif stored.state != "Ongoing":
            self.add(name, "current", [place], version)
        else:
            for added in sorted(stored.places):
                self.produce(name, "current", added)
            self.end(name, "current", commits, version, 20)

    def finish(self):
        """All appends are acknowledged, and all markers arrive."""
        while self.flights or self.log.queue:
            if self.flights:
                self.deliver(0, [True] * 3, False)
            if self.log.queue:
                self.resolve(True, ErrorCode.NONE)

    # -- time, and settings

    @rule(by_ms=st.sampled_from((1, 20, 1000, TIMEOUT_MS + 1, EXPIRATION_MS)))
    def wait(self, by_ms):
        self.timers.advance(by_ms)

    @rule()
    def time_out(self):
        due = {}
        for name in NAMES if not self.diverged else ():
            stored = self.stored(name)
            if stored is None or self.pending(name) or stored.state != "Ongoing":
                continue
            if stored.start_ms + stored.timeout_ms < self.timers.wall_ms():
                expected = reference.expected_fence(stored, self.settings.transaction_version, self.ids)
                if isinstance(expected, Written):
                    due[name] = expected
                    self.given[name] = stored.epoch if self.settings.transaction_version >= 2 else -1
        assert self.coordinator.abort_timed_out() == len(due)
        for name, expected in due.items():
            written = stored_of(*self.writing(name))[1]
            assert written.state == "PrepareAbort"
            assert written.epoch == self.stored(name).epoch + expected.bump

    @rule()
    def expire(self):
        self.coordinator.expire()

    @rule(version=st.integers(0, 2))
    def change_version(self, version):
        self.settings.transaction_version = version

    @rule(lack=seldom)
    def stock(self, lack):
        """Whether producer ids are in hand."""
        self.ids = not lack

    # -- what always holds

    @invariant()
    def memory_is_a_replay_of_the_log(self):
        if not hasattr(self, "coordinator") or self.diverged:
            return
        shard = self.coordinator.shards.by_partition[0]
        last = dict(self.records)
        for name in NAMES:
            if name in self.unconfirmed:
                continue
            value = last.get(key_of(name))
            facts = shard.facts(name)
            if value is None:
                assert facts is None or (facts.epoch == -1 and self.pending(name))
                continue
            if name in shard.active:
                facts = shard.active[name].facts
            assert value_of(facts, value[1]) == value
            if facts.state.name in ("EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"):
                assert facts.last_epoch == self.last.get(name, -1)

    def settle(self):
        """Nothing fails any more: load, write, acknowledge until nothing is left to be done."""
        self.ids = True
        if self.diverged:
            self.load_again(0, True)
        for _ in range(100):
            self.finish()
            self.timers.advance(30_000)
            self.time_out()
            if not self.flights and not self.log.queue:
                return
        raise AssertionError("never settles")

    def teardown(self):
        if not hasattr(self, "coordinator"):
            return
        self.tell_stale()
        self.settle()
        self.memory_is_a_replay_of_the_log()
        for name in NAMES:
            stored = self.stored(name)
            assert stored is None or stored.state in ("Empty", "CompleteCommit", "CompleteAbort")
        for place, partition in self.partitions.items():
            for producer_id, producer in partition.producers.items():
                assert producer.open is None, f"a hanging transaction of {producer_id} in {place}"
        self.check_outcomes()

    def decisions(self):
        """The outcomes in the log of the transactions with data, by producer id and epoch of the data, in order."""
        found, ongoing = defaultdict(list), {}
        for key, value in self.records:
            name, stored = stored_of(key, value)
            if stored is None:
                continue
            if stored.state == "Ongoing":
                ongoing[name] = stored.producer_id, stored.epoch
            elif stored.state.startswith("Prepare") and name in ongoing:
                found[ongoing.pop(name)].append((stored.state == "PrepareCommit", stored.version))
        return found

    def check_outcomes(self):
        decisions = self.decisions()
        for producer, outcomes in decisions.items():
            assert all(version < 2 for _, version in outcomes[:-1]), (
                f"{producer} is used again after its last transaction"
            )
        for place, partition in self.partitions.items():
            for producer, outcomes in partition.outcomes.items():
                decided = iter(commits for commits, _ in decisions[producer])
                assert all(outcome in decided for outcome in outcomes), (place, producer, outcomes, decisions[producer])
        for _, producer_id, epoch, version, commits in self.ends:
            outcomes = [outcome for outcome, _ in decisions[producer_id, epoch]]
            assert commits in outcomes
            if version == 2:
                assert outcomes[-1] == commits


World.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWorld = World.TestCase
