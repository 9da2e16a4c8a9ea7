"""Fetches of old versions, executed step by step: markers, which old consumers cannot read, waits, and clients that
disconnect.
"""

import random

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.testing import slot_probe
from odradek.protocol.schemas import fetch
from odradek.stepwise import Stepwise
from odradek.storage import old_messages
from odradek.storage.batch import COMMIT, Record, build_batch, build_end_marker
from odradek.storage.down_conversion import conversion
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import fetch_request

VERSIONS = range(4)
MOST_ROUNDS = 16
"""So often a request is planned again (`fetch_conversion.pyx`)."""


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def append(slot, data):
    assert slot_probe.append(slot, [data])[0][0] == 0


def transaction(slot, *values, sequence=0):
    """Records of a transaction."""
    append(
        slot,
        build_batch(
            [Record(b"k", value, 1) for value in values],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=0x10,
        ),
    )


def commit(slot):
    """The marker that ends a transaction: one offset, and no message of the old formats."""
    append(
        slot,
        build_end_marker(COMMIT, base_offset=0, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=1),
    )


def ask(wire, offset, version=2, wait_ms=60_000):
    wire.send(fetch_request([("t", 0, offset)], wait_ms=wait_ms), fetch.API_KEY, version)


def messages(part):
    assert part.error_code == 0
    outer = old_messages.read_messages(bytes(part.records or b""))
    return [message for each in outer for message in each.opened(1 << 20)]


def told(wire):
    (part,) = wire.receive().responses[0].partitions
    return [(each.offset, each.value) for each in messages(part)]


def test_a_fetch_at_markers_waits_for_the_next_message(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    ask(wire, 1)
    worker.turn()
    worker.convert()
    assert nothing_came(wire)
    transaction(slot, b"b", sequence=1)
    worker.turn()
    worker.convert()
    assert told(wire) == [(2, b"b")]


def test_markers_alone_give_an_empty_response_when_max_wait_has_passed(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    ask(wire, 1)
    worker.turn()
    worker.convert()
    worker.expire()
    assert told(wire) == []
    ask(wire, 1, wait_ms=0)
    worker.turn()
    worker.convert()
    assert told(wire) == []


@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_segment_that_ends_with_markers_does_not_stop_a_reader(worker, version, wait_ms):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    slot_probe.roll(slot)
    transaction(slot, b"b", sequence=1)
    ask(wire, 1, version, wait_ms)
    worker.turn()
    worker.convert()
    assert told(wire) == [(2, b"b")]


def test_a_reader_whose_time_is_over_goes_on_behind_markers(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    slot_probe.roll(slot)
    transaction(slot, b"b", sequence=1)
    wire.send(fetch_request([("t", 0, 1)], wait_ms=60_000, min_bytes=1 << 20), fetch.API_KEY, 2)
    worker.turn()
    assert not worker.conversions, "too few bytes"
    for _ in range(2):  # the second wait begins behind the marker, and is over at once
        worker.expire()
        worker.convert()
    assert told(wire) == [(2, b"b")]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_another_partition_do_not_hide_that_the_log_goes_on_behind_markers(worker, version):
    slot, other = worker.create("t"), worker.create("other")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    slot_probe.roll(slot)
    transaction(slot, b"b", sequence=1)
    append(other, build_batch([Record(b"k", b"c", 1)]))
    wire.send(fetch_request([("other", 0, 0), ("t", 0, 1)], wait_ms=0), fetch.API_KEY, version)
    worker.turn()
    worker.convert()
    parts = [part for topic in wire.receive().responses for part in topic.partitions]
    assert [[each.value for each in messages(part)] for part in parts] == [[b"c"], [b"b"]]


PIECES = (
    "messages",
    "packed messages",
    "marker",
    "batch without its tail",
    "packed batch without its tail",
    "empty batch",
)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_an_empty_response_is_only_given_at_the_end_of_the_log(worker, version, seed):
    """A reader that knows only offsets of messages reaches the end of every log, whatever offsets have no messages."""
    choose = random.Random(seed)
    slot = worker.create("t")
    wire = worker.connect()
    expected, offset = [], 0
    for _ in range(40):
        piece = choose.choice(PIECES)
        values = [b"%d" % (offset + number) for number in range(choose.randint(1, 3))]
        gap = choose.randint(1, 4) if "tail" in piece else 0
        if piece == "marker":
            append(
                slot,
                build_end_marker(
                    COMMIT, base_offset=0, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=1
                ),
            )
            values = [b""]
        elif piece == "empty batch":
            append(slot, build_batch([], last_offset_delta=len(values) - 1))
        else:
            expected += [(offset + number, value) for number, value in enumerate(values)]
            records = [Record(b"k", value, 1) for value in values]
            append(slot, build_batch(records, codec="packed" in piece, last_offset_delta=len(values) - 1 + gap))
        offset += len(values) + gap
        if choose.random() < 0.3:
            slot_probe.roll(slot)
    assert slot_facts.describe(slot).log_end_offset == offset
    found, position = [], 0
    while True:
        ask(wire, position, version, wait_ms=0)
        worker.turn()
        worker.convert()
        read = [(at, value) for at, value in told(wire) if at >= position]
        if not read:
            break
        found += read
        position = read[-1][0] + 1
    assert found == expected


def test_a_client_that_disconnects_during_its_conversion_leaves_nothing(worker):
    slot = worker.create("t")
    leaving, staying = worker.connect(), worker.connect()
    transaction(slot, b"a")
    ask(leaving, 0)
    ask(staying, 0)
    worker.turn()
    leaving.socket.close()
    worker.turn()
    worker.convert()
    assert told(staying) == [(0, b"a")]
    assert len(worker.loop.connections.by_id) == 1


def test_a_conversion_that_cannot_begin_ends_its_connection_and_no_other(worker):
    slot = worker.create("t")
    wire, other = worker.connect(), worker.connect()
    ask(wire, 0)
    worker.turn()
    assert nothing_came(wire)

    class NoThread(list):
        def append(self, _):
            raise RuntimeError("no thread for it")

    worker.conversions = NoThread()
    append(slot, build_batch([Record(b"k", b"a", 1)]))
    worker.turn()
    assert not wire.socket.recv(1)
    ask(other, 0, version=4)
    worker.turn()
    assert other.receive().responses[0].partitions[0].records


def marker_segments(slot, number):
    """Append segments that contain only the end of a transaction."""
    for _ in range(number):
        slot_probe.roll(slot)
        commit(slot)
    slot_probe.roll(slot)


def convert_all(worker):
    """Convert until the response is written; returns the offset at which each part of each conversion began."""
    rounds = []
    while worker.conversions:
        work, cancelled, done = worker.conversions.pop(0)
        rounds.append([part[4] for part in work[0]])
        done(Stepwise(conversion(*work), cancelled).finish())
        worker.loop.flush_dirty()
    worker.turn()
    return rounds


@pytest.mark.parametrize("wait_ms", [0, 60_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_partition_without_messages_is_converted_again(worker, version, wait_ms):
    slot, other = worker.create("t"), worker.create("other")
    wire = worker.connect()
    transaction(slot, b"a")
    marker_segments(slot, 3)
    transaction(slot, b"b", sequence=1)
    append(other, build_batch([Record(b"k", b"c", 1)]))
    wire.send(fetch_request([("other", 0, 0), ("t", 0, 1)], wait_ms=wait_ms), fetch.API_KEY, version)
    worker.turn()
    assert convert_all(worker) == [[0, 1], [2], [3], [4]]
    parts = [part for topic in wire.receive().responses for part in topic.partitions]
    assert [[each.value for each in messages(part)] for part in parts] == [[b"c"], [b"b"]]


def test_records_of_another_partition_are_not_kept_back_until_there_are_more(worker):
    """They are converted, and take memory, so the request waits no longer, although fewer than `min_bytes` are there."""
    slot, other = worker.create("t"), worker.create("other")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    append(other, build_batch([Record(b"k", b"c", 1)]))
    wire.send(fetch_request([("other", 0, 0), ("t", 0, 1)], wait_ms=60_000, min_bytes=100), fetch.API_KEY, 2)
    worker.turn()
    convert_all(worker)
    parts = [part for topic in wire.receive().responses for part in topic.partitions]
    assert [[each.value for each in messages(part)] for part in parts] == [[b"c"], []]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_passes_a_limited_part_of_the_log_and_the_next_one_continues_there(worker, version):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    marker_segments(slot, 2 * (MOST_ROUNDS + 1) + 5)
    transaction(slot, b"b", sequence=1)
    began = []
    for _ in range(3):
        ask(wire, 1, version, wait_ms=0)
        worker.turn()
        began.append([at for (at,) in convert_all(worker)])
        answer = told(wire)
    assert [len(rounds) for rounds in began] == [MOST_ROUNDS + 1, MOST_ROUNDS + 1, 6]
    assert [at for rounds in began for at in rounds] == list(range(1, 2 * (MOST_ROUNDS + 1) + 7)), (
        "no part of the log is read twice"
    )
    assert [value for _, value in answer] == [b"b"]


def test_what_a_client_passed_is_read_again_if_the_log_was_changed_meanwhile(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    marker_segments(slot, MOST_ROUNDS + 10)
    ask(wire, 1, wait_ms=0)
    worker.turn()
    convert_all(worker)
    assert told(wire) == []
    worker.broker.obey(slot, 1)
    slots.truncate(slot, 1, leader_epoch=1)
    worker.broker.lead(slot, 2)
    transaction(slot, b"new", sequence=1)
    ask(wire, 1, wait_ms=0)
    worker.turn()
    convert_all(worker)
    assert told(wire) == [(1, b"new")]


def test_a_conversion_reads_a_limited_part_of_a_log_without_messages(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    for _ in range(40):
        commit(slot)
    transaction(slot, b"b", sequence=1)
    ask(wire, 1, wait_ms=0)
    worker.turn()
    ((parts, budget), _, _) = worker.conversions[0]
    marker = len(
        build_end_marker(COMMIT, base_offset=0, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    )
    part = parts[0]
    steps = Stepwise(conversion([part, part], budget, scanned_budget=20 * marker))
    assert steps.finish() == [(0, b"", 11)] * 2, "each part may read half of it"
    worker.convert()
    assert [value for _, value in told(wire)] == [b"b"]
