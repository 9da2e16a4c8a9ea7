"""A worker's connections and a coordinator that answers on the test's command, joined by a real stream in one event loop."""

import asyncio
import socket

import pytest

from odradek._ext.api.fetch import FetchHandler
from odradek._ext.api.fetch_sessions import FetchSessions
from odradek._ext.api.produce import ProduceHandler
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.api.requests import RequestHandler
from odradek._ext.net.data_loop import DataLoop
from odradek.api.routes import ROUTES
from odradek.net.forward import ForwardClient
from odradek.net.forward_server import ForwardServer
from tests.api.worker_harness import tcp_pair

COMMIT, FETCH_OFFSETS, HEARTBEAT, JOIN = (8, 9), (9, 7), (12, 4), (11, 9)
PATIENCE_S = 60


def frame(api, number, body=b"", client=b"me"):
    """A request as a client sends it."""
    key, version = api
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + number.to_bytes(4, "big")
    data = head + len(client).to_bytes(2, "big") + client + body
    return len(data).to_bytes(4, "big") + data


class Bench:
    """`arrived`: what the coordinator got and has to answer."""

    def __init__(self, tmp_path, topics, routes=ROUTES, **limits):
        self.asyncio = asyncio.get_running_loop()
        self.topics = topics
        self.path = str(tmp_path / "forward")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        self.settled = 0
        self.newer = []
        self.client = ForwardClient(
            self.asyncio,
            self.path,
            self._settle,
            lambda connections: self.loop.connections.close_ended(connections),
            **limits,
        )
        self.client.serve(topics, lambda: self.newer.append(len(self.answers)))
        self.room = Purgatory(lambda deadline_ms: None)
        unused = lambda *_: pytest.fail("not a forwarded request")  # noqa: E731
        handler = RequestHandler(
            ProduceHandler(
                topics, self.room, unused, unused, unused, unused, max_opened_bytes=1 << 28, max_partitions=10_000
            ),
            FetchHandler(
                topics,
                self.room,
                [str(tmp_path)],
                FetchSessions(0, 1, max_sessions=10, max_partitions=10_000),
                unused,
                unused,
                max_bytes=1 << 20,
                max_wait_ms=60_000,
                max_partitions=10_000,
            ),
            self.room,
            unused,
            self.client,
            routes,
        )
        self.loop = DataLoop(handler, on_closed=self.client.cancel)
        self.asyncio.add_reader(self.loop.fileno(), self._turn)
        self.arrived = []
        self.arrival = asyncio.Event()
        self.answers = []
        self.sockets = []
        self.server = None

    def _turn(self):
        self.client.hold()
        try:
            self.loop.on_events()
        finally:
            self.client.release()

    def _settle(self):
        self.settled += 1
        self.loop.flush_dirty()

    async def serve(self):
        self.server = ForwardServer(None, self._at_once)
        await self.server.start(self.listener.dup())

    def _at_once(self, request):
        self.arrived.append(request)
        self.arrival.set()
        return True

    async def until_arrived(self, count):
        while len(self.arrived) < count:
            self.arrival.clear()
            await asyncio.wait_for(self.arrival.wait(), PATIENCE_S)
        return self.arrived[:count]

    def connect(self, *, tcp=False):
        ours, theirs = tcp_pair() if tcp else socket.socketpair()
        ours.setblocking(False)
        self.sockets.append(ours)
        self.loop.add(theirs.detach(), len(self.sockets), 3, f"peer-{len(self.sockets)}")
        return ours

    async def send(self, sock, data):
        await self.asyncio.sock_sendall(sock, data)

    async def receive(self, sock):
        """The next answer without its length; b"" at the end."""
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            wanted = 4 - len(data) if len(data) < 4 else 4 + int.from_bytes(data[:4], "big") - len(data)
            piece = await asyncio.wait_for(self.asyncio.sock_recv(sock, wanted), PATIENCE_S)
            if not piece:
                assert not data
                return b""
            data += piece
        return data[4:]

    async def close(self):
        self.asyncio.remove_reader(self.loop.fileno())
        self.loop.connections.close_all()
        self.client.close()
        if self.server is not None:
            await self.server.stop(0)
        self.listener.close()
        for sock in self.sockets:
            sock.close()
