"""A relay in front of a broker's listener for brokers, which holds WriteTxnMarkers requests back when a test says so.

While it holds, transactions stay in PrepareCommit or PrepareAbort. Runs as threads of the test's process.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from odradek.protocol.schemas import write_txn_markers

_LENGTH = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class MarkerGate:
    """Forwards connections to 127.0.0.1:server_port; `port` is its own. A context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._changed = threading.Condition()
        self._holds = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> MarkerGate:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.release()
        for connected in self._sockets:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Hold markers that arrive from now on."""
        with self._changed:
            self._holds = True

    def release(self) -> None:
        """Let all markers pass."""
        with self._changed:
            self._holds = False
            self._changed.notify_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except ConnectionRefusedError:  # it does not listen yet
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._responses, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client.makefile("rb") as incoming:
            while head := incoming.read(_LENGTH.size):
                body = incoming.read(_LENGTH.unpack(head)[0])
                if _API_KEY.unpack_from(body)[0] == write_txn_markers.API_KEY:
                    with self._changed:
                        self._changed.wait_for(lambda: not self._holds)
                server.sendall(head + body)
        _end(client, server)

    def _responses(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _end(client, server)


def _end(*connected: socket.socket) -> None:
    for one in connected:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
