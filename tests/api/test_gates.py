"""The gate before a connection, in native code: it receives each frame, and nothing is executed around it."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, produce_request


class Gate:
    """Records the frames. :ivar answers: what `frame` returns for each; b"" at the end."""

    def __init__(self, raw=False):
        self.raw = raw
        self.frames = []
        self.answers = []

    def frame(self, connection, frame):
        self.frames.append(frame)
        answer = self.answers.pop(0) if self.answers else b""
        return answer(connection) if callable(answer) else answer


@pytest.fixture
def worker(tmp_path):
    one = HandWorker(tmp_path)
    one.slot = one.create("t")
    yield one
    one.close()


def gated(worker, gate, most_bytes=1000):
    wire = worker.connect()
    connection = list(worker.loop.connections.by_id.values())[-1]
    connection.gate = gate
    connection.limit_frames(most_bytes)
    return wire, connection


def framed(data):
    return struct.pack(">i", len(data)) + data


def test_requests_reach_the_gate_and_not_the_log(worker):
    gate = Gate()
    wire, connection = gated(worker, gate)
    wire.send(produce_request([("t", [(0, batch(b"x"))])]), 0, 9)
    wire.send(fetch_request([("t", 0, 0)]), 1, 11)
    worker.turn()
    assert [frame[:2] for frame in gate.frames] == [b"\0\0", b"\0\1"]
    assert (wire.raw_frame(), wire.raw_frame()) == (b"", b"")
    assert worker.handler.produce_requests == worker.handler.fetch_requests == 0
    connection.gate = None
    connection.limit_frames(-1)
    wire._sent.clear()
    wire.send(fetch_request([("t", 0, 0)], wait_ms=0), 1, 11)
    worker.turn()
    assert wire.receive().responses[0].partitions[0].high_watermark == 0


def test_a_gate_opens_and_closes_between_two_frames_of_one_read(worker):
    gate = Gate()
    wire, _connection = gated(worker, gate)

    def open_gate(opened):
        opened.gate = None
        return b"opened"

    gate.answers = [b"one", open_gate]
    fetch = [wire.frame(fetch_request([("t", 0, 0)]), 1, 11)]
    wire.socket.sendall(framed(b"\0" * 8) * 2 + fetch[0])
    worker.turn()
    assert (wire.raw_frame(), wire.raw_frame()) == (b"one", b"opened")
    assert wire.receive().responses[0].partitions[0].error_code == 0
    assert len(gate.frames) == 2


def test_frames_wait_for_the_answer_of_the_one_before(worker):
    gate = Gate()
    wire, _connection = gated(worker, gate)
    pendings = []

    def later(connection):
        pendings.append(connection.reserve())

    gate.answers = [later, b"second"]
    wire.socket.sendall(framed(b"\0" * 8) + framed(b"\1" * 8))
    worker.turn()
    assert len(gate.frames) == 1 and nothing_came(wire)
    pendings[0].complete((framed(b"first"),))
    worker.turn()
    assert (wire.raw_frame(), wire.raw_frame()) == (b"first", b"second")


def test_a_gate_that_is_put_before_a_parked_fetch_receives_the_next_frame_after_its_answer(worker):
    gate = Gate()
    wire = worker.connect()
    (connection,) = worker.loop.connections.by_id.values()
    wire.send(fetch_request([("t", 0, 0)], wait_ms=60_000), 1, 11)
    worker.turn()
    connection.gate = gate
    wire.socket.sendall(framed(b"\0" * 8))
    worker.turn()
    assert not gate.frames
    writer = worker.connect()
    writer.send(produce_request([("t", [(0, batch(b"x"))])]), 0, 9)
    worker.turn()
    assert wire.receive().responses[0].partitions[0].records
    worker.turn()
    assert len(gate.frames) == 1 and wire.raw_frame() == b""


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 1000])
def test_short_frames_reach_the_gate_and_no_request(worker, raw, size):
    gate = Gate(raw)
    wire, connection = gated(worker, gate)
    for part in (framed(b"\0" * 8), framed(b"x" * size)[:5], framed(b"x" * size)[5:]):
        wire.socket.sendall(part)
        worker.turn()
    assert [len(frame) for frame in gate.frames] == [8, size]
    connection.gate = None
    if size < 8:
        wire.socket.sendall(framed(b"x" * size))
        worker.turn()
        assert connection.fd < 0


@pytest.mark.parametrize("size", [1001, 1 << 30, -1])
def test_a_larger_frame_closes_the_connection(worker, size):
    gate = Gate(raw=True)
    wire, connection = gated(worker, gate)
    wire.socket.sendall(framed(b"\0" * 8) + struct.pack(">i", size))
    worker.turn()
    assert len(gate.frames) == 1 and connection.fd < 0


def test_an_exception_of_a_gate_closes_its_connection_only(worker):
    gate = Gate()
    wire, connection = gated(worker, gate)
    other, _ = gated(worker, Gate())
    gate.answers = [lambda _: 1 // 0]
    wire.socket.sendall(framed(b"\0" * 8))
    other.socket.sendall(framed(b"\0" * 8))
    worker.turn()
    assert connection.fd < 0 and other.raw_frame() == b""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(
    st.lists(st.binary(max_size=60) | st.just(b"\0\0\0\x09\0\0\0\1\xff\xff"), max_size=5),
    st.booleans(),
    st.integers(1, 40),
)
def test_any_bytes_reach_the_gate_whole_or_close_the_connection(worker, frames, raw, cut):
    gate = Gate(raw)
    wire, connection = gated(worker, gate)
    data = b"".join(map(framed, frames))
    for start in range(0, len(data), cut):
        wire.socket.sendall(data[start : start + cut])
        worker.turn()
        if connection.fd < 0:
            break
    assert gate.frames == frames[: len(gate.frames)]
    assert connection.fd < 0 or gate.frames == frames
    assert worker.handler.produce_requests == worker.handler.fetch_requests == 0
    connection.close()
    wire.socket.close()
