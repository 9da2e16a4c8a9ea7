"""The command's producer and reader over connections that break: no record is lost, duplicated or reordered."""

import time
from collections import deque
from types import SimpleNamespace

import pytest

from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.records.line_batches import RecordBatches
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.records import sending
from odradek.cli.records.direct_reading import DirectConsumer, record_reader
from odradek.cli.records.reading import Ends, Selection, Start, assignment, matching
from odradek.cli.records.record_format import printer
from odradek.cli.records.sending import InputSender
from odradek.clients import fetching, partition_leaders, producing, topics
from odradek.clients.cluster import Address, Cluster, Partition, TopicInfo, View
from odradek.clients.errors import ClientError, UnreachableError
from odradek.clients.fetching import Fetcher
from odradek.clients.producing import Sender
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id, produce
from odradek.testing import Broker
from tests.cli.gate import Gate

PARTITIONS = 3


def seal(builder, *producer):
    return builder.finish(0, None, *producer)


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    with Gate() as gate:
        config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{gate.port}"}
        topics = {"cut": PARTITIONS, "gone": 1, "short": 1}
        with Broker(config, directory=tmp_path_factory.mktemp("gate"), topics=topics) as broker:
            gate.upstream_port = broker.port
            yield gate


def cluster_of(gate):
    return Cluster(f"127.0.0.1:{gate.port}", 30.0)


def test_lines_that_are_sent_and_read_over_connections_that_break_arrive_once_and_in_order(gate, tmp_path, monkeypatch):
    """Each of the cuts loses the response of a batch that the broker has appended."""
    keys = [b"%d" % (number % 7) for number in range(60_000)]
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%s:%d\n" % (key, number) for number, key in enumerate(keys)))
    warnings = []
    gate.cuts, gate.cut_at = 6, 4
    with cluster_of(gate) as cluster, Interruption() as interruption, path.open("rb") as source:
        batches = RecordBatches(PARTITIONS, 20_000, open_partitions=range(PARTITIONS), separator=b":")
        sender = Sender(cluster, "cut", PARTITIONS, -1, 30.0, seal, warnings.append)
        InputSender(source, "lines", batches, sender, interruption, lambda more: None).run()
        assert sender.acknowledged == len(keys) and sender.waiting_bytes == sender.waiting_records == 0
    assert gate.cuts == 0 and warnings and "retrying" in warnings[0]
    monkeypatch.setattr(fetching, "PARTITION_MAX_BYTES", 20_000)
    written = read_all(gate, "cut", warnings, cuts=3)
    assert gate.cuts == 0
    found = [line.split(b":") for line in written.splitlines()]
    assert len(found) == len(keys)
    for key in set(keys):
        numbers = [int(number) for name, number in found if name == key]
        assert numbers == [number for number, name in enumerate(keys) if name == key]


def read_all(gate, topic, warnings, cuts):
    """Every record, as key:value. Responses are lost once it is known what to read."""
    written = bytearray()
    with cluster_of(gate) as cluster, Interruption() as interruption:
        partitions = matching(cluster, Selection([topic]))
        ends = Ends.of(cluster, partitions, True)
        positions = assignment(cluster, partitions, Start(end="beginning"))
        gate.cuts, gate.cut_at = cuts, 6
        reader = record_reader(printer("{key}:{value}\\n"), written.extend, None, None, None, True)
        fetcher = Fetcher(cluster, positions, True, warnings.append)
        DirectConsumer(fetcher, reader, positions, ends).run(interruption, 30.0)
    return bytes(written)


def test_reading_a_topic_that_is_deleted_meanwhile_says_so(gate, monkeypatch):
    monkeypatch.setattr(partition_leaders, "MISSING_S", 0.1)
    with cluster_of(gate) as cluster:
        fetcher = Fetcher(cluster, {("gone", 0): 0}, True, lambda line: None)
        assert list(fetcher.poll(5.0)) == []
        topics.delete(cluster, ["gone"])
        with pytest.raises(ClientError, match="'gone' was deleted while it was being read"):
            poll_until_error(fetcher)


def poll_until_error(fetcher):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for _ in fetcher.poll(1.0):
            pass


def test_reading_what_was_deleted_names_the_first_offset_that_is_there(gate):
    with cluster_of(gate) as cluster:
        builder = BatchBuilder()
        for _ in range(5):
            builder.add(None, b"v", time.time_ns() // 1_000_000)
        sender = Sender(cluster, "short", 1, 1, 30.0, seal, lambda line: None)
        sender.put(0, builder)
        while sender.waiting_records:
            sender.send()
            for connection in sender.connections:
                sender.receive(connection)
        topics.delete_records(cluster, {("short", 0): 4})
        fetcher = Fetcher(cluster, {("short", 0): 2}, True, lambda line: None)
        with pytest.raises(ClientError, match=r"short-0 has no offset 2: its records before offset 4 were deleted"):
            poll_until_error(fetcher)


# -- a leader with scripted responses ---------------------------------------------------------------------------------


class Leader:
    """A cluster of one broker, and the connection to it. :param answers: error codes for the batches in order."""

    def __init__(self, *answers, idempotent=True):
        self.answers = deque(answers)
        self.sent = []
        self.idempotent = idempotent
        self._waiting = deque()
        self.address = "leader:1"

    def any_broker(self):
        return self

    broker = lambda self, node_id: self  # noqa: E731

    def serves(self, api_key):
        return (0, 5) if self.idempotent and api_key == init_producer_id.API_KEY else None

    def ask_any(self, api, request, errors):
        return SimpleNamespace(error_code=0, producer_id=9, producer_epoch=0)

    def metadata(self, names):
        partitions = tuple(Partition("t", number, 1, 0, (1,), (1,), (), ErrorCode.NONE) for number in range(2))
        return View("c", 1, {1: Address("leader", 1)}, {}, {"t": TopicInfo("t", bytes(16), False, partitions)})

    def forget(self, node_id):
        self._waiting.clear()

    def version_of(self, api, oldest=0, newest=None):
        return newest

    def send(self, api, request, *, version, answered=True):
        (topic,) = request.topic_data
        parts = []
        for part in topic.partition_data:
            sequence = int.from_bytes(part.records[53:57], "big", signed=True)
            self.sent.append((part.index, sequence, part.records[-2:-1]))
            answer = self.answers.popleft() if self.answers else ErrorCode.NONE
            if answer is UnreachableError:
                raise UnreachableError("the connection to leader:1 broke")
            parts.append((part.index, answer))
        if answered:
            self._waiting.append(parts)

    def receive(self):
        make = produce.Response
        parts = [make.PartitionProduceResponse(index=index, error_code=code) for index, code in self._waiting.popleft()]
        return make(responses=[make.TopicProduceResponse(name="t", partition_responses=parts)])


def batch(value):
    builder = BatchBuilder()
    builder.add(None, value, 0)
    return builder


def drive(sender, leader):
    """Send until all batches are acknowledged."""
    while sender.waiting_records:
        pause = sender.send()
        if sender.connections:
            sender.receive(leader)
        elif pause:
            time.sleep(pause)  # what the producer asks for; nothing else happens here


def sender_to(leader, acks=-1, timeout_s=30.0):
    return Sender(leader, "t", 2, acks, timeout_s, seal, lambda line: None)


NOT_LEADER, OUT_OF_ORDER = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_behind_one_that_is_refused_for_now_are_sent_again_in_order():
    leader = Leader(ErrorCode.NONE, NOT_LEADER, OUT_OF_ORDER, OUT_OF_ORDER)
    sender = sender_to(leader)
    for value in (b"a", b"b", b"c", b"d"):
        sender.put(0, batch(value))
    drive(sender, leader)
    assert [(sequence, value) for _, sequence, value in leader.sent] == [
        (0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (1, b"b"), (2, b"c"), (3, b"d")
    ]  # fmt: skip
    assert sender.acknowledged == 4


def test_a_batch_that_was_appended_before_its_answer_was_lost_counts_once():
    leader = Leader(UnreachableError, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    sender = sender_to(leader)
    sender.put(1, batch(b"a"))
    drive(sender, leader)
    assert sender.acknowledged == 1 and [one[:2] for one in leader.sent] == [(1, 0), (1, 0)]


def test_at_most_five_requests_are_on_their_way_and_one_without_a_producer_id():
    for acks, idempotent, most in ((-1, True, 5), (-1, False, 1), (1, True, 1)):
        leader = Leader(idempotent=idempotent)
        sender = sender_to(leader, acks)
        for _ in range(9):
            sender.put(0, batch(b"a"))
        sender.send()
        assert len(leader.sent) == most
        assert {sequence for _, sequence, _ in leader.sent} == (set(range(5)) if most == 5 else {-1})
        drive(sender, leader)
        assert sender.acknowledged == 9


def test_without_acknowledgements_what_is_sent_counts():
    leader = Leader()
    sender = sender_to(leader, acks=0)
    sender.put(0, batch(b"a"))
    sender.send()
    assert sender.acknowledged == 1 and not sender.connections


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, OUT_OF_ORDER], ids=lambda code: code.name)
def test_a_refusal_that_is_final_says_why(code):
    leader = Leader(code)
    sender = sender_to(leader)
    sender.put(0, batch(b"a"))
    with pytest.raises(ClientError, match=rf"t-0 refused 1 record: .*\({code.name}\)"):
        drive(sender, leader)


def test_a_record_that_is_refused_is_shown():
    leader = Leader(ErrorCode.INVALID_RECORD)
    answer = leader.receive

    def receive():
        response = answer()
        (part,) = response.responses[0].partition_responses
        part.record_errors = [
            produce.Response.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key")
        ]
        return response

    leader.receive = receive
    sender = sender_to(leader)
    sender.put(0, batch(b"x" * 50))
    with pytest.raises(
        ClientError, match=rf"^t-0 refused the record with key null and value '{'x' * 40}\.\.\.': no key$"
    ):
        drive(sender, leader)


def test_a_partition_that_acknowledges_nothing_in_time_ends_it():
    leader = Leader(*[NOT_LEADER] * 1000)
    sender = sender_to(leader, timeout_s=0.05)
    sender.put(0, batch(b"a"))
    with pytest.raises(
        ClientError, match=r"t-0 acknowledged no batch for 0.05 s; the leader's last error is NOT_LEADER_OR_"
    ):
        drive(sender, leader)


def test_a_partition_that_answers_nothing_in_time_needs_a_larger_timeout():
    sender = sender_to(Leader(), timeout_s=0.05)
    sender.put(0, batch(b"a"))
    sender.send()
    sender._queues[0].since -= 1
    with pytest.raises(ClientError, match=r"t-0 acknowledged no batch for 0.05 s; use a larger --timeout"):
        sender.send()


def test_a_partition_without_a_leader_and_one_whose_leader_is_away_say_so():
    sender = sender_to(Leader(), timeout_s=0.05)
    sender.put(0, batch(b"a"))
    sender._leaders = {}
    sender._cluster.metadata = lambda topics: SimpleNamespace(topics={})
    sender._look_up_leaders()
    assert "the partition has no leader; `odradek doctor`" in sender._queues[0].refusal
    leader = Leader(*[UnreachableError] * 1000)
    sender = sender_to(leader, timeout_s=0.05)
    sender.put(0, batch(b"a"))
    with pytest.raises(ClientError, match=r"no batch for 0.05 s; the last error is: the connection to leader:1 broke"):
        drive(sender, leader)


def test_an_error_before_the_last_acknowledgement_is_not_shown():
    leader = Leader(NOT_LEADER)
    sender = sender_to(leader)
    sender.put(0, batch(b"a"))
    drive(sender, leader)
    assert sender.acknowledged == 1
    assert sender._queues[0].refusal == ""


def test_sequences_go_on_from_zero_behind_the_largest():
    leader = Leader()
    sender = sender_to(leader)
    sender._queues[0].next_sequence = producing.LAST_SEQUENCE
    sender.put(0, batch(b"a"))
    sender.put(0, batch(b"b"))
    drive(sender, leader)
    assert [sequence for _, sequence, _ in leader.sent] == [producing.LAST_SEQUENCE, 0]


def test_an_input_that_is_one_record_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(sending, "MOST_LINE_BYTES", 10)
    path = tmp_path / "whole"
    path.write_bytes(b"four\n" * 3)
    leader = Leader()
    with path.open("rb") as source, Interruption() as interruption:
        batches = RecordBatches(2, 1000, open_partitions=range(2))
        work = InputSender(source, "whole", batches, sender_to(leader), interruption, lambda more: None)
        work.run()
    assert work.failure == "line 1 of the input is not valid: the record is longer than 10 bytes" and not leader.sent
