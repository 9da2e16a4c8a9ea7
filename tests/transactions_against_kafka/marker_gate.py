"""A relay in front of a broker's listener for brokers, which holds WriteTxnMarkers requests back when a test says so.

While it holds, transactions stay in PrepareCommit or PrepareAbort. Runs as threads of the test's process.
"""

from __future__ import annotations

import socket
import struct
import threading

from odradek.protocol.schemas import write_txn_markers
from tests.threaded_server import ThreadedServer

_LENGTH = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class MarkerGate:
    """Forwards connections to 127.0.0.1:server_port; `port` is its own. A context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._changed = threading.Condition()
        self._holds = False
        self._server = ThreadedServer(self._serve)
        self.port = self._server.port

    def __enter__(self) -> MarkerGate:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.close()

    def hold(self) -> None:
        """Hold markers that arrive from now on."""
        with self._changed:
            self._holds = True

    def release(self) -> None:
        """Let all markers pass."""
        with self._changed:
            self._holds = False
            self._changed.notify_all()

    def _serve(self, client: socket.socket, _: int) -> None:
        self._server.relay(client, self._server_port, self._requests, self._responses)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with client.makefile("rb") as incoming:
            while head := incoming.read(_LENGTH.size):
                body = incoming.read(_LENGTH.unpack(head)[0])
                if _API_KEY.unpack_from(body)[0] == write_txn_markers.API_KEY:
                    with self._changed:
                        self._changed.wait_for(lambda: not self._holds)
                server.sendall(head + body)

    @staticmethod
    def _responses(server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(1 << 16):
            client.sendall(data)
