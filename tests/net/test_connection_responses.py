"""Outgoing responses: in order, complete, with few system calls, from memory and from files."""

import gc
import os
import random
import socket
import struct
import tracemalloc

import pytest

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.output import FileSlice
from tests.net.connection_driver import Driver, EchoHandler, framed

PENDING = FrameResult.FRAME_PENDING


class WaitingHandler(EchoHandler):
    """Frames that begin with `wait` get a Pending each; all others are answered at once."""

    def __init__(self):
        super().__init__()
        self.pending = []

    def answer(self, connection, frame):
        if not frame.startswith(b"wait"):
            return super().answer(connection, frame)
        pending = connection.reserve()
        pending.context = frame
        self.pending.append(pending)
        return PENDING


@pytest.fixture
def driver():
    driver = Driver(WaitingHandler())
    yield driver
    driver.close()


@pytest.mark.parametrize("seed", range(20))
def test_responses_leave_in_the_order_of_their_requests(driver, seed):
    rng = random.Random(seed)
    client, connection = driver.connect()
    frames = [(b"wait %06d" if rng.random() < 0.5 else b"now  %06d") % i for i in range(90)]
    stream = b"".join(map(framed, frames))
    at = 0
    received = b""
    while at < len(stream) or driver.handler.pending:
        if at < len(stream):
            step = rng.randrange(1, 400)
            client.sendall(stream[at : at + step])
            at += step
            driver.settle()
        rng.shuffle(driver.handler.pending)
        for _ in range(rng.randrange(4)):
            if driver.handler.pending:
                pending = driver.handler.pending.pop()
                half = framed(pending.context)
                pending.complete([half[:6], memoryview(half)[6:], bytearray()])
        driver.loop.flush_dirty()
        driver.settle()
    received = driver.receive(client, len(stream))
    assert received == stream
    assert connection.pending_count == connection.queued_bytes == 0


def test_nothing_overtakes_a_pending_response(driver):
    client, connection = driver.connect()
    client.sendall(framed(b"first one") + framed(b"wait here") + framed(b"behind it"))
    driver.settle()
    assert client.recv(100) == framed(b"first one")
    assert connection.pending_count == 1
    assert connection.queued_bytes == 13
    driver.handler.pending[0].complete([b"done"])
    driver.loop.flush_dirty()
    assert client.recv(100) == b"done" + framed(b"behind it")


def test_an_empty_response_sends_nothing_and_frees_its_place(driver):
    client, _ = driver.connect()
    client.sendall(framed(b"wait acks=0") + framed(b"behind it"))
    driver.settle()
    driver.handler.pending[0].complete()
    driver.loop.flush_dirty()
    assert client.recv(100) == framed(b"behind it")


def test_a_response_is_completed_once(driver):
    client, _ = driver.connect()
    client.sendall(framed(b"wait once"))
    driver.settle()
    pending = driver.handler.pending[0]
    with pytest.raises(TypeError):
        pending.complete([b"good", "not bytes"])
    pending.complete([b"answer"])
    with pytest.raises(RuntimeError):
        pending.complete([b"again"])
    driver.loop.flush_dirty()
    assert client.recv(100) == b"answer"


def test_a_pending_response_may_be_completed_within_the_handler():
    class Handler(EchoHandler):
        def answer(self, connection, frame):
            self.loop.responses.write(b"<")
            connection.reserve().complete([framed(frame)])
            self.loop.responses.write(b">")
            return PENDING

    driver = Driver(Handler())
    client, _ = driver.connect()
    client.sendall(framed(b"request 1") + framed(b"request 2"))
    driver.settle()
    assert client.recv(100) == b"<" + framed(b"request 1") + b"><" + framed(b"request 2") + b">"
    driver.close()


def test_one_connection_may_complete_another_ones_response():
    class Handler(WaitingHandler):
        def answer(self, connection, frame):
            if frame == b"complete":
                self.pending.pop().complete([b"woken"])
            return super().answer(connection, frame)

    driver = Driver(Handler())
    waiter, _ = driver.connect()
    other, _ = driver.connect()
    waiter.sendall(framed(b"wait for it"))
    driver.settle()
    other.sendall(framed(b"complete"))
    driver.turn()
    assert waiter.recv(100) == b"woken"
    assert other.recv(100) == framed(b"complete")
    driver.close()


def test_a_closed_connection_cancels_its_pending_responses(driver):
    client, connection = driver.connect()
    client.sendall(framed(b"wait one.") + framed(b"wait two."))
    driver.settle()
    connection.close("the test says so")
    first, second = driver.handler.pending
    assert first.cancelled
    assert second.cancelled
    first.complete([b"dropped"])
    driver.loop.flush_dirty()
    assert client.recv(10) == b""
    assert connection.fd == -1
    assert connection.reserve().cancelled
    assert driver.closed_ids == driver.handler.closed == [1]


@pytest.mark.parametrize("tcp", [False, True])
def test_a_slow_reader_gets_every_byte(tcp):
    driver = Driver(max_queued_bytes=100_000)
    client, connection = driver.connect(tcp=tcp, send_buffer=2048, receive_buffer=2048)
    rng = random.Random(1)
    stream = b"".join(framed(rng.randbytes(rng.randrange(8, 30_000))) for _ in range(100))
    received = bytearray()
    client.setblocking(False)
    sent = 0
    most = 0
    while len(received) < len(stream):
        if sent < len(stream):
            try:
                sent += client.send(stream[sent : sent + 5000])
            except BlockingIOError:
                pass
        driver.settle()
        most = max(most, connection.queued_bytes)
        try:
            received += client.recv(rng.randrange(1, 9000))
        except BlockingIOError:
            driver.turn(0.01)
    assert received == stream
    assert most > 2048
    assert connection.queued_bytes == 0
    driver.close()


def test_a_reader_that_never_reads_is_not_read_any_more():
    driver = Driver(max_queued_bytes=100_000)
    client, connection = driver.connect(send_buffer=4096)
    client.setblocking(False)
    stream = framed(b"q" * 1000) * 3000
    accepted = 0
    while True:
        try:
            accepted += client.send(stream[accepted : accepted + 50_000])
        except BlockingIOError:
            if not driver.settle():
                break
    assert connection.muted
    assert connection.queued_bytes < 100_000 + 300_000
    assert connection.buffered_bytes < 600_000
    assert accepted < len(stream)
    client.setblocking(True)
    assert driver.receive(client, accepted // 1004 * 1004) == stream[: accepted // 1004 * 1004]
    assert not connection.muted
    driver.close()


def test_a_limit_of_pending_responses_stops_the_reading(driver):
    driver.loop.frames.max_pending = 10
    client, connection = driver.connect()
    frames = [b"wait %04d" % i for i in range(25)]
    client.sendall(b"".join(map(framed, frames)))
    driver.settle()
    assert connection.pending_count == 10
    assert connection.muted
    for done in range(25):
        pending = driver.handler.pending[done]
        pending.complete([pending.context])
        driver.loop.flush_dirty()
        driver.settle()
        assert connection.pending_count <= 10
    assert driver.receive(client, 9 * 25) == b"".join(frames)
    assert not connection.muted


# --- files ---


class FileHandler(EchoHandler):
    """Answers with spans and slices: what `plan` holds, in order."""

    def __init__(self):
        super().__init__()
        self.plan = []

    def answer(self, connection, frame):
        for part in self.plan:
            if isinstance(part, FileSlice):
                self.loop.responses.write_file(part)
            else:
                self.loop.responses.write(part)
        return FrameResult.FRAME_DONE


@pytest.fixture
def segment(tmp_path):
    content = random.Random(7).randbytes(6 << 20)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    with path.open("rb") as file:
        yield file, content


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("pending", [False, True])
def test_slices_and_spans_interleave(segment, tcp, pending):
    file, content = segment
    rng = random.Random(3)
    plan, expected = [], b""
    for _ in range(40):
        size = rng.choice([0, 1, 100, 16_384, 16_385, 32_769, 200_000, 3 << 20])
        at = rng.randrange(len(content) - size)
        plan += [FileSlice(file, at, size), b"h" * rng.choice([0, 1, 60, 2000])]
        expected += content[at : at + size] + plan[-1]
    handler = WaitingHandler() if pending else FileHandler()
    driver = Driver(handler)
    client, _ = driver.connect(tcp=tcp)
    handler.plan = plan
    client.sendall(framed(b"wait for files"))
    driver.until(lambda: handler.seen)
    if pending:
        handler.pending[0].complete(plan)
        driver.loop.flush_dirty()
    assert driver.receive(client, len(expected)) == expected
    assert driver.loop.sender.bytes_out == len(expected)
    assert 0 < driver.loop.sender.sendfile_bytes < len(expected)
    driver.close()


def test_slices_after_a_pending_response_wait_for_it(segment):
    file, content = segment
    handler = WaitingHandler()

    class Both(WaitingHandler):
        def answer(self, connection, frame):
            if frame.startswith(b"wait"):
                return super().answer(connection, frame)
            self.loop.responses.write(b"small:")
            self.loop.responses.write_file(FileSlice(file, 5, 10))
            self.loop.responses.write(b"large:")
            self.loop.responses.write_file(FileSlice(file, 7, 100_000))
            self.loop.responses.write(b".")
            return FrameResult.FRAME_DONE

    handler = Both()
    driver = Driver(handler)
    client, _ = driver.connect()
    answer = b"small:" + content[5:15] + b"large:" + content[7:100_007] + b"."
    client.sendall(framed(b"slice now") + framed(b"wait here") + framed(b"slice it ") + framed(b"slice it "))
    driver.settle()
    assert driver.receive(client, len(answer)) == answer
    assert driver.settle() == 0
    handler.pending[0].complete([b"waited"])
    driver.loop.flush_dirty()
    assert driver.receive(client, 6 + 2 * len(answer)) == b"waited" + answer + answer
    driver.close()


def data_segments(client):
    """How many TCP segments with data the client has received (tcpi_data_segs_in)."""
    return struct.unpack_from("=I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 152)[0]


def test_the_head_of_a_response_shares_a_packet_with_its_slice(segment):
    file, content = segment
    driver = Driver(FileHandler())
    segments = []
    for head in (b"", b"the head"):
        counts = []
        for _ in range(5):  # a head that waits for 200 ms, because this process was kept from running, is let go
            client, _ = driver.connect(tcp=True)
            driver.handler.plan = [head, FileSlice(file, 0, 40_000)]
            client.sendall(framed(b"fetch it"))
            assert driver.receive(client, len(head) + 40_000) == head + content[:40_000]
            counts.append(data_segments(client))
        segments.append(min(counts))
    assert segments[0] == segments[1]
    driver.close()


def test_a_small_cached_slice_leaves_with_its_neighbours(segment):
    file, content = segment
    driver = Driver(FileHandler())
    client, _ = driver.connect()
    driver.handler.plan = [b"head", FileSlice(file, 10, 1000), b"tail"]
    client.sendall(framed(b"fetch it") * 3)
    driver.settle()
    assert client.recv(10_000) == (b"head" + content[10:1010] + b"tail") * 3
    assert driver.loop.sender.sendfile_bytes == 0
    driver.close()


def test_a_file_that_ends_early_closes_the_connection(segment, caplog):
    file, content = segment
    driver = Driver(FileHandler())
    client, _ = driver.connect(tcp=True)
    driver.handler.plan = [b"head", FileSlice(file, len(content) - 100_000, 100_001), b"tail"]
    client.sendall(framed(b"fetch it"))
    driver.until(lambda: driver.closed_ids)
    assert driver.receive_all(client) == b"head" + content[-100_000:]
    assert driver.loop.connections.closes["file"] == 1
    assert "a file ended before the length announced" in caplog.text
    driver.close()


def test_a_file_shortened_while_it_is_sent_closes_the_connection(tmp_path):
    path = tmp_path / "shortened.log"
    path.write_bytes(b"r" * (8 << 20))
    driver = Driver(FileHandler())
    client, _ = driver.connect(send_buffer=4096)
    with path.open("rb") as file:
        driver.handler.plan = [FileSlice(file, 0, 8 << 20)]
        client.sendall(framed(b"fetch it"))
        driver.settle()
        os.truncate(path, 1 << 20)
        received = 0
        while part := client.recv(1 << 16):
            received += len(part)
            driver.settle()
    assert (1 << 20) <= received < (8 << 20)
    assert driver.loop.connections.closes["file"] == 1
    driver.close()


def test_a_small_slice_past_the_end_closes_the_connection(segment):
    file, content = segment
    driver = Driver(FileHandler())
    client, _ = driver.connect()
    driver.handler.plan = [FileSlice(file, len(content) - 5, 10)]
    client.sendall(framed(b"fetch it"))
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["file"] == 1
    driver.close()


def test_a_file_is_held_until_its_slice_is_sent(tmp_path):
    path = tmp_path / "held.log"
    path.write_bytes(b"k" * 500_000)
    driver = Driver(WaitingHandler())
    client, _ = driver.connect(send_buffer=4096)
    client.sendall(framed(b"wait here"))
    driver.settle()
    closed = []

    class Held:
        def __init__(self):
            self.file = path.open("rb")

        def fileno(self):
            return self.file.fileno()

        def __del__(self):
            self.file.close()
            closed.append(True)

    driver.handler.pending.pop().complete([FileSlice(Held(), 0, 500_000)])
    driver.loop.flush_dirty()
    assert not closed
    assert driver.receive(client, 500_000) == b"k" * 500_000
    driver.settle()
    assert closed
    driver.close()


def test_a_slices_place_is_checked(segment):
    file, _ = segment
    for position, length in ((-1, 5), (5, -1)):
        with pytest.raises(ValueError, match="file slice"):
            FileSlice(file, position, length)


def test_small_requests_leave_no_object_behind():
    driver = Driver()
    client, _ = driver.connect()
    stream = framed(b"request!") * 5

    def rounds(n):
        for _ in range(n):
            client.sendall(stream)
            driver.turn()
            client.recv(1000)
            driver.handler.seen.clear()

    rounds(10)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    rounds(200)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 10_000
    driver.close()
