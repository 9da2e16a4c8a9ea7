"""Produce and Fetch of every version, truncated and with wrong values in every place: a complete response or a closed
connection.

Runs in the test's process, so that a build with sanitizers checks each access. The seed is printed; ODRADEK_FAULT_SEED sets it.
"""

import contextlib
import logging
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol import encode_frame
from odradek.protocol.schemas import fetch, produce
from odradek.protocol.schemas.header import RequestHeader, request_header_version
from odradek.storage.batch import read_batches
from tests.api.test_old_formats import message_set
from tests.api.worker_harness import HandWorker
from tests.protocol.lies import cut_short, with_lies
from tests.wire import Wire, batch, fetch_request, produce_request

TOPIC, TOPIC_ID = "hostile", b"h" * 16
ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "2"))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[HandWorker]:
    made = HandWorker(tmp_path)
    made.create(TOPIC, topic_id=TOPIC_ID)
    yield made
    made.close()


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"\nODRADEK_FAULT_SEED={seed}")
    return random.Random(seed)


def sound(api_key: int, version: int, *, transactional: bool = False) -> bytes:
    """A request without its length that is answered at once, or, if it is of a transaction, after a question."""
    if api_key == produce.API_KEY:
        named = TOPIC_ID if version >= 13 else TOPIC
        fields = (
            {"attributes": 0x10, "producer_id": 7, "producer_epoch": 3, "base_sequence": 0} if transactional else {}
        )
        records = batch(b"one", b"two", **fields) if version >= 3 else message_set(1)
        transactional_id = "my-id" if transactional else None
        request = produce_request([(named, [(0, records), (1, records)])], 1, transactional_id=transactional_id)
    else:
        named = TOPIC_ID if version >= 13 else TOPIC
        fields = {"forget": [(named, 7)], "session_epoch": 0} if version >= 7 else {}
        request = fetch_request([(named, 0, 0), (named, 1, 0)], **fields)
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=77, client_id="client")
    return encode_frame(header, request_header_version(api_key, version), request, version)[4:]


def spoiled(chance: random.Random, frame: bytes) -> Iterator[bytes]:
    """The frame, spoiled in every place."""
    yield from cut_short(frame)
    yield from with_lies(chance, frame)


def serve(worker: HandWorker, wire: Wire, data: bytes) -> bytes:
    """What the client gets for these bytes until the connection is closed, or nothing is left to be done for it."""
    wire.socket.sendall(data)
    wire.socket.shutdown(1)
    worker.turn()
    while worker.offloaded or worker.conversions or worker.retries or worker.questions:
        while worker.questions:
            worker.answer()
        worker.append()
        worker.convert()
        worker.retry()
    worker.expire()
    worker.turn()
    answer = b""
    while part := wire.socket.recv(1 << 16):
        answer += part
    wire.socket.close()
    return answer


def whole_frames(answer: bytes) -> int:
    """How many responses there are; nothing may be left over."""
    count = at = 0
    while at < len(answer):
        (size,) = struct.unpack_from(">i", answer, at)
        assert size >= 4 and at + 4 + size <= len(answer)
        at += 4 + size
        count += 1
    return count


@pytest.mark.parametrize(
    ("api_key", "version", "transactional"),
    [
        *((produce.API_KEY, version, False) for version in range(14)),
        *((produce.API_KEY, version, True) for version in range(3, 14)),
        *((fetch.API_KEY, version, False) for version in range(19)),
    ],
)
def test_a_request_with_wrong_values_anywhere_is_answered_or_closes_its_connection(
    worker, chance, caplog, api_key, version, transactional
):
    caplog.set_level(logging.ERROR)
    frame = sound(api_key, version, transactional=transactional)
    good = struct.pack(">i", len(frame)) + frame
    assert whole_frames(serve(worker, worker.connect(), good)) == 1
    closed = 0
    for number, bad in enumerate(bad for _ in range(ROUNDS) for bad in spoiled(chance, frame)):
        data = struct.pack(">i", len(bad)) + bad
        # Alone, behind a good one, or before one: all are read together.
        data = (data, good + data, data + good)[number % 3]
        answered = whole_frames(serve(worker, worker.connect(), data))
        assert answered >= (number % 3 == 1), bad.hex()
        closed += answered == 0
        # Of the broker alone: what earlier tests left may complain when it is collected.
        assert not [one for one in caplog.records if one.name.startswith("odradek.")], f"{bad.hex()}: {caplog.text}"
    assert closed
    assert whole_frames(serve(worker, worker.connect(), good)) == 1
    assert not worker.loop.connections.by_id and worker.loop.pool.lent_bytes == 0 and worker.room.waiters == 0


def test_records_written_by_hostile_requests_are_valid(worker, chance):
    for version in (2, 3, 9, 13):
        for bad in spoiled(chance, sound(produce.API_KEY, version)):
            serve(worker, worker.connect(), struct.pack(">i", len(bad)) + bad)
    records, offset = b"", 0
    wire = worker.connect()
    while True:
        wire.send(fetch_request([(TOPIC, 0, offset)]), fetch.API_KEY, 12)
        worker.turn()
        part = wire.receive().responses[0].partitions[0]
        assert part.error_code == 0
        records = bytes(part.records or b"")
        if not records:
            break
        for one in read_batches(records):
            assert one.base_offset == offset and len(one.records()) == one.record_count
            offset = one.last_offset + 1
    assert offset > 0


def exchange(worker: HandWorker, wire: Wire, data: bytes) -> bytes | None:
    """Send what no socket buffer takes at once; the response, without its length, None if the connection is closed instead."""
    left, answer = memoryview(data), b""
    wire.socket.setblocking(False)
    while left or len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            left = left[wire.socket.send(left) :] if left else left
        worker.turn()
        with contextlib.suppress(BlockingIOError):
            part = wire.socket.recv(1 << 20)
            if not part:
                return None
            answer += part
    return answer[4:]


def test_a_session_takes_no_more_partitions_than_a_request(worker):
    """However many requests it grows by; a request that asks for what it has already is none too many."""
    make = fetch.Request
    wire = worker.connect()
    session_id = epoch = 0
    for number in (0, 0, 1, 2, 0, 3):
        asked = [make.FetchPartition(partition=30_000 * number + n, fetch_offset=0) for n in range(30_000)]
        topics = [make.FetchTopic(topic="no-such", partitions=asked)]
        request = make(max_wait_ms=0, topics=topics, session_id=session_id, session_epoch=epoch)
        answer = exchange(worker, wire, wire.frame(request, fetch.API_KEY, 11))
        assert (answer is None) == (number == 3)
        if answer is not None:
            session_id, epoch = int.from_bytes(answer[10:14], "big"), epoch + 1
    assert not worker.loop.connections.by_id
