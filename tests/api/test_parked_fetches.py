"""Parked fetches, executed step by step: the cost of a wake-up, the end of the wait, and requests that name many partitions."""

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, produce_request, values

LONG_MS = 600_000
MANY = 600
"""Partitions: more than are planned in one slice."""


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path, max_slots=MANY + 10)
    yield worker
    worker.close()


def append(worker, wire, topic, partition, *contents):
    wire.send(produce_request([(topic, [(partition, batch(*contents))])], 1), produce.API_KEY, 9)
    worker.turn()
    assert wire.receive().responses[0].partition_responses[0].error_code == 0


def told(wire):
    """{partition: values} of those that gave records."""
    response = wire.receive()
    return {
        one.partition_index: values(one.records)
        for topic in response.responses
        for one in topic.partitions
        if one.records
    }


def ask(wire, places, version=12, **options):
    wire.send(fetch_request(places, **options), fetch.API_KEY, version)


def all_of(topic, count, offset=0):
    return [(topic, partition, offset) for partition in range(count)]


@pytest.mark.parametrize("version", [4, 12])
def test_a_wake_up_checks_only_the_partition_that_changed(worker, version):
    worker.create_many("t", 100)
    waiting, writing = worker.connect(), worker.connect()
    ask(waiting, all_of("t", 100), version, wait_ms=LONG_MS, min_bytes=10_000)
    worker.turn()
    for number in range(20):
        before = worker.fetch_handler.looks
        append(worker, writing, "t", 7, b"%d" % number)
        assert worker.fetch_handler.looks - before == 1
    assert nothing_came(waiting)
    append(worker, writing, "t", 50, b"x" * 10_000)
    found = told(waiting)
    assert sorted(found) == [7, 50]
    assert found[7] == [b"%d" % number for number in range(20)]


def test_a_wake_up_with_too_few_records_checks_only_its_partition(worker):
    worker.create_many("t", 20)
    waiting, writing = worker.connect(), worker.connect()
    for partition in range(20):
        append(worker, writing, "t", partition, b"old")
    ask(waiting, all_of("t", 20), wait_ms=LONG_MS, min_bytes=100_000)
    worker.turn()
    before = worker.fetch_handler.looks
    append(worker, writing, "t", 3, b"new")
    assert worker.fetch_handler.looks - before == 1
    assert nothing_came(waiting)
    worker.expire()
    worker.turn()
    assert told(waiting) == {partition: [b"old", b"new"] if partition == 3 else [b"old"] for partition in range(20)}


def test_the_cost_of_a_thousand_waiters_depends_only_on_changes(worker):
    worker.create_many("t", 100)
    writing = worker.connect()
    waiting = [worker.connect() for _ in range(100)]
    for number, wire in enumerate(waiting):
        ask(wire, [("t", (number + step) % 100, 0) for step in range(10)], wait_ms=LONG_MS, min_bytes=10_000)
    worker.turn()
    before = worker.fetch_handler.looks
    append(worker, writing, "t", 5, b"x")
    assert worker.fetch_handler.looks - before == 10, "ten requests name the partition"


def test_the_bytes_of_several_partitions_together_end_the_wait(worker):
    worker.create_many("t", 4)
    waiting, writing = worker.connect(), worker.connect()
    ask(waiting, all_of("t", 4), wait_ms=LONG_MS, min_bytes=2500)
    worker.turn()
    for partition in (0, 2):
        append(worker, writing, "t", partition, b"x" * 1000)
        assert nothing_came(waiting)
    append(worker, writing, "t", 3, b"x" * 1000)
    assert sorted(told(waiting)) == [0, 2, 3]


def test_bytes_above_the_limit_of_a_partition_do_not_count(worker):
    """As in Kafka: a partition counts with no more than its partition_max_bytes."""
    worker.create_many("t", 2)
    waiting, writing = worker.connect(), worker.connect()
    ask(waiting, all_of("t", 2), wait_ms=LONG_MS, min_bytes=300, partition_max_bytes=200)
    worker.turn()
    append(worker, writing, "t", 0, b"x" * 1000)
    assert nothing_came(waiting)
    append(worker, writing, "t", 1, b"y" * 1000)
    assert told(waiting) == {0: [b"x" * 1000]}, "the first batch is given whole, a second only if it fits"


@pytest.mark.parametrize("version", [3, 4, 12])
def test_min_bytes_above_max_bytes_is_reached_at_max_bytes(worker, version):
    worker.create_many("t", 2)
    waiting, writing = worker.connect(), worker.connect()
    ask(waiting, all_of("t", 2), version, wait_ms=LONG_MS, min_bytes=2**31 - 1, max_bytes=500)
    worker.turn()
    append(worker, writing, "t", 0, b"x" * 100)
    assert nothing_came(waiting)
    append(worker, writing, "t", 1, b"y" * 500)
    if version < 4:
        worker.convert()
    assert waiting.receive().responses[0].partitions[0].records


def test_a_deleted_topic_ends_the_wait_with_its_error(worker):
    slots = worker.create_many("t", 3)
    waiting = worker.connect()
    ask(waiting, all_of("t", 3), wait_ms=LONG_MS)
    worker.turn()
    worker.broker.table.delete(slots[1])
    worker.turn()
    codes = [one.error_code for one in waiting.receive().responses[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_no_fetch_waits_longer_than_the_broker_allows(tmp_path):
    worker = HandWorker(tmp_path, max_wait_ms=20)
    try:
        worker.create("t")
        waiting = worker.connect()
        ask(waiting, [("t", 0, 0)], wait_ms=2**31 - 1)
        worker.turn()
        while worker.room.expire() >= 0:
            pass  # its deadline comes in 20 ms
        worker.loop.flush_dirty()
        assert told(waiting) == {}
    finally:
        worker.close()


# -- many partitions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [{}, {"session_epoch": 0}])
def test_a_request_with_many_partitions_is_planned_in_slices(worker, session):
    worker.create_many("t", MANY)
    reading, writing = worker.connect(), worker.connect()
    append(worker, writing, "t", 500, b"x")
    ask(reading, all_of("t", MANY), **session)
    before = worker.fetch_handler.looks
    worker.read()
    assert 0 < worker.fetch_handler.looks - before < MANY
    assert nothing_came(reading)
    append(worker, writing, "t", 501, b"y")  # others go on in between; this turn takes the slices to their end
    assert told(reading) == {500: [b"x"], 501: [b"y"]}


def test_a_request_with_many_partitions_waits_and_is_woken(worker):
    worker.create_many("t", MANY)
    waiting, writing = worker.connect(), worker.connect()
    for round_number in range(3):
        ask(waiting, [("t", number, round_number if number == 300 else 0) for number in range(MANY)], wait_ms=LONG_MS)
        worker.turn()
        assert nothing_came(waiting)
        before = worker.fetch_handler.looks
        append(worker, writing, "t", 300, b"%d" % round_number)
        assert told(waiting) == {300: [b"%d" % round_number]}
        assert worker.fetch_handler.looks - before == 1 + MANY, "one for the wake-up, then the plan of the response"


def test_what_moves_while_a_request_is_planned_is_not_missed(worker):
    """A partition in front of the slice at hand gets a record: the second look, after the slots were armed, finds it."""
    worker.create_many("t", MANY)
    waiting, writing = worker.connect(), worker.connect()
    ask(waiting, all_of("t", MANY), wait_ms=LONG_MS)
    worker.read()
    assert nothing_came(waiting)
    append(worker, writing, "t", 3, b"x")
    assert told(waiting) == {3: [b"x"]}


def test_a_client_that_leaves_while_its_request_is_planned_disturbs_nobody(worker):
    worker.create_many("t", MANY)
    leaving, staying = worker.connect(), worker.connect()
    ask(leaving, all_of("t", MANY), wait_ms=LONG_MS)
    worker.read()
    leaving.socket.close()
    worker.read()
    assert len(worker.loop.connections.by_id) == 1
    before = worker.fetch_handler.looks
    worker.turn()
    assert (worker.fetch_handler.looks, worker.slices) == (before, [])
    ask(staying, all_of("t", MANY))
    worker.turn()
    assert told(staying) == {}


def test_a_session_goes_on_elsewhere_while_its_request_is_planned(worker):
    worker.create_many("t", MANY)
    first, second, writing = worker.connect(), worker.connect(), worker.connect()
    ask(first, all_of("t", MANY), session_epoch=0)
    worker.turn()
    session = first.receive().session_id
    ask(first, [], session_id=session, session_epoch=1, wait_ms=LONG_MS)
    worker.read()
    ask(second, [], session_id=session, session_epoch=2, wait_ms=LONG_MS)
    worker.turn()
    assert first.receive().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert nothing_came(second)
    append(worker, writing, "t", 9, b"x")
    assert told(second) == {9: [b"x"]}


@pytest.mark.parametrize("version", [4, 12])
def test_a_request_with_more_partitions_than_the_broker_may_have_closes_its_connection(tmp_path, caplog, version):
    worker = HandWorker(tmp_path, max_partitions=1000)
    try:
        worker.create("t")
        for places, wanted in ([("t", 0, 0)] * 1000, 1), ([("t", 0, 0)] * 1001, 0), ([("t", 0, 0)], 1):
            wire = worker.connect()
            request = fetch_request(places[:1])
            request.topics[0].partitions *= len(places)
            wire.send(request, fetch.API_KEY, version)
            worker.turn()
            if wanted:
                assert len(wire.receive().responses[0].partitions) == wanted
            else:
                assert wire.closed_by_broker()
                assert "a Fetch request names more than 1000 partitions" in caplog.text
    finally:
        worker.close()


@pytest.mark.parametrize("field", ["topics", "forgotten_topics_data"])
def test_a_request_with_more_topics_than_there_can_be_partitions_closes_its_connection(tmp_path, caplog, field):
    worker = HandWorker(tmp_path, max_partitions=1000)
    try:
        wire = worker.connect()
        request = fetch_request([("t", 0, 0)], forget=[("t", 0)])
        empty = getattr(request, field)[0]
        empty.partitions = []
        setattr(request, field, [empty] * 1001)
        wire.send(request, fetch.API_KEY, 12)
        worker.turn()
        assert wire.closed_by_broker()
        assert "names more than 1000 partitions" in caplog.text
    finally:
        worker.close()
