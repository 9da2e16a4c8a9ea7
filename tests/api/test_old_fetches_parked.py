"""Fetches of old versions, executed step by step: markers, which old consumers cannot read, waits, and clients that
disconnect.
"""

import random

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.testing import slot_probe
from odradek.protocol.schemas import fetch
from odradek.storage import old_messages
from odradek.storage.batch import COMMIT, Record, build_batch, build_end_marker
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import fetch_request

VERSIONS = range(4)


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
    assert len(worker.loop.connections) == 1


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
