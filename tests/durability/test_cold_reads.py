"""A fetch of records outside of the page cache does not block the event loop, including index look-ups."""

import os
from contextlib import ExitStack

import pytest

from odradek._ext.partition import flushing
from odradek._ext.testing import slot_probe, storage_probe
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, produce_request, values

BATCHES = 200
TRIES = 100


class Reader:
    """The worker's cold reader, whose jobs run when the test says so."""

    def __init__(self):
        self.look_ups, self.slices = [], []

    def __call__(self, owner, fd, position, length, callback):
        self.slices.append((owner, fd, position, length, callback))

    def call(self, work, callback):
        self.look_ups.append((work, callback))

    def work(self):
        """Run jobs until no more are requested."""
        while self.look_ups or self.slices:
            if self.look_ups:
                work, callback = self.look_ups.pop(0)
                work()
            else:
                _, fd, position, length, callback = self.slices.pop(0)
                os.pread(fd, length, position)
            callback(None)


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    worker.reader = worker.loop.responses.cold_reader = Reader()
    yield worker
    worker.close()


def make_cold(worker, slot):
    """Evict the partition's records and indexes from the page cache."""
    flushing.flush(slot, True)
    with ExitStack() as ends:
        for path in worker.broker.table.path(slot).glob("0*.*"):
            file = ends.enter_context(path.open("rb"))
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if storage_probe.is_resident(file.fileno(), 0, path.stat().st_size):
                pytest.skip(f"this file system keeps {path.suffix} in memory whatever it is advised")


def filled(worker, topic):
    slot = worker.create(topic, index_interval_bytes=1)
    for number in range(BATCHES):
        slot_probe.append(slot, [batch(b"%d" % number)])
    return slot


def ask(worker, wire, topic, offset):
    wire.send(fetch_request([(topic, 0, offset)]), fetch.API_KEY, 12)
    worker.turn()


def ask_cold(worker, slot, topic, offset):
    """Connections that ask, until the look-up of one met pages that were not there; that one.

    Also a read that must not wait makes the kernel begin to read the page, and where the device has it before the
    kernel looks again, the page was as good as cached: such a try says nothing.
    """
    for _ in range(TRIES):
        make_cold(worker, slot)
        wire = worker.connect()
        ask(worker, wire, topic, offset)
        if worker.reader.look_ups:
            return wire
        worker.reader.work()
        wire.receive()
        wire.socket.close()
        worker.turn()
    raise AssertionError(f"none of {TRIES} look-ups of cold pages went to the reader")


def test_a_cold_look_up_is_read_beside_the_loop(worker):
    slot = filled(worker, "cold")
    wire = ask_cold(worker, slot, "cold", 150)
    assert nothing_came(wire)
    assert len(worker.reader.look_ups) == 1 and not worker.reader.slices
    # Meanwhile the others are served.
    worker.create("warm")
    other = worker.connect()
    other.send(produce_request([("warm", [(0, batch(b"now"))])]), produce.API_KEY, 9)
    worker.turn()
    assert other.receive().responses[0].partition_responses[0].error_code == 0
    worker.reader.work()
    found = values(wire.receive().responses[0].partitions[0].records)
    assert found[0] == b"150" and found == [b"%d" % number for number in range(150, 150 + len(found))]


def test_a_warm_look_up_asks_no_reader(worker):
    filled(worker, "warm")
    wire = worker.connect()
    ask(worker, wire, "warm", 150)
    assert values(wire.receive().responses[0].partitions[0].records)[0] == b"150"
    assert not worker.reader.look_ups and not worker.reader.slices


def test_a_client_that_goes_while_its_look_up_is_read_costs_nothing(worker):
    slot = filled(worker, "cold")
    wire = ask_cold(worker, slot, "cold", 150)
    wire.socket.close()
    worker.turn()
    worker.reader.work()
    assert not worker.loop.connections.by_id


def evicted_at_every_turn(worker, slot, wire):
    """How many readers one look-up asked whose pages were evicted again before it went on."""
    rounds = 0
    while worker.reader.look_ups:
        _, callback = worker.reader.look_ups.pop()
        rounds += 1
        make_cold(worker, slot)
        callback(None)
    worker.reader.work()
    assert values(wire.receive().responses[0].partitions[0].records)[0] == b"150"
    return rounds


def test_pages_that_are_evicted_again_and_again_are_waited_for_in_the_end(worker):
    slot = filled(worker, "cold")
    for _ in range(TRIES):
        rounds = evicted_at_every_turn(worker, slot, ask_cold(worker, slot, "cold", 150))
        assert 1 <= rounds < 20
        if rounds > 1:  # a quick device may have had the page again at once: that try says nothing
            return
    raise AssertionError(f"none of {TRIES} look-ups was read for a second time")
