"""Incoming frames: split at any byte, large, pipelined, deferred, refused."""

import contextlib
import logging
import resource
from pathlib import Path

import pytest

from odradek._ext.net.connection import FrameResult
from odradek.net.failure_log import FailureLog
from tests.net.connection_driver import Driver, EchoHandler, framed


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.close()


def small(**settings):
    return Driver(receive_buffer_bytes=8192, **settings)


def test_a_stream_split_at_every_byte_gives_the_same_frames(driver):
    frames = [b"eight or", b"0123456789", b"x" * 37]
    stream = b"".join(map(framed, frames))
    for cut in range(1, len(stream)):
        client, _ = driver.connect()
        driver.handler.seen.clear()
        client.sendall(stream[:cut])
        driver.settle()
        client.sendall(stream[cut:])
        driver.settle()
        assert driver.handler.seen == frames
        assert client.recv(4096) == stream
        client.close()
        driver.settle()
    assert driver.loop.connections.by_id == {}
    assert driver.loop.pool.lent_bytes == 0


def test_a_stream_arriving_byte_by_byte(driver):
    stream = framed(b"12345678") + framed(b"a" * 20)
    client, connection = driver.connect()
    for i in range(len(stream)):
        client.sendall(stream[i : i + 1])
        driver.settle()
    assert driver.handler.seen == [b"12345678", b"a" * 20]
    assert connection.buffered_bytes == 0
    assert driver.loop.receiver.bytes_in == driver.loop.sender.bytes_out == len(stream)


def test_pipelined_frames_are_flushed_once_and_answered_in_order(driver):
    client, _ = driver.connect()
    stream = b"".join(framed(b"request %d" % i) for i in range(200))
    client.sendall(stream)
    assert driver.settle() == 1
    assert driver.handler.flushes == 1
    assert client.recv(1 << 16) == stream
    assert driver.loop.frames.count == 200


@pytest.mark.parametrize("size", [8184, 8188, 8189, 20_000, 300_000, 1_000_000])
def test_frames_larger_than_the_receive_buffer_are_whole_and_their_buffer_is_freed(size):
    driver = small()
    client, _ = driver.connect(tcp=True)
    payload = bytes(i * 7 & 255 for i in range(size))
    for _ in range(3):
        for frame in (payload, b"a small one between", payload[::-1]):
            driver.send(client, framed(frame))
            assert driver.receive(client, len(frame) + 4) == framed(frame)
    driver.send(client, framed(payload) + framed(b"12345678") + framed(payload))
    assert driver.receive(client, 2 * size + 20) == framed(payload) + framed(b"12345678") + framed(payload)
    assert driver.loop.pool.lent_bytes == 0
    driver.close()


def test_free_receive_memory_is_bounded():
    driver = small(retained_bytes=1 << 20)
    clients = [driver.connect(tcp=True)[0] for _ in range(8)]
    for client in clients:
        driver.send(client, framed(b"x" * 400_000)[:-1])
    driver.until(lambda: driver.loop.pool.lent_bytes == 8 * 524_288)
    for client in clients:
        client.sendall(b"x")
        driver.receive(client, 400_004)
    assert driver.loop.pool.lent_bytes == 0
    assert driver.loop.pool.retained_bytes == 1 << 20
    driver.loop.pool.trim()
    assert driver.loop.pool.retained_bytes == 0
    driver.close()


def test_one_connection_does_not_delay_another():
    driver = small()
    busy, _ = driver.connect()
    busy.setblocking(False)
    frame = framed(b"z" * 1000)
    flood = memoryview(frame * 64)
    sent = 0

    def pour():
        nonlocal sent
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += busy.send(flood[sent % len(frame) :])

    def answer(connection, frame):
        pour()  # however much is taken, more has come
        return FrameResult.FRAME_DONE

    driver.handler.answer = answer
    pour()
    other, _ = driver.connect()
    other.sendall(framed(b"the other"))
    driver.turn()
    assert b"the other" in driver.handler.seen
    assert len(driver.handler.seen) < sent // len(frame)
    driver.close()


@pytest.mark.parametrize("size", [-1, 0, 7, 1001, 2**31 - 1, -(2**31)])
def test_a_frame_of_a_forbidden_size_closes_only_its_connection(size, caplog):
    driver = Driver(max_request_bytes=1000)
    client, _ = driver.connect()
    other, _ = driver.connect()
    client.sendall(framed(b"answered") + size.to_bytes(4, "big", signed=True))
    with caplog.at_level(logging.WARNING):
        driver.settle()
    assert client.recv(100) == framed(b"answered")
    assert client.recv(100) == b""
    assert driver.loop.frames.bad_frames == 1
    assert driver.loop.connections.closes["bad_frame"] == 1
    assert driver.closed_ids == driver.handler.closed == [1]
    assert [r.getMessage() for r in caplog.records if r.name.startswith("odradek")] == [
        f"connection 1 from client-1 (no client id) closed: the client sent a frame of {size} bytes, allowed are 8 to 1000"
    ]
    other.sendall(framed(b"undisturbed"))
    driver.settle()
    assert other.recv(100) == framed(b"undisturbed")
    driver.close()


@pytest.mark.parametrize(
    ("hello", "word"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST /x HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 9092\r\n", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "PROXY protocol"),
    ],
)
@pytest.mark.parametrize("limit", [1000, 2**31 - 1])
def test_another_protocol_is_named_and_closed(hello, word, limit, caplog):
    driver = Driver(max_request_bytes=limit)
    client, _ = driver.connect()
    client.sendall(hello)
    with caplog.at_level(logging.WARNING):
        driver.settle()
    assert client.recv(100) == b""
    assert word in caplog.text
    assert driver.loop.connections.closes["other_protocol"] == 1
    assert driver.handler.seen == []
    driver.close()


def test_other_protocols_on_a_plaintext_listener_are_one_line_a_minute_for_an_address(caplog):
    driver = Driver(max_request_bytes=1000)
    failures = FailureLog(lambda: 0.0)
    driver.loop.connections.protocol_log = lambda _, reason: failures.admit_reason("10.0.0.1:1", reason)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            client, _ = driver.connect()
            client.sendall(b"\x16\x03\x01\x02\x00\x01")
            driver.settle()
            assert client.recv(100) == b""
        client, _ = driver.connect()
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        driver.settle()
    assert driver.loop.connections.closes["other_protocol"] == 4
    assert caplog.text.count("expects plaintext") == 1 and caplog.text.count("speaks HTTP") == 1
    driver.close()


def test_only_the_first_bytes_of_a_connection_can_be_another_protocol():
    driver = Driver(max_request_bytes=2**31 - 1)
    client, _ = driver.connect()
    client.sendall(framed(b"greeting") + b"GET /")
    driver.settle()
    assert client.recv(100) == framed(b"greeting")
    assert len(driver.loop.connections.by_id) == 1
    driver.close()


def test_a_memory_shortage_closes_only_its_connection(caplog):
    driver = Driver(max_request_bytes=2**31 - 1)
    client, _ = driver.connect()
    other, _ = driver.connect()
    client.sendall((2**31 - 1).to_bytes(4, "big") + b"x" * 100)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 30), limits[1]))
    try:
        driver.settle()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert "no memory for a receive buffer" in caplog.text
    assert client.recv(1) == b""
    assert driver.loop.connections.closes["error"] == 1
    other.sendall(framed(b"undisturbed"))
    driver.settle()
    assert other.recv(100) == framed(b"undisturbed")
    driver.close()


class DeferringHandler(EchoHandler):
    """`wait` leaves a response pending; `defer` can only run when none is."""

    def __init__(self):
        super().__init__()
        self.pending = []
        self.offers = 0

    def answer(self, connection, frame):
        if frame.startswith(b"wait"):
            pending = connection.reserve()
            pending.context = frame
            self.pending.append(pending)
            return FrameResult.FRAME_PENDING
        if frame.startswith(b"defer"):
            self.offers += 1
            if connection.pending_count:
                return FrameResult.FRAME_DEFER
        return super().answer(connection, frame)

    def complete(self):
        pending = self.pending.pop(0)
        pending.complete([framed(pending.context)])
        self.loop.flush_dirty()


@pytest.mark.parametrize("cut", range(0, 61, 4))
def test_a_deferred_frame_is_offered_again_when_no_response_is_pending(cut):
    driver = small(handler=DeferringHandler())
    client, connection = driver.connect()
    stream = framed(b"wait a .") + framed(b"wait b .") + framed(b"defer c ") + framed(b"finally ") + framed(b"defer e ")
    client.sendall(stream[:cut])
    driver.settle()
    client.sendall(stream[cut:])
    driver.settle()
    client.sendall(framed(b"the last"))
    driver.settle()
    assert driver.handler.offers == 1
    assert connection.muted
    driver.handler.complete()
    driver.settle()
    assert driver.handler.offers == 1
    assert client.recv(100) == framed(b"wait a .")
    driver.handler.complete()
    driver.settle()
    assert client.recv(1000) == stream[12:] + framed(b"the last")
    assert not connection.muted
    assert connection.buffered_bytes == 0
    assert driver.loop.pool.lent_bytes == 0
    driver.close()


def test_a_large_deferred_frame_and_the_bytes_after_it_are_kept():
    driver = small(handler=DeferringHandler())
    client, connection = driver.connect(tcp=True)
    large = b"defer " + bytes(i & 255 for i in range(50_000))
    stream = framed(b"wait for") + framed(large) + framed(b"behind it") + framed(large)
    driver.send(client, stream)
    driver.until(lambda: connection.muted)
    driver.settle()
    driver.handler.complete()
    assert driver.receive(client, len(stream)) == stream
    assert driver.loop.pool.lent_bytes == 0
    driver.close()


def test_a_handler_may_resume_a_deferred_frame_itself():
    class Handler(EchoHandler):
        ready = False

        def answer(self, connection, frame):
            return super().answer(connection, frame) if self.ready else FrameResult.FRAME_DEFER

    driver = Driver(Handler())
    client, connection = driver.connect()
    client.sendall(framed(b"deferred") * 2)
    driver.settle()
    assert connection.muted
    connection.resume()
    driver.loop.flush_dirty()
    assert connection.muted
    assert len(driver.handler.seen) == 2
    driver.handler.ready = True
    connection.resume()
    driver.loop.flush_dirty()
    assert client.recv(100) == framed(b"deferred") * 2
    driver.close()


def test_a_frame_deferred_after_joined_ones_is_offered_again_after_the_flush():
    class Joining(EchoHandler):
        joined = ()

        def answer(self, connection, frame):
            if frame.startswith(b"join"):
                self.joined += (frame,)
                return FrameResult.FRAME_JOINED
            if self.joined:
                return FrameResult.FRAME_DEFER
            return super().answer(connection, frame)

        def on_flush(self, connection):
            for frame in self.joined:
                self.loop.responses.write(framed(frame))
            self.joined = ()

    driver = Driver(Joining())
    client, _ = driver.connect()
    stream = framed(b"join one") + framed(b"join two") + framed(b"and then") + framed(b"join six")
    client.sendall(stream)
    driver.settle()
    assert client.recv(1000) == stream
    driver.close()


def test_a_handlers_exception_closes_only_its_connection(caplog):
    class Failing(EchoHandler):
        def answer(self, connection, frame):
            if frame == b"to fail.":
                raise ValueError("the handler's own trouble")
            return super().answer(connection, frame)

    driver = Driver(Failing())
    client, _ = driver.connect()
    other, _ = driver.connect()
    client.sendall(framed(b"to fail."))
    other.sendall(framed(b"in order"))
    driver.settle()
    assert client.recv(10) == b""
    assert other.recv(100) == framed(b"in order")
    assert "the handler's own trouble" in caplog.text
    assert driver.loop.connections.closes["error"] == 1
    assert driver.closed_ids == [1]
    driver.close()


def test_a_handler_may_answer_and_close():
    class Closing(EchoHandler):
        def answer(self, connection, frame):
            super().answer(connection, frame)
            connection.close_reason = "said goodbye"
            return FrameResult.FRAME_CLOSE

    driver = Driver(Closing())
    client, connection = driver.connect()
    client.sendall(framed(b"farewell") + framed(b"too late"))
    driver.settle()
    assert client.recv(100) == framed(b"farewell")
    assert driver.handler.seen == [b"farewell"]
    assert connection.close_reason == "said goodbye"
    assert driver.loop.connections.closes["handler"] == 1
    driver.close()


def test_a_handler_may_close_the_connection_at_hand_at_once():
    class Closing(EchoHandler):
        def answer(self, connection, frame):
            connection.close("enough")
            return FrameResult.FRAME_DONE

    driver = Driver(Closing())
    client, _ = driver.connect()
    client.sendall(framed(b"farewell") + framed(b"too late"))
    driver.settle()
    assert client.recv(100) == b""
    assert driver.handler.seen == [b"farewell"]
    assert driver.handler.flushes == 0
    driver.close()
