"""A TCP relay between a client and a server, which a test lets lose requests or responses, or cut."""

import socket
import threading
from contextlib import suppress


class Relay:
    """Forwards every connection to ``127.0.0.1:server_port``; ``port`` is its own, at ``host``.

    ``requests`` and ``responses``: whether bytes of this direction are forwarded; else they are read and dropped.
    """

    def __init__(self, server_port: int, host: str = "127.0.0.1") -> None:
        self._server_port = server_port
        self.requests = self.responses = True
        self.dropped = 0
        self._open = True
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server, "requests"), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, "responses"), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if getattr(self, direction):
                    target.sendall(data)
                else:
                    with self._changed:
                        self.dropped += 1
                        self._changed.notify_all()
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def wait_until_dropped(self) -> None:
        """Wait until bytes were dropped since the last call."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.dropped > 0, 60), "nothing was dropped"
            self.dropped = 0

    def cut(self) -> None:
        """Close all connections; new ones are forwarded."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def heal_and_cut(self) -> None:
        """Cut the connections; forward everything on new ones."""
        self.cut()
        self.requests = self.responses = True
