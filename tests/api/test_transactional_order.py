"""Random requests of transactional producers in flight on one connection, with taken locks, all kinds of answers of the
coordinator, and connections that end: what is in the log afterwards.

Whatever happens, a log contains the batches of a producer's epoch in order and without a gap from the first on, none twice, and
only if the coordinator has allowed it; and every response says what happened.
"""

import contextlib
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.partition import slot_facts, slots
from odradek._ext.testing import lock_probe, slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from odradek.storage.batch import ABORT, build_end_marker, read_batches
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, produce_request

TOPICS = ("t", "u")
PRODUCERS = (7, 8)
MOST_IN_FLIGHT = 4  # of a partition: a partition remembers five batches of a producer
ANSWERS = (0, 0, 0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED)

SENDS = st.tuples(
    st.just("send"),
    st.sampled_from(PRODUCERS),
    st.lists(st.sampled_from(TOPICS), min_size=1, max_size=2, unique=True),
    st.sampled_from((1, 1, -1)),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((11, 12)),
    st.integers(1, 3),
)
OTHERS = st.one_of(
    st.tuples(
        st.just("answer"), st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=3), st.booleans(), st.integers(0, 3)
    ),
    st.tuples(st.sampled_from(("lock", "unlock", "mark")), st.sampled_from(TOPICS), st.sampled_from(PRODUCERS)),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS)),
    st.tuples(st.sampled_from(("turn", "append", "retry", "expire", "no_answer", "resend", "close"))),
)
STEPS = st.lists(st.one_of(SENDS, SENDS, OTHERS), max_size=40)


class World:
    """A worker, the client of one connection, and the coordinator."""

    def __init__(self, path: Path) -> None:
        self.worker = HandWorker(path)
        self.slots = {topic: self.worker.create(topic) for topic in TOPICS}
        self.locks: dict[str, lock_probe.SlotLock] = {}
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.next: dict[tuple[int, str], int] = defaultdict(int)
        self.unacknowledged: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.allowed: set[tuple[int, int, str]] = set()
        self.told: list[tuple[str, int, bytes]] = []
        self.wire = self.worker.connect()
        self.requests: list[list[tuple[int, int, str, int]]] = []

    def send(self, producer, topics, acks, codec, version, count):
        """Send `count` requests without waiting, each with a batch for each of the topics."""
        for _ in range(count):
            self.send_one(producer, topics, acks, codec, version)

    def send_one(self, producer, topics, acks, codec, version):
        request = []
        for topic in topics:
            if len(self.unacknowledged[producer, topic]) < MOST_IN_FLIGHT:
                sequence = self.next[producer, topic]
                self.next[producer, topic] += 1
                self.unacknowledged[producer, topic].append(sequence)
                request.append((producer, self.epochs[producer], topic, sequence))
        if request:
            self.put(request, acks, codec, version)

    def put(self, request, acks, codec, version):
        topics = []
        for producer, epoch, topic, sequence in request:
            fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, "attributes": 0x10}
            topics.append((topic, [(0, batch(value_of(producer, epoch, sequence), codec=codec, **fields))]))
        self.wire.send(produce_request(topics, acks, 30_000, f"id {request[0][0]}"), produce.API_KEY, version)
        self.requests.append(request)

    def receive(self):
        """Receive the responses that have arrived, and note their results."""
        while self.requests and not nothing_came(self.wire):
            request = self.requests.pop(0)
            response = self.wire.receive()
            for (producer, epoch, topic, sequence), of_topic in zip(request, response.responses, strict=True):
                (answer,) = of_topic.partition_responses
                if answer.error_code == 0:
                    self.told.append((topic, answer.base_offset, value_of(producer, epoch, sequence)))
                if epoch != self.epochs[producer]:
                    continue
                known = self.unacknowledged[producer, topic]
                if answer.error_code == 0 and sequence in known:
                    known.remove(sequence)

    def resend(self):
        """Send again what is not acknowledged, oldest first, as after an error or with a new connection."""
        for (producer, topic), sequences in self.unacknowledged.items():
            for sequence in sorted(sequences):
                self.put([(producer, self.epochs[producer], topic, sequence)], 1, 0, 12)

    def answer(self, codes, mark, at=0):
        self.worker.turn()
        if not self.worker.questions:
            return
        at %= len(self.worker.questions)
        _, _, questions, _ = self.worker.questions[at]
        asked = [(question, topic) for question in questions for topic, _ in question[-1]]
        codes = [codes[number % len(codes)] for number in range(len(asked))]
        for code, ((name, producer, epoch, _, _), topic) in zip(codes, asked, strict=True):
            assert name == f"id {producer}"
            if code == 0 and mark and topic not in self.locks:
                self.allowed.add((producer, epoch, topic))
        if mark and any(topic in self.locks for _, topic in asked):
            mark = False  # the coordinator waits for the lock
        self.worker.answer(*codes, mark=mark, at=at)

    def mark(self, topic, producer):
        if topic not in self.locks:
            slot, epoch = self.slots[topic], self.epochs[producer]
            slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, f"id {producer}", producer, epoch, 2)
            self.allowed.add((producer, epoch, topic))

    def end(self, producer):
        """End the transaction in all partitions; the producer continues with the next epoch."""
        if self.locks:
            return
        self.epochs[producer] += 1
        for topic, slot in self.slots.items():
            self.next[producer, topic] = 0
            self.unacknowledged[producer, topic].clear()
            fields = {"producer_id": producer, "producer_epoch": self.epochs[producer], "coordinator_epoch": 0}
            end = slot_facts.describe(slot).log_end_offset
            marker = build_end_marker(ABORT, base_offset=end, timestamp=1000, **fields)
            assert slot_probe.append(slot, [marker])[0][0] == 0

    def lock(self, topic, _):
        if topic not in self.locks:
            self.locks[topic] = lock_probe.SlotLock(self.slots[topic])
            self.locks[topic].__enter__()

    def unlock(self, topic, _):
        if topic in self.locks:
            self.locks.pop(topic).__exit__(None, None, None)

    def close(self):
        self.receive()
        self.wire.socket.close()
        self.worker.turn()
        self.requests.clear()
        self.wire = self.worker.connect()
        self.resend()

    def do(self, step):
        verb, *arguments = step
        if verb in ("turn", "append", "retry", "expire"):
            getattr(self.worker, verb)()
        elif verb == "no_answer":
            if self.worker.questions:
                self.worker.no_answer()
        elif verb == "resend":
            self.receive()
            self.resend()
        else:
            getattr(self, verb)(*arguments)

    def finish(self):
        for topic in TOPICS:
            self.unlock(topic, None)
        self.worker.turn()
        while self.worker.questions or self.worker.retries or self.worker.offloaded:
            self.worker.retry()
            self.worker.append()
            self.answer([0], True)
        self.worker.turn()
        self.receive()
        assert not self.requests, "every request is answered"
        assert self.worker.room.waiters == 0

    def read(self, topic):
        """The batches of a log."""
        wire, batches, offset = self.worker.connect(), [], 0
        while offset < slot_facts.describe(self.slots[topic]).log_end_offset:
            wire.send(fetch_request([(topic, 0, offset)]), fetch.API_KEY, 12)
            self.worker.turn()
            batches += read_batches(bytes(wire.receive().responses[0].partitions[0].records))
            offset = batches[-1].last_offset + 1
        return batches

    def check(self):
        for topic in TOPICS:
            log = {}
            sequences = defaultdict(list)
            for found in self.read(topic):
                if found.is_control:
                    continue
                (record,) = found.records()
                log[found.base_offset] = record.value
                sequences[found.producer_id, found.producer_epoch].append(found.base_sequence)
                assert record.value == value_of(found.producer_id, found.producer_epoch, found.base_sequence)
            for (producer, epoch), listed in sequences.items():
                assert listed == list(range(len(listed))), (topic, producer, epoch)
                assert (producer, epoch, topic) in self.allowed
            for _, offset, value in [told for told in self.told if told[0] == topic]:
                assert log.get(offset) == value


def value_of(producer, epoch, sequence):
    return b"%d %d %d" % (producer, epoch, sequence)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_order_of_batches_survives_whatever_happens_to_their_requests(steps):
    with tempfile.TemporaryDirectory() as path:
        world = World(Path(path))
        try:
            for step in steps:
                world.do(step)
            world.finish()
            world.check()
        finally:
            for topic in TOPICS:
                world.unlock(topic, None)
            with contextlib.suppress(OSError):
                world.worker.close()
