"""A simulated process of the transaction coordinator: the test controls its log, markers, producer ids, marks and topics."""

from odradek.protocol.errors import ErrorCode
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Environment, Settings
from odradek.transactions.records import facts_of, id_of
from tests.groups.by_hand import HandLog, HandTimers

NONE = ErrorCode.NONE
ORDERS, BILLS = ("orders", 0), ("bills", 3)
ID = 1000
"""The first producer id."""


class Reply:
    """A callback that must be called exactly once."""

    def __init__(self):
        self.answers = []

    def __call__(self, *answer):
        assert not self.answers, f"called again with {answer}, after {self.answers}"
        self.answers.append(answer)

    @property
    def answer(self):
        assert self.answers, "not answered"
        return self.answers[0]

    @property
    def code(self):
        return self.answer[0]

    @property
    def waits(self):
        return not self.answers


class Process:
    """The process of a coordinator of one partition of `__transaction_state`.

    :ivar held: batches of markers wait for `write_markers`. :ivar failing: results of markers, by place.
    :ivar ids: producer ids that are in hand.
    """

    def __init__(self, partitions=1, **settings):
        self.timers, self.log = HandTimers(), HandLog()
        self.settings = Settings(**settings)
        self.sent, self.waiting, self.held, self.failing = [], [], False, {}
        self.ids, self.refused_marks, self.allowed = list(range(ID, ID + 100)), {}, []
        self.deleted, self.diverged = set(), []
        self.coordinator = TransactionCoordinator(
            self.timers, self.settings, partitions, Environment(self, self, self, self, self.diverged.append)
        )
        self.load()

    def load(self, epoch=7):
        """Load the log, as its new leader."""
        self.log.waiting.clear()
        self.coordinator.begin(0, self.log, epoch)
        self.coordinator.replay(0, self.log.records)
        for _ in self.coordinator.loaded(0):
            pass

    # -- environment

    def send(self, batch, then):
        self.sent.append(batch)
        self.waiting.append((batch, then))
        if not self.held:
            self.write_markers()

    def write_markers(self):
        waiting, self.waiting = self.waiting, []
        for batch, then in waiting:
            then([self.failing.get((marker.topic, marker.partition), NONE) for marker in batch])

    def next(self):
        return self.ids.pop(0) if self.ids else None

    def leadership(self, topic, partition):
        return 0, 0

    def allow(self, places, mark):
        self.allowed += [
            (*place, mark.transactional_id, mark.producer_id, mark.epoch, mark.transaction_version) for place in places
        ]
        return [self.refused_marks.get(place, NONE) for place in places]

    def exists(self, topic, partition):
        return (topic, partition) not in self.deleted

    # -- verbs

    def init(self, name="t", producer_id=-1, epoch=-1, timeout_ms=60_000, enable_2pc=False, keep_prepared=False):
        reply = Reply()
        self.coordinator.init_producer_id(name, timeout_ms, producer_id, epoch, enable_2pc, keep_prepared, reply)
        return reply

    def add(self, producer_id, epoch, *places, name="t", version=2, patience_ms=0):
        reply = Reply()
        self.coordinator.add_partitions(
            name, producer_id, epoch, places or (ORDERS,), version, reply, patience_ms=patience_ms
        )
        return reply

    def verify(self, producer_id, epoch, *places, name="t"):
        reply = Reply()
        self.coordinator.verify(name, producer_id, epoch, places or (ORDERS,), reply)
        return reply.answer[0]

    def end(self, producer_id, epoch, commits=True, version=2, name="t"):
        reply = Reply()
        self.coordinator.end(name, producer_id, epoch, commits, version, reply)
        return reply

    # -- what is

    def state(self, name="t"):
        code, description = self.coordinator.describe(name)
        return description.state if description else code

    def written(self, name="t"):
        """The facts in the log, oldest first; None for a tombstone."""
        return [None if value is None else facts_of(value) for key, value in self.log.records if id_of(key) == name]

    def states_written(self, name="t"):
        return [facts and facts.state.name for facts in self.written(name)]
