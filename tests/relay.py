"""A TCP relay between a client and a server, which a test lets lose requests or responses, or cut."""

import socket
import threading
from functools import partial

from tests.threaded_server import ThreadedServer


class Relay:
    """Forwards every connection to ``127.0.0.1:server_port``; ``port`` is its own, at ``host``.

    ``requests`` and ``responses``: whether bytes of this direction are forwarded; else they are read and dropped.
    ``responses_passed``: how often bytes of responses were forwarded.
    """

    def __init__(self, server_port: int, host: str = "127.0.0.1") -> None:
        self._server_port = server_port
        self.requests = self.responses = True
        self.dropped = self.responses_passed = 0
        self._changed = threading.Condition()
        self._server = ThreadedServer(self._serve, host)
        self.port = self._server.port

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _serve(self, client: socket.socket, _: int) -> None:
        self._server.relay(
            client, self._server_port, partial(self._forward, "requests"), partial(self._forward, "responses")
        )

    def _forward(self, direction: str, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            if getattr(self, direction):
                target.sendall(data)
                self.responses_passed += direction == "responses"
            else:
                with self._changed:
                    self.dropped += 1
                    self._changed.notify_all()

    def wait_until_dropped(self) -> None:
        """Wait until bytes were dropped since the last call."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.dropped > 0, 60), "nothing was dropped"
            self.dropped = 0

    def cut(self) -> None:
        """Close all connections; new ones are forwarded."""
        self._server.cut()

    def heal_and_cut(self) -> None:
        """Cut the connections; forward everything on new ones."""
        self.cut()
        self.requests = self.responses = True
