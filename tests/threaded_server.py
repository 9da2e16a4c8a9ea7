"""A listening port of a test with a thread for each connection, all of which have ended when it is closed.

A thread that outlives its test holds descriptors open, and what it accepts or reads later may belong to another test. So
`close` wakes each thread by a shutdown of its socket, waits until all have ended, and only then closes the sockets.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.waiting import PATIENCE_S

LENGTH_BYTES = 4
Serve = Callable[[socket.socket, int], None]
Direction = Callable[[socket.socket, socket.socket], None]


class ThreadedServer:
    """Listens on a free port of `host`, from now until `close`.

    :param serve: called in a thread for each connection, with its number, counted from 1 in the order in which clients
        connected. When it returns, or raises OSError, the connection is closed.
    """

    def __init__(self, serve: Serve, host: str = "127.0.0.1") -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._accepted: set[socket.socket] = set()
        self._made: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._count = 0
        self._listener = socket.create_server((host, 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut_clients(self) -> None:
        """Shut the connections down that were accepted."""
        with self._lock:
            for connection in self._accepted:
                shut_down(connection)

    def cut(self) -> None:
        """Shut all connections down, also those that `relay` made."""
        self.cut_clients()
        with self._lock:
            for connection in self._made:
                shut_down(connection)

    def end_connections(self) -> None:
        """Shut all connections down. Returns when their threads have ended, except the one that calls this."""
        with self._lock:
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        self.cut()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"a thread of port {self.port} did not end: {thread.name}"

    def close(self) -> None:
        """Accept no more, and end all connections. Returns when no thread is left."""
        shut_down(self._listener)
        self._accepting.join(PATIENCE_S)
        assert not self._accepting.is_alive(), f"the thread that accepts on port {self.port} did not end"
        self._listener.close()
        self.end_connections()

    def relay(self, client: socket.socket, port: int, there: Direction, back: Direction) -> None:
        """Connect to a port of 127.0.0.1, and run both directions until they have ended. The end of one, or an OSError in
        it, ends the other too. Raises OSError if the port does not accept the connection.

        :param there: called with the client's connection and the new one.
        :param back: called in a second thread, with the new connection and the client's.
        """
        with socket.create_connection(("127.0.0.1", port)) as server:
            for connection in (client, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._made.add(server)
            second = threading.Thread(target=_run, args=(back, server, client), daemon=True)
            second.start()
            try:
                _run(there, client, server)
            finally:
                second.join()
                with self._lock:
                    self._made.discard(server)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # shut down by `close`
                return
            with self._lock:
                self._accepted.add(connection)
                self._count += 1
                thread = threading.Thread(target=self._serve_one, args=(connection, self._count), daemon=True)
                self._threads.add(thread)
                thread.start()

    def _serve_one(self, connection: socket.socket, number: int) -> None:
        try:
            with suppress(OSError):
                self._serve(connection, number)
        finally:
            with self._lock:
                self._accepted.discard(connection)
                self._threads.discard(threading.current_thread())
            connection.close()


def _run(direction: Direction, source: socket.socket, target: socket.socket) -> None:
    try:
        with suppress(OSError):
            direction(source, target)
    finally:
        shut_down(source, target)


def shut_down(*connections: socket.socket) -> None:
    """Shut sockets down, which may be so already: every call that waits for them returns."""
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def received_frame(source: socket.socket) -> bytes:
    """The next frame of Kafka's protocol, with its length in front; empty if the stream ends before the frame does."""
    head = _exactly(source, LENGTH_BYTES)
    body = _exactly(source, int.from_bytes(head, "big")) if head else b""
    return head + body if body else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = source.recv(min(size, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
