"""Compressed produces, executed step by step: limits of a request, turns of clients, clients that disconnect; and the threads
for it.
"""

import asyncio
import time

import pytest

from odradek.processes.worker.job_thread import JobThread
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.storage import compression
from odradek.storage.batch import Record, build_batch
from tests.api.worker_harness import HandWorker, nothing_came
from tests.waiting import until
from tests.wire import batch, fetch_request, produce_request, with_crc

MIB = 1 << 20
ZSTD = 4


def opening_to(size, codec=ZSTD):
    """A batch whose record opens to a few bytes more than `size`."""
    return build_batch([Record(b"k", bytes(size), int(time.time() * 1000))], codec=codec)


def bomb(size):
    """A batch that opens to more than any may, and holds no record."""
    packed = bytearray(batch(b"x"))
    packed[61:] = compression.compress(ZSTD, bytes(size))
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    packed[21:23] = ZSTD.to_bytes(2, "big")
    return with_crc(packed)


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path, max_slots=300)
    yield worker
    worker.close()


def send(wire, *batches, topic="t"):
    wire.send(produce_request([(topic, list(enumerate(batches)))], 1), produce.API_KEY, 9)


def told(wire):
    return [one.error_code for one in wire.receive().responses[0].partition_responses]


def test_batches_within_the_limit_of_a_request_are_appended_and_the_others_must_be_retried(tmp_path):
    worker = HandWorker(tmp_path, max_opened_bytes=4 * MIB)
    try:
        worker.create_many("t", 6)
        wire = worker.connect()
        send(wire, *[opening_to(MIB) for _ in range(6)])
        worker.turn()
        worker.append()
        codes = told(wire)
        assert codes == [0, 0, 0, 0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS]
        wire.send(produce_request([("t", [(4, opening_to(MIB)), (5, opening_to(MIB))])], 1), produce.API_KEY, 9)
        worker.turn()
        worker.append()
        assert told(wire) == [0, 0], "what was refused is taken with the next request"
    finally:
        worker.close()


def test_the_error_of_a_refused_partition_says_what_to_do(tmp_path):
    worker = HandWorker(tmp_path, max_opened_bytes=MIB)
    try:
        worker.create_many("t", 2)
        wire = worker.connect()
        send(wire, opening_to(MIB), opening_to(MIB))
        worker.turn()
        worker.append()
        first, second = wire.receive().responses[0].partition_responses
        assert (first.error_code, second.error_code) == (0, ErrorCode.NOT_ENOUGH_REPLICAS)
        assert "odradek.produce.max.decompressed.bytes" in second.error_message
    finally:
        worker.close()


def test_batches_that_are_bombs_count_with_what_opening_them_took(tmp_path, monkeypatch):
    worker = HandWorker(tmp_path, max_opened_bytes=512 * MIB)
    try:
        worker.create_many("t", 50)
        wire = worker.connect()
        taken = []
        real = compression.decompress

        def counted(codec, data, limit):
            taken.append(limit)
            return real(codec, data, limit)

        monkeypatch.setattr(compression, "decompress", counted)
        send(wire, *[bomb(130 * MIB) for _ in range(50)])
        worker.turn()
        worker.append()
        codes = told(wire)
        assert codes[0] == ErrorCode.MESSAGE_TOO_LARGE
        assert codes[-1] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert set(codes) == {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS}
        assert sum(taken) <= 512 * MIB + 128 * MIB + 50 * 2 * MIB
    finally:
        worker.close()


def test_batches_that_are_corrupt_count_too(tmp_path):
    worker = HandWorker(tmp_path, max_opened_bytes=8 * MIB)
    try:
        worker.create_many("t", 10)
        wire = worker.connect()
        corrupt = bytearray(batch(b"x", codec=1))
        corrupt[-3] ^= 0xFF
        send(wire, *[with_crc(corrupt) for _ in range(10)])
        worker.turn()
        worker.append()
        assert told(wire) == [ErrorCode.INVALID_RECORD] * 4 + [ErrorCode.NOT_ENOUGH_REPLICAS] * 6
    finally:
        worker.close()


def test_requests_take_turns_at_the_append_thread(worker):
    worker.create_many("t", 40)
    large, small = worker.connect(), worker.connect()
    send(large, *[opening_to(MIB) for _ in range(40)])
    send(small, batch(b"x", codec=ZSTD))
    worker.turn()
    first, second = worker.offloaded
    assert worker.step(first), "it is not through with one step"
    while worker.step(second):
        pass
    second.worked()
    worker.loop.flush_dirty()
    assert told(small) == [0]
    assert nothing_came(large)
    worker.offloaded = [first]
    worker.append()
    assert told(large) == [0] * 40


def test_a_batch_that_opens_to_much_leaves_the_append_thread(worker):
    worker.create_many("t", 3)
    wire = worker.connect()
    send(wire, opening_to(1000), opening_to(3 * MIB), opening_to(1000))
    worker.turn()
    (pending,) = worker.offloaded
    assert not pending.step()
    assert pending.large_next
    pending.open_large()
    assert not pending.large_next
    while pending.step():
        pass
    assert not pending.large_next
    pending.worked()
    worker.offloaded = []
    worker.loop.flush_dirty()
    assert told(wire) == [0, 0, 0]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_nothing_is_decompressed_or_appended_for_a_disconnected_client(worker, steps):
    worker.create_many("t", 20)
    leaving, reading = worker.connect(), worker.connect()
    send(leaving, *[opening_to(MIB) for _ in range(20)])
    worker.turn()
    (pending,) = worker.offloaded
    for _ in range(steps):
        assert worker.step(pending)
    leaving.socket.close()
    worker.turn()
    assert pending.cancelled
    assert not worker.step(pending)
    pending.worked()
    worker.offloaded = []
    assert (worker.retries, worker.room.waiters) == ([], 0)
    reading.send(fetch_request([("t", number, 0) for number in range(20)]), 1, 12)
    worker.turn()
    found = [one for topic in reading.receive().responses for one in topic.partitions]
    assert [one.high_watermark for one in found] == [0] * 20


def test_a_client_that_disconnects_during_a_large_batch_ends_its_request(worker):
    worker.create("t")
    leaving = worker.connect()
    send(leaving, opening_to(3 * MIB))
    worker.turn()
    (pending,) = worker.offloaded
    assert not pending.step()
    leaving.socket.close()
    worker.turn()
    pending.open_large()
    assert not pending.step()
    assert not pending.large_next
    pending.worked()
    worker.offloaded = []


def test_a_request_with_many_partitions_is_appended_on_the_thread_in_steps(worker):
    slots = worker.create_many("t", 290)
    wire = worker.connect()
    places = [(number, batch(b"%d" % number)) for number in range(290)] + [(7, batch(b"again"))]
    wire.send(produce_request([("t", places)], 1), produce.API_KEY, 9)
    worker.turn()
    (pending,) = worker.offloaded
    assert pending.step(), "256 of them are appended in one step"
    worker.append()
    answers = wire.receive().responses[0].partition_responses
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0)] * 290 + [(0, 1)]
    assert len(slots) == 290


def test_jobs_of_a_thread_take_turns_and_fail_independently():
    order, outcomes = [], []

    def job(name, steps, fails=False):
        left = iter(range(steps))

        def step():
            order.append(name)
            number = next(left)
            if fails and number == steps - 1:
                raise ValueError(name)
            return number < steps - 1

        return step, lambda error: outcomes.append((name, repr(error)))

    async def run():
        thread = JobThread(asyncio.get_running_loop(), "jobs")
        gate, opened = job("gate", 1)
        blocked = [True]

        def wait_for_all():
            until(lambda: not blocked[0], "all jobs are given")
            return gate()

        thread(wait_for_all, opened)
        for given in (job("a", 3), job("b", 1), job("c", 2, fails=True)):
            thread(*given)
        blocked[0] = False
        while len(outcomes) < 4:
            await asyncio.sleep(0)
        thread.close()
        thread.close()

    asyncio.run(run())
    assert order == ["gate", "a", "b", "c", "a", "c", "a"]
    assert outcomes == [("gate", "None"), ("b", "None"), ("c", "ValueError('c')"), ("a", "None")]


def test_a_thread_that_is_closed_finishes_its_jobs():
    done = []

    async def run():
        thread = JobThread(asyncio.get_running_loop(), "jobs")
        left = iter(range(5))
        thread(lambda: next(left) < 4, lambda error: done.append(error))
        thread.close()
        while not done:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == [None]
