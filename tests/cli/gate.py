"""A relay between a client and a broker that can hold requests, so that the client waits, and can cut connections."""

import struct
import threading

from tests.threaded_server import LENGTH_BYTES, ThreadedServer, received_frame

_API_KEY = struct.Struct(">h")


class Gate:
    """Relays single requests and responses on a port of 127.0.0.1; a context manager.

    A request of the API `held` is not forwarded, and no later request on its connection is; the gate then sets `reached`.
    While `cuts` is positive, a connection is cut instead of forwarding its response number `cut_at`, counted from 1.
    """

    def __init__(self):
        self._server = ThreadedServer(self._serve)
        self.port = self._server.port
        self.upstream_port = 0
        self.held = None
        self.reached = threading.Event()
        self.cuts = 0
        self.cut_at = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.held = None
        self._server.close()

    def hold(self, api_key):
        """Hold requests of this API until `let_go`."""
        self.held = api_key
        self.reached.clear()

    def let_go(self):
        """Stop holding, and close all connections."""
        self.held = None
        self._server.end_connections()

    def _serve(self, client, _):
        self._server.relay(client, self.upstream_port, self._requests, self._responses)

    def _requests(self, client, upstream):
        while frame := received_frame(client):
            if _API_KEY.unpack_from(frame, LENGTH_BYTES)[0] == self.held:
                self.reached.set()
                while client.recv(4096):
                    pass
                return
            upstream.sendall(frame)

    def _responses(self, upstream, client):
        count = 0
        while frame := received_frame(upstream):
            count += 1
            if self.cuts and count == self.cut_at:
                self.cuts -= 1
                return
            client.sendall(frame)
