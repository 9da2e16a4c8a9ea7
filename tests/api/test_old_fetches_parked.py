"""Fetches of old versions, executed step by step: markers, which old consumers cannot read, waits, and clients that
disconnect.
"""

import pytest

from odradek._ext.testing import slot_probe
from odradek.protocol.schemas import fetch
from odradek.storage import old_messages
from odradek.storage.batch import COMMIT, Record, build_batch, build_end_marker
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import fetch_request


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


def told(wire):
    (one,) = wire.receive().responses[0].partitions
    assert one.error_code == 0
    return [(each.offset, each.value) for each in old_messages.read_messages(bytes(one.records or b""))]


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


def test_a_segment_that_ends_with_markers_does_not_stop_a_reader(worker):
    slot = worker.create("t")
    wire = worker.connect()
    transaction(slot, b"a")
    commit(slot)
    slot_probe.roll(slot)
    transaction(slot, b"b", sequence=1)
    ask(wire, 1)
    worker.turn()
    worker.convert()
    assert told(wire) == [(2, b"b")]


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
