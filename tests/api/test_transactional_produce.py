"""Transactional batches in a worker: the rules of their requests, and the questions to the coordinator, which tests answer."""

import gc

import pytest

from odradek._ext.partition import slot_facts, slots
from odradek._ext.testing import lock_probe, slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from odradek.storage.batch import COMMIT, build_end_marker, read_batches
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import Wire, batch, fetch_request, produce_request, values

VERIFIES, ADDS = 11, 12
LONG_AGO = 10  # a version without error messages for transactions
PRODUCER, OTHER = 7, 8


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def written(sequence=0, *, producer=PRODUCER, epoch=0, value=None, transactional=True, **fields):
    """A batch of one record of a producer."""
    attributes = 0x10 if transactional else 0
    value = b"%d" % sequence if value is None else value
    return batch(
        value, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=attributes, **fields
    )


def send(wire: Wire, topics, version=ADDS, acks=1, *, transactional_id="id", timeout_ms=10_000):
    """:param topics: {topic: batch of partition 0, or [(partition, batch)]}."""
    request = [(topic, data if isinstance(data, list) else [(0, data)]) for topic, data in topics.items()]
    wire.send(produce_request(request, acks, timeout_ms, transactional_id), produce.API_KEY, version)


def push(worker, wire: Wire, data: bytes) -> None:
    """Send more than fits into the socket, while the worker receives."""
    left = memoryview(data)
    wire.socket.setblocking(False)
    while left:
        left = left[wire.socket.send(left) :]
        worker.turn()
    wire.socket.settimeout(90)


def results(wire: Wire):
    """[(error, base offset)] of the partitions of a response."""
    return [
        (answer.error_code, answer.base_offset)
        for topic in wire.receive().responses
        for answer in topic.partition_responses
    ]


def refused(wire: Wire):
    """(error, message) of the only partition of a response."""
    (answer,) = wire.receive().responses[0].partition_responses
    assert answer.base_offset == -1
    return answer.error_code, answer.error_message


def log(worker: HandWorker, topic: str) -> list[bytes]:
    wire = worker.connect()
    wire.send(fetch_request([(topic, 0, 0)]), fetch.API_KEY, 12)
    worker.turn()
    return values(wire.receive().responses[0].partitions[0].records)


def end_transaction(slot: int, *, producer=PRODUCER, epoch=0) -> None:
    """Write a marker."""
    end = slot_facts.describe(slot).log_end_offset
    marker = build_end_marker(
        COMMIT, base_offset=end, producer_id=producer, producer_epoch=epoch, coordinator_epoch=0, timestamp=1000
    )
    assert slot_probe.append(slot, [marker])[0][0] == 0


class TestRequests:
    """The conditions that a request with transactional batches must meet."""

    @pytest.mark.parametrize("version", [3, 8, VERIFIES, ADDS])
    @pytest.mark.parametrize("codec", [0, 1])
    def test_without_a_transactional_id_all_partitions_are_refused(self, worker, version, codec):
        worker.create("t")
        worker.create("plain")
        wire = worker.connect()
        topics = {"plain": batch(), "no-such": batch(), "t": written(codec=codec)}
        send(wire, topics, version, transactional_id=None)
        worker.turn()
        assert results(wire) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 3
        assert not worker.questions
        assert not worker.offloaded

    def test_a_transactional_batch_that_is_refused_anyhow_requires_the_id_of_the_others(self, worker):
        worker.create("plain")
        wire = worker.connect()
        send(wire, {"plain": batch(), "no-such": written()}, transactional_id=None)
        worker.turn()
        assert results(wire) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 2

    def test_a_transactional_id_alone_changes_nothing(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": batch()})
        send(wire, {"t": written(transactional=False)})
        worker.turn()
        assert [results(wire) for _ in range(2)] == [[(0, 0)], [(0, 1)]]

    @pytest.mark.parametrize("other", [{"producer": OTHER}, {"epoch": 1}])
    def test_batches_of_several_producers_are_refused_with_the_whole_request(self, worker, other):
        for topic in ("t", "u", "plain"):
            worker.create(topic)
        wire = worker.connect()
        send(wire, {"t": written(), "plain": batch(), "u": written(**other)})
        worker.turn()
        assert results(wire) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 3
        assert not worker.questions
        send(wire, {"t": written(), "no-such": written(**other)})
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    def test_without_acks_such_requests_close_the_connection(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written()}, acks=0, transactional_id=None)
        wire.forget_answer()
        worker.turn()
        assert wire.closed_by_broker()

    def test_control_batches_of_clients_are_refused(self, worker):
        worker.create("t")
        wire = worker.connect()
        marker = build_end_marker(
            COMMIT, base_offset=0, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1000
        )
        send(wire, {"t": marker})
        worker.turn()
        assert refused(wire)[0] == ErrorCode.INVALID_RECORD


class TestQuestions:
    """When the coordinator is asked, and for what."""

    @pytest.mark.parametrize("codec", [0, 1])
    @pytest.mark.parametrize("acks", [1, -1])
    @pytest.mark.parametrize("version", [3, VERIFIES, ADDS, 13])
    def test_the_first_batch_of_a_transaction_waits_for_the_answer(self, worker, version, acks, codec):
        topic_id = b"i" * 16
        slot = worker.create("t", topic_id=topic_id)
        wire = worker.connect()
        send(wire, {topic_id if version == 13 else "t": written(codec=codec)}, version, acks)
        worker.turn()
        worker.append()
        ((pending, number, questions, _),) = worker.questions
        assert questions == [("id", PRODUCER, 0, version < ADDS, [("t", 0)])]
        assert (number, pending.questions) == (1, 1)
        assert nothing_came(wire)
        assert worker.room.waiters == 1
        worker.answer()
        assert results(wire) == [(0, 0)]
        assert worker.room.waiters == 0
        send(wire, {topic_id if version == 13 else "t": written(1, codec=codec)}, version, acks)
        worker.turn()
        worker.append()
        assert results(wire) == [(0, 1)]
        assert not worker.questions
        assert slot_facts.describe(slot).first_unstable_offset == 0

    def test_each_transaction_is_asked_for_once(self, worker):
        slot = worker.create("t")
        wire = worker.connect()
        for epoch in range(3):
            for sequence in range(2):
                send(wire, {"t": written(sequence, epoch=epoch)})
                worker.turn()
                if sequence == 0:
                    worker.answer()
                assert results(wire)[0][0] == 0
            end_transaction(slot, epoch=epoch + 1)
        assert not worker.questions

    def test_a_partition_that_the_client_has_added_needs_no_question(self, worker):
        slot = worker.create("t")
        slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", PRODUCER, 0, 0)
        wire = worker.connect()
        send(wire, {"t": written()}, VERIFIES)
        worker.turn()
        assert results(wire) == [(0, 0)]

    def test_one_question_has_all_partitions_of_a_request(self, worker):
        worker.create_many("many", 3)
        worker.create("alone")
        worker.create("plain")
        wire = worker.connect()
        topics = {"many": [(2, written()), (0, written())], "plain": batch(), "alone": written()}
        send(wire, topics)
        worker.turn()
        (question,) = worker.questions[0][2]
        assert question[-1] == [("many", 2), ("many", 0), ("alone", 0)]
        worker.answer(0, ErrorCode.INVALID_TXN_STATE, 0)
        assert results(wire) == [(0, 0), (ErrorCode.INVALID_TXN_STATE, -1), (0, 0), (0, 0)]

    def test_one_question_has_the_partitions_of_all_requests_of_a_read(self, worker):
        worker.create_many("many", 3)
        wire = worker.connect()
        for partition in (1, 0, 1, 2):
            sequence = 1 if partition == 1 and len(wire._sent) > 1 else 0
            send(wire, {"many": [(partition, written(sequence))]}, VERIFIES if partition == 2 else ADDS)
        worker.turn()
        (asked,) = worker.questions
        assert [question[-2:] for question in asked[2]] == [
            (False, [("many", 1), ("many", 0)]),
            (True, [("many", 2)]),
        ]
        worker.answer()
        assert [results(wire) for _ in range(4)] == [[(0, 0)], [(0, 0)], [(0, 1)], [(0, 0)]]
        assert not worker.questions

    def test_requests_behind_a_refused_one_ask_for_themselves(self, worker):
        worker.create_many("many", 2)
        wire = worker.connect()
        for partition in (0, 1):
            send(wire, {"many": [(partition, written())]})
        worker.turn()
        worker.answer(ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED)
        assert refused(wire)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        worker.answer()
        assert results(wire) == [(0, 0)]

    def test_an_older_epoch_is_refused_without_a_question(self, worker):
        slot = worker.create("t")
        slot_probe.append(slot, [written(epoch=5)])
        wire = worker.connect()
        send(wire, {"t": written(epoch=4)})
        worker.turn()
        assert refused(wire)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        send(wire, {"t": written(epoch=6)})
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 1)]

    def test_a_repeated_batch_is_answered_without_a_question(self, worker):
        slot = worker.create("t")
        slot_probe.append(slot, [written()])
        wire = worker.connect()
        send(wire, {"t": written()}, VERIFIES)
        worker.turn()
        assert results(wire) == [(0, 0)]
        end_transaction(slot)
        send(wire, {"t": written()}, VERIFIES)
        worker.turn()
        assert refused(wire) == (
            ErrorCode.INVALID_TXN_STATE,
            "the batch does not belong to the open transaction of its producer",
        )

    def test_a_batch_outside_of_an_open_transaction_is_refused(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written()})
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 0)]
        send(wire, {"t": written(1, transactional=False)})
        worker.turn()
        assert refused(wire)[0] == ErrorCode.INVALID_TXN_STATE

    def test_the_first_sequence_of_a_new_producer_is_0_if_partitions_are_added(self, worker):
        worker.create("t")
        worker.create("u")
        wire = worker.connect()
        send(wire, {"t": written(5)}, ADDS)
        worker.turn()
        worker.answer()
        assert refused(wire)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        send(wire, {"u": written(5)}, VERIFIES)
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 0)]

    def test_verification_can_be_disabled_and_adding_cannot(self, worker):
        worker.create("t")
        worker.create("u")
        wire = worker.connect()
        worker.handler.produce_handler.verify_transactions = False
        send(wire, {"t": written()}, VERIFIES)
        worker.turn()
        assert results(wire) == [(0, 0)]
        send(wire, {"u": written()}, ADDS)
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 0)]
        worker.handler.produce_handler.verify_transactions = True
        send(wire, {"u": written(epoch=1)}, VERIFIES)
        worker.turn()
        worker.answer()
        assert results(wire) == [(0, 1)]

    def test_a_mark_that_is_lost_is_asked_for_three_times(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written()})
        worker.turn()
        for number in (1, 2, 3):
            assert worker.questions[0][1] == number
            worker.answer(mark=False)
        assert not worker.questions
        error, message = refused(wire)
        assert error == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "several times" in message
        send(wire, {"t": written()})
        worker.turn()
        worker.answer(mark=False)
        worker.answer()
        assert results(wire) == [(0, 0)]

    def test_the_time_for_an_answer_is_the_clients_timeout_within_limits(self, worker):
        worker.create("t")
        for timeout_ms, least, most in (
            (0, 1000, 1000),
            (5000, 5000, 5000),
            (2**31 - 1, 30_000, 30_000),
            (-1, 1000, 1000),
        ):
            wire = worker.connect()
            send(wire, {"t": written()}, timeout_ms=timeout_ms)
            worker.turn()
            pending, *_, deadline_ms = worker.questions.pop()
            arrived_ms = pending.deadline_ms - max(timeout_ms, 0)
            assert arrived_ms + least <= deadline_ms <= arrived_ms + most

    def test_a_partition_that_is_deleted_before_the_question_is_unknown(self, worker):
        slot = worker.create("t")
        wire = worker.connect()
        with lock_probe.SlotLock(slot):
            send(wire, {"t": written()})
            worker.turn()
        del worker.topics.by_name[b"t"]
        worker.retry()
        assert refused(wire)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not worker.questions

    def test_a_partition_that_gets_another_leader_before_the_answer_is_not_written(self, worker):
        slot = worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written()})
        worker.turn()
        worker.broker.obey(slot, 1)
        worker.answer(0, mark=False)
        assert refused(wire)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert slot_facts.describe(slot).log_end_offset == 0


ERRORS = [  # (version, what the coordinator answers, what the client gets)
    (version, code, expected)
    for code, by_version in {
        ErrorCode.PRODUCER_FENCED: {LONG_AGO: ErrorCode.INVALID_PRODUCER_EPOCH, ADDS: ErrorCode.INVALID_PRODUCER_EPOCH},
        ErrorCode.INVALID_PRODUCER_EPOCH: {VERIFIES: ErrorCode.INVALID_PRODUCER_EPOCH},
        ErrorCode.TRANSACTION_ABORTABLE: {
            LONG_AGO: ErrorCode.INVALID_TXN_STATE,
            VERIFIES: ErrorCode.TRANSACTION_ABORTABLE,
            ADDS: ErrorCode.TRANSACTION_ABORTABLE,
        },
        ErrorCode.INVALID_TXN_STATE: {LONG_AGO: ErrorCode.INVALID_TXN_STATE, ADDS: ErrorCode.INVALID_TXN_STATE},
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: {
            LONG_AGO: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ADDS: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        },
        ErrorCode.CONCURRENT_TRANSACTIONS: {
            LONG_AGO: ErrorCode.NOT_ENOUGH_REPLICAS,
            VERIFIES: ErrorCode.NOT_ENOUGH_REPLICAS,
            ADDS: ErrorCode.CONCURRENT_TRANSACTIONS,
        },
        **{
            code: dict.fromkeys((LONG_AGO, VERIFIES, ADDS), ErrorCode.NOT_ENOUGH_REPLICAS)
            for code in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.NOT_ENOUGH_REPLICAS,
            )
        },
        ErrorCode.UNKNOWN_SERVER_ERROR: {ADDS: ErrorCode.UNKNOWN_SERVER_ERROR},
    }.items()
    for version, expected in by_version.items()
]


@pytest.mark.parametrize(("version", "code", "expected"), ERRORS)
def test_errors_of_the_coordinator_are_those_that_clients_of_the_version_know(worker, version, code, expected):
    slot = worker.create("t")
    wire = worker.connect()
    send(wire, {"t": written()}, version)
    worker.turn()
    worker.answer(code)
    error, message = refused(wire)
    assert error == expected
    assert message
    assert slot_facts.describe(slot).log_end_offset == 0
    send(wire, {"t": written()}, version)
    worker.turn()
    worker.answer()
    assert results(wire) == [(0, 0)], "the batch may be sent again"


class TestOrder:
    """No later batch of a producer is appended before one that waits for an answer."""

    @pytest.mark.parametrize("codecs", [(0, 0, 0), (0, 1, 0), (1, 0, 1), (0, 0, 3), (1, 1, 0)])
    @pytest.mark.parametrize("together", [True, False])
    @pytest.mark.parametrize("acks", [1, -1])
    def test_nothing_overtakes_a_request_that_waits_for_the_coordinator(self, worker, codecs, together, acks):
        worker.create("t")
        wire = worker.connect()
        for number, codec in enumerate(codecs):
            send(wire, {"t": written(number, codec=codec)}, acks=acks)
            if not together:
                worker.turn()
        worker.turn()
        for _ in range(3):
            worker.append()
            worker.retry()
        assert nothing_came(wire)
        assert len(worker.questions) == 1
        worker.answer()
        for _ in codecs:
            worker.append()
        assert [results(wire) for _ in codecs] == [[(0, 0)], [(0, 1)], [(0, 2)]]
        assert log(worker, "t") == [b"0", b"1", b"2"]

    def test_a_mark_that_is_set_meanwhile_lets_no_later_request_overtake(self, worker):
        slot = worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written(0)})
        send(wire, {"t": written(1)})
        worker.turn()
        slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", PRODUCER, 0, 0)
        send(wire, {"t": written(2)})
        worker.turn()
        worker.retry()
        assert nothing_came(wire)
        worker.answer()
        assert [results(wire) for _ in range(3)] == [[(0, 0)], [(0, 1)], [(0, 2)]]

    @pytest.mark.parametrize("known", [False, True])
    @pytest.mark.parametrize("version", [VERIFIES, ADDS])
    def test_batches_behind_a_refused_one_are_out_of_order(self, worker, known, version):
        slot = worker.create("t")
        first = 3 if known else 0
        if known:
            slot_probe.append(slot, [written(0), written(1), written(2)])
            end_transaction(slot)
        before = slot_facts.describe(slot).log_end_offset
        wire = worker.connect()
        for sequence in range(first, first + 3):
            send(wire, {"t": written(sequence)}, version)
        worker.turn()
        worker.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        worker.answer()
        assert [refused(wire)[0] for _ in range(3)] == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]
        for sequence in range(first, first + 3):
            send(wire, {"t": written(sequence)}, version)
        worker.turn()
        assert [results(wire) for _ in range(3)] == [[(0, before)], [(0, before + 1)], [(0, before + 2)]]

    def test_another_producer_of_the_connection_waits_for_its_turn_only_if_it_must_ask(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written(0)})
        send(wire, {"t": written(0, producer=OTHER)}, transactional_id="other")
        send(wire, {"t": batch(b"plain")})
        worker.turn()
        ((_, _, questions, _),) = worker.questions
        assert [question[:2] for question in questions] == [("id", PRODUCER), ("other", OTHER)]
        worker.answer()
        assert [results(wire) for _ in range(3)] == [[(0, 1)], [(0, 2)], [(0, 0)]]

    def test_other_connections_go_on(self, worker):
        worker.create("t")
        waiting, other = worker.connect(), worker.connect()
        send(waiting, {"t": written(0)})
        worker.turn()
        send(other, {"t": batch(b"other")})
        send(other, {"t": written(0, producer=OTHER)}, transactional_id="other")
        worker.turn()
        assert results(other) == [(0, 0)]
        worker.answer(at=1)
        assert results(other) == [(0, 1)]
        worker.answer()
        assert results(waiting) == [(0, 2)]

    def test_more_batches_than_one_write_takes(self, worker):
        worker.create("t")
        wire = worker.connect()
        wire.socket.sendall(
            b"".join(
                wire.frame(produce_request([("t", [(0, written(number))])], 1, 10_000, "id"), produce.API_KEY, ADDS)
                for number in range(200)
            )
        )
        worker.turn()
        worker.answer()
        assert not worker.questions
        assert [results(wire) for _ in range(200)] == [[(0, number)] for number in range(200)]

    @pytest.mark.parametrize("count", [3, 100, 300])
    @pytest.mark.parametrize("code", [0, ErrorCode.INVALID_TXN_STATE])
    def test_many_batches_of_one_partition_in_one_request(self, worker, count, code):
        slot = worker.create("t")
        wire = worker.connect()
        send(wire, {"t": [(0, written(number)) for number in range(count)]})
        worker.turn()
        worker.append()
        assert len(worker.questions[0][2][0][-1]) == 1
        worker.answer(code)
        worker.append()
        expected = [(code, -1)] * count if code else [(0, number) for number in range(count)]
        assert results(wire) == expected
        assert not worker.questions
        assert slot_facts.describe(slot).log_end_offset == (0 if code else count)

    def test_a_batch_outside_of_the_transaction_does_not_overtake_within_a_request(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": [(0, written(0)), (0, written(1, transactional=False)), (0, batch(b"plain"))]})
        worker.turn()
        worker.answer(ErrorCode.INVALID_TXN_STATE)
        worker.retry()
        codes = [code for code, _ in results(wire)]
        assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]

    @pytest.mark.parametrize("first_unverified", [True, False])
    def test_taken_locks_and_questions_of_one_connection(self, worker, first_unverified):
        locked = worker.create("locked")
        worker.create("free")
        wire = worker.connect()
        topics = ["free", "locked"] if first_unverified else ["locked", "free"]
        with lock_probe.SlotLock(locked):
            for topic in topics:
                send(wire, {topic: written()})
            worker.turn()
            worker.retry()
            assert len(worker.questions) == first_unverified
            if first_unverified:
                worker.answer()
            worker.retry()
        worker.retry()
        assert len(worker.questions) == 1
        worker.answer()
        assert [results(wire) for _ in topics] == [[(0, 0)], [(0, 0)]]

    def test_a_lock_that_is_taken_when_the_answer_comes(self, worker):
        slot = worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written(0)})
        send(wire, {"t": written(1)})
        worker.turn()
        pending, number, _, _ = worker.questions.pop()
        incarnation = slot_probe.incarnation_of(slot)
        slots.allow_transaction(slot, incarnation, -1, "id", PRODUCER, 0, 2)
        with lock_probe.SlotLock(slot):
            pending.verified(number, (0,))
            worker.retry()
            assert nothing_came(wire)
        worker.retry()
        assert [results(wire) for _ in range(2)] == [[(0, 0)], [(0, 1)]]

    def test_a_large_request_is_appended_on_the_thread_after_the_answer(self, worker):
        listed = worker.create_many("many", 4)
        wire = worker.connect()
        request = produce_request(
            [("many", [(partition, written(value=bytes(900_000))) for partition in range(4)])], 1, 10_000, "id"
        )
        push(worker, wire, wire.frame(request, produce.API_KEY, ADDS))
        worker.append()
        pending, number, _, _ = worker.questions.pop()
        for slot in listed:
            slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", PRODUCER, 0, 2)
        pending.verified(number, (0,) * 4)
        assert worker.offloaded == [pending]
        worker.append()
        assert results(wire) == [(0, 0)] * 4


class TestLargeBatches:
    """While they wait for the coordinator, they stay in the buffer into which they were received."""

    @pytest.mark.parametrize("behind", [0, 2])
    def test_are_appended_from_their_receive_buffers(self, worker, behind):
        slot = worker.create("t")
        wire = worker.connect()
        values = [bytes(range(250)) * 3000, *(b"%d" % number for number in range(behind))]
        requests = [
            produce_request([("t", [(0, written(sequence, value=value))])], 1, 10_000, "id")
            for sequence, value in enumerate(values)
        ]
        push(worker, wire, b"".join(wire.frame(request, produce.API_KEY, ADDS) for request in requests))
        assert worker.loop.pool.lent_bytes == 1 << 20
        worker.answer()
        assert [results(wire) for _ in values] == [[(0, offset)] for offset in range(len(values))]
        assert worker.loop.pool.lent_bytes == 0
        stored = list(read_batches(worker.broker.log_bytes(slot)))
        assert [record.value for one in stored for record in one.records()] == values

    def test_of_a_client_that_disconnects_give_their_buffers_back(self, worker):
        worker.create("t")
        wire = worker.connect()
        request = produce_request([("t", [(0, written(value=bytes(700_000)))])], 1, 10_000, "id")
        push(worker, wire, wire.frame(request, produce.API_KEY, ADDS))
        assert worker.loop.pool.lent_bytes == 1 << 20
        wire.socket.close()
        worker.turn()
        worker.questions.clear()
        assert worker.loop.pool.lent_bytes == 0

    def test_may_be_collected_as_garbage(self, tmp_path):
        """The collector clears the references of an object, also that to the pool, before the object frees its memory."""
        worker = HandWorker(tmp_path)
        worker.create("t")
        wire = worker.connect()
        request = produce_request([("t", [(0, written(value=bytes(700_000)))])], 1, 10_000, "id")
        push(worker, wire, wire.frame(request, produce.API_KEY, ADDS))
        assert worker.questions
        gc.collect()
        gc.disable()
        try:
            worker.questions.clear()
            broker = worker.broker
            vars(worker).clear()
            assert gc.collect() > 0
        finally:
            gc.enable()
            broker.close()

    def test_that_are_a_small_part_of_their_request_are_copied(self, worker):
        """Otherwise a small batch that waits would keep a large buffer."""
        worker.create("t")
        worker.create("plain")
        wire = worker.connect()
        topics = [("plain", [(0, batch(bytes(800_000)))]), ("t", [(0, written())])]
        push(worker, wire, wire.frame(produce_request(topics, 1, 10_000, "id"), produce.API_KEY, ADDS))
        assert worker.questions
        assert worker.loop.pool.lent_bytes == 0
        worker.answer()
        assert results(wire) == [(0, 0), (0, 0)]


class TestEnds:
    """The coordinator or the worker ends, the client closes its connection, or the coordinator does not answer."""

    @pytest.mark.parametrize("end", ["no answer", "deadline", "stop"])
    def test_without_an_answer_the_batches_are_refused_and_may_be_sent_again(self, worker, end):
        worker.create("t")
        wire = worker.connect()
        for number in range(3):
            send(wire, {"t": written(number)})
        worker.turn()
        late = worker.questions[0]
        if end == "no answer":
            for _ in range(3):
                worker.no_answer()
        else:
            if end == "stop":
                worker.room.end()
            else:
                while worker.room.waiters:
                    worker.expire()
            worker.loop.flush_dirty()
        answers = [refused(wire) for _ in range(3)]
        assert [code for code, _ in answers] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        assert all(("stops" if end == "stop" else "coordinator") in message for _, message in answers)
        pending, number, _, _ = late
        pending.verified(number, (0,))  # too late
        assert nothing_came(wire)
        assert worker.room.waiters == 0
        if end != "stop":
            worker.questions.clear()
            send(wire, {"t": written()})
            worker.turn()
            worker.answer()
            assert results(wire) == [(0, 0)]

    def test_without_acks_a_refused_batch_closes_the_connection_and_an_appended_one_does_not(self, worker):
        worker.create("t")
        wire = worker.connect()
        send(wire, {"t": written()}, acks=0)
        wire.forget_answer()
        worker.turn()
        worker.answer()
        send(wire, {"t": written(1)}, acks=1)
        worker.turn()
        assert results(wire) == [(0, 1)]
        send(wire, {"t": written(epoch=1)}, acks=0)
        worker.turn()
        worker.answer(ErrorCode.INVALID_TXN_STATE)
        assert wire.closed_by_broker()

    @pytest.mark.parametrize("acks", [0, 1, -1])
    @pytest.mark.parametrize("marked", ["before", "after"])
    def test_requests_of_a_connection_that_is_closed_before_their_turn_are_not_executed(self, worker, acks, marked):
        slot = worker.create("t")
        other = worker.create("u")
        wire = worker.connect()
        send(wire, {"t": written()}, acks=acks)
        send(wire, {"t": written(1), "u": written()}, acks=acks)
        worker.turn()
        question = worker.questions[0]
        if marked == "before":
            slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", PRODUCER, 0, 0)
        wire.socket.close()
        worker.turn()
        assert not worker.loop.connections.by_id
        assert worker.room.waiters == 0
        if marked == "after":
            slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", PRODUCER, 0, 0)
        pending, number, _, _ = question
        pending.verified(number, (0, 0))
        worker.retry()
        worker.append()
        assert slot_facts.describe(slot).log_end_offset == slot_facts.describe(other).log_end_offset == 0
        wire = worker.connect()
        send(wire, {"t": written(0)}, VERIFIES)
        worker.turn()
        assert results(wire) == [(0, 0)]

    def test_an_answer_with_too_few_codes_raises(self, worker):
        worker.create("t")
        worker.create("u")
        wire = worker.connect()
        send(wire, {"t": written(), "u": written()})
        worker.turn()
        pending, number, _, _ = worker.questions.pop()
        with pytest.raises(ValueError, match="1 error codes for at least 2"):
            pending.verified(number, (0,))
