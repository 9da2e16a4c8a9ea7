"""Drives a DataLoop turn by turn, so that tests of the connection engine need neither an event loop nor a sleep."""

import contextlib
import select
import socket
import struct

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.data_loop import DataLoop
from odradek._ext.net.frame_reading import PythonFrameHandler

PATIENCE_S = 60


class EchoHandler(PythonFrameHandler):
    """Answers each frame with itself, its length in front; a test may replace `answer`."""

    def __init__(self):
        self.loop = None
        self.seen = []
        self.flushes = 0
        self.half_closed = []
        self.closed = []

    def on_frame(self, connection, frame):
        self.seen.append(frame)
        return self.answer(connection, frame)

    def answer(self, connection, frame):
        self.loop.responses.write(framed(frame))
        return FrameResult.FRAME_DONE

    def on_flush(self, connection):
        self.flushes += 1

    def on_half_closed(self, connection):
        self.half_closed.append(connection.connection_id)

    def on_closed(self, connection):
        self.closed.append(connection.connection_id)


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


class _Client(socket.socket):
    """Ends the connection when it is closed, also if another process holds a copy of the descriptor: one that a thread has just
    forked, and that has not executed its program yet."""

    def close(self):
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        super().close()


class Driver:
    """A DataLoop, its handler, and the client ends of its connections. `closed_ids`: of the closed connections, in order."""

    def __init__(self, handler=None, **settings):
        self.handler = handler or EchoHandler()
        self.closed_ids = []
        self.loop = DataLoop(self.handler, on_closed=self.closed_ids.append, **settings)
        self.handler.loop = self.loop
        self.clients = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._poll = select.poll()
        self._poll.register(self.loop.fileno(), select.POLLIN)

    def connect(self, tcp=False, send_buffer=None, receive_buffer=None):
        """A new connection: (client socket, Connection)."""
        if tcp:
            client = socket.socket()
            if receive_buffer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            client.connect(self._listener.getsockname())
            server, _ = self._listener.accept()
        else:
            near, server = socket.socketpair()
            client = _Client(fileno=near.detach())
        if send_buffer:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        client.settimeout(PATIENCE_S)
        self.clients.append(client)
        connection_id = len(self.clients)
        return client, self.loop.add(server.detach(), connection_id, 0, f"client-{connection_id}")

    def turn(self, timeout=PATIENCE_S):
        """Wait for an event and handle one batch; False if none came within `timeout` seconds."""
        if not self._poll.poll(timeout * 1000):
            return False
        self.loop.on_events()
        return True

    def settle(self):
        """Handle all that is ready. Of a TCP client that may be less than it sent: the kernel delivers in its own time."""
        turns = 0
        while self.turn(0):
            turns += 1
            assert turns < 100_000, "the epoll descriptor never becomes quiet"
        return turns

    def until(self, condition):
        while not condition():
            assert self.turn(), "no event came within the patience"

    def receive(self, client, n):
        """`n` bytes from the broker, which is driven meanwhile."""
        received = self.receive_all(client, n)
        assert len(received) == n, f"closed after {len(received)} of {n} bytes"
        return received

    def receive_all(self, client, n=1 << 40, each_turn=lambda: None):
        """`n` bytes, or less where the stream ends before; `each_turn` is called whenever there may be something to do."""
        received = bytearray()
        ready = select.poll()
        ready.register(client, select.POLLIN)
        ready.register(self.loop.fileno(), select.POLLIN)
        client.setblocking(False)
        while len(received) < n:
            each_turn()
            self.settle()
            with contextlib.suppress(BlockingIOError):
                part = client.recv(min(n - len(received), 1 << 20))
                if not part:
                    break
                received += part
                continue
            assert ready.poll(PATIENCE_S * 1000), f"nothing more after {len(received)} of {n} bytes"
        client.settimeout(PATIENCE_S)
        return bytes(received)

    def send(self, client, data):
        """Send all of `data`, driving the broker while the socket is full."""
        client.setblocking(False)
        view = memoryview(data)
        while view:
            with contextlib.suppress(BlockingIOError):
                view = view[client.send(view) :]
                continue
            self.settle()
        client.settimeout(PATIENCE_S)

    def close(self):
        for client in self.clients:
            client.close()
        self.loop.connections.close_all()
        self._listener.close()
