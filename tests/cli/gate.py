"""A relay between a client and a broker that can hold requests, so that the client waits, and can cut connections."""

import socket
import struct
import threading

_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class Gate:
    """Relays single requests and responses on a port of 127.0.0.1; a context manager.

    A request of the API `held` is not forwarded, and no later request on its connection is; the gate then sets `reached`.
    While `cuts` is positive, a connection is cut instead of forwarding its response number `cut_at`, counted from 1.
    """

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.upstream_port = 0
        self.held = None
        self.reached = threading.Event()
        self.cuts = 0
        self.cut_at = 0
        self._lock = threading.Lock()
        self._open, self._relays = [], []
        self._accepting = threading.Thread(target=self._accept)

    def __enter__(self):
        self._accepting.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(60)
        self.let_go()

    def hold(self, api_key):
        """Hold requests of this API until `let_go`."""
        self.held = api_key
        self.reached.clear()

    def let_go(self):
        """Stop holding, and close all connections."""
        self.held = None
        with self._lock:
            (connections, relays), self._open, self._relays = (self._open, self._relays), [], []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed by its other end
                pass
        for relay in relays:
            relay.join(60)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed at the end
                return
            upstream = socket.create_connection(("127.0.0.1", self.upstream_port))
            relays = [
                threading.Thread(target=self._relay, args=(client, upstream, True)),
                threading.Thread(target=self._relay, args=(upstream, client, False)),
            ]
            with self._lock:  # a thread that is in the list has been started
                self._open += [client, upstream]
                self._relays += relays
                for relay in relays:
                    relay.start()

    def _relay(self, source, target, requests):
        count = 0
        try:
            while frame := _frame(source):
                count += 1
                if not requests and self.cuts and count == self.cut_at:
                    self.cuts -= 1
                    break
                if requests and _API_KEY.unpack_from(frame, 4)[0] == self.held:
                    self.reached.set()
                    while source.recv(4096):
                        pass
                    break
                target.sendall(frame)
        except OSError:  # either end is closed
            pass
        for connection in (source, target):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _frame(source):
    head = _exactly(source, _SIZE.size)
    return head + _exactly(source, *_SIZE.unpack(head)) if head else b""


def _exactly(source, size):
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)
