"""For any mixture of requests, the responses equal those of a connection that executes one request at a time."""

import random
import struct
from collections import deque

import pytest

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.output import FileSlice
from tests.net.connection_driver import Driver, EchoHandler, framed

KINDS = ["now", "join", "wait", "alone", "slice", "large"]


class MixedHandler(EchoHandler):
    """Each frame is its number, its kind and filler; each answer is the frame, or a slice of the file it names."""

    def __init__(self, file, rng):
        super().__init__()
        self.file = file
        self.rng = rng
        self.joined = []
        self.pending = deque()
        self.executed = []

    def answer(self, connection, frame):
        number, kind = struct.unpack_from(">IB", frame)
        kind = KINDS[kind]
        if kind != "join":
            self.on_flush(connection)
        if kind == "alone" and connection.pending_count:
            return FrameResult.FRAME_DEFER
        self.executed.append(number)
        if kind == "join":
            self.joined.append(frame)
            return FrameResult.FRAME_JOINED
        if kind == "wait":
            self.wait(connection, [frame])
            return FrameResult.FRAME_PENDING
        if kind == "slice":
            slices = FileSlice(self.file, number, 20_000), FileSlice(self.file, number, 50)
            for part in slices:
                self.loop.responses.write_file(part)
            return FrameResult.FRAME_DONE
        return super().answer(connection, frame)

    def wait(self, connection, parts):
        self.pending.append((connection.reserve(), parts))

    def on_flush(self, connection):
        for frame in self.joined:
            if self.rng.random() < 0.5:
                self.wait(connection, [frame[:3], frame[3:], FileSlice(self.file, 9, 17_000)])
            else:
                self.loop.responses.write(frame)
                self.loop.responses.write_file(FileSlice(self.file, 9, 17_000))
        self.joined.clear()

    def complete_some(self):
        while self.pending and self.rng.random() < 0.6:
            self.pending.rotate(self.rng.randrange(3))
            pending, parts = self.pending.popleft()
            pending.complete(parts)
        self.loop.flush_dirty()


def expected_answer(frame, content):
    number, kind = struct.unpack_from(">IB", frame)
    return {
        "slice": content[number : number + 20_000] + content[number : number + 50],
        "join": frame + content[9:17_009],
        "wait": frame,
    }.get(KINDS[kind], framed(frame))


@pytest.mark.parametrize("seed", range(30))
def test_any_mixture_of_requests_is_answered_in_order(seed, tmp_path):
    rng = random.Random(seed)
    content = rng.randbytes(100_000)
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        handler = MixedHandler(file, rng)
        driver = Driver(handler, receive_buffer_bytes=8192, max_pending=7, max_queued_bytes=60_000)
        client, connection = driver.connect(tcp=seed % 2, send_buffer=rng.choice([None, 2048]))
        frames = []
        for number in range(300):
            kind = rng.randrange(len(KINDS))
            filler = rng.randrange(3, 60) if KINDS[kind] != "large" else rng.randrange(3, 40_000)
            frames.append(struct.pack(">IB", number, kind) + rng.randbytes(filler))
        stream = b"".join(map(framed, frames))
        expected = b"".join(expected_answer(frame, content) for frame in frames)
        client.setblocking(False)
        received = bytearray()
        sent = 0
        half_closed = False
        while len(received) < len(expected):
            try:
                if sent < len(stream):
                    sent += client.send(stream[sent : sent + rng.randrange(1, 20_000)])
                elif not half_closed:
                    half_closed = True
                    client.shutdown(1)
            except BlockingIOError:
                pass
            driver.turn(0)
            handler.complete_some()
            try:
                part = client.recv(rng.randrange(1, 200_000))
                assert part, "closed too early"
                received += part
            except BlockingIOError:
                driver.turn(0.001)
        if not half_closed:
            client.shutdown(1)
        assert handler.executed == list(range(300))
        assert received == expected
        driver.until(lambda: driver.closed_ids)
        assert driver.loop.connections.closes["eof"] == 1
        assert driver.loop.pool.lent_bytes == 0
        assert connection.queued_bytes == 0
        driver.close()
