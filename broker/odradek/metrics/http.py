"""HTTP of the reporter: a thread a connection, on the standard library's server; what is told is handed in.

The socket is the supervisor's and outlives this process. A client that is slow or hangs holds up nobody: each has one request,
a bounded time for it, and there are at most so many; when all places are taken, the one that has waited longest with its
request goes. Requests for `/metrics` that come while one is made share the next one.
"""

import json
import logging
import socket
import socketserver
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from prometheus_client.exposition import choose_encoder

log = logging.getLogger("odradek.reporter")

MOST_CONNECTIONS = 32
PATIENCE_S = 10.0  # with a request, and with each of a slow reader's steps
LONGEST_S = 60.0
LOOK_EVERY_S = 0.5
GZIP_LEVEL = 1  # of ten megabytes, level 1 takes a tenth of the time of 9 and is a fifth larger
_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"

Render = Callable[[bool], Iterable[bytes]]
"""OpenMetrics or not, to the pieces of `/metrics`."""


class Pages:
    """What is served. Called in the threads of connections.

    :param not_ready: why the broker is not ready; None if it is.
    :param usage: the document of `/usage` for a query; raises ValueError for one that is wrong.
    """

    def __init__(
        self,
        render: Render,
        not_ready: Callable[[], str | None],
        usage: Callable[[dict[str, list[str]]], dict[str, Any]],
    ) -> None:
        self.metrics = Shared(render)
        self.not_ready = not_ready
        self.usage = usage


class Shared:
    """Renderings one after the other; who comes while one is made waits for the next, together with all who do."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._making = threading.Lock()
        self._counts = threading.Lock()
        self._begun = 0
        self._waiting = 0
        self._made: dict[tuple[bool, bool], tuple[int, bytes]] = {}

    def get(self, openmetrics: bool, gzip: bool) -> bytes:
        """A rendering that began after the call."""
        with self._counts:
            seen = self._begun
            self._waiting += 1
        try:
            with self._making:
                number, data = self._made.get((openmetrics, gzip), (0, b""))
                if number <= seen:
                    with self._counts:
                        self._begun += 1
                        number = self._begun
                    data = _join(self._render(openmetrics), gzip)
                    self._made[openmetrics, gzip] = number, data
                return data
        finally:
            with self._counts:
                self._waiting -= 1
                if not self._waiting:
                    self._made.clear()


def _join(pieces: Iterable[bytes], gzip: bool) -> bytes:
    if not gzip:
        return b"".join(pieces)
    squeeze = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*map(squeeze.compress, pieces), squeeze.flush()])


def accepts_gzip(header: str | None) -> bool:
    """Whether an Accept-Encoding allows gzip."""
    for part in (header or "").split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Answer(NamedTuple):
    """An answer to a GET."""

    status: HTTPStatus
    content_type: str
    data: bytes
    gzip: bool = False


class _Handler(BaseHTTPRequestHandler):
    server: "HttpServer"
    timeout = PATIENCE_S
    server_version = "odradek"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """One of the paths."""
        self.server.has_request(self.connection)
        url = urlsplit(self.path)
        try:
            answer = self._find(url.path, url.query)
        except Exception:  # one of the three borders: a connection
            log.exception("GET %s failed", self.path)
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"an error of the broker; its log tells more\n")
        self._send(answer)

    do_HEAD = do_GET

    def _find(self, path: str, query: str) -> "Answer":
        if path == "/metrics":
            return self._metrics()
        if path == "/usage":
            return self._usage(query)
        if path == "/readyz":
            reason = self.server.pages.not_ready()
            if reason is not None:
                return Answer(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"not ready: {reason}\n".encode())
            return Answer(HTTPStatus.OK, _PLAIN, b"ready\n")
        if path == "/healthz":
            return Answer(HTTPStatus.OK, _PLAIN, b"ok\n")
        if path == "/":
            return Answer(HTTPStatus.OK, _PLAIN, b"/metrics\n/healthz\n/readyz\n/usage\n")
        return Answer(HTTPStatus.NOT_FOUND, _PLAIN, f"there is no {path}; see /\n".encode())

    def _metrics(self) -> "Answer":
        content_type = choose_encoder(self.headers.get("Accept", ""))[1]
        gzip = accepts_gzip(self.headers.get("Accept-Encoding"))
        data = self.server.pages.metrics.get(content_type.startswith("application/openmetrics-text"), gzip)
        return Answer(HTTPStatus.OK, content_type, data, gzip)

    def _usage(self, query: str) -> "Answer":
        try:
            document = self.server.pages.usage(parse_qs(query, keep_blank_values=True))
        except ValueError as error:
            return Answer(HTTPStatus.BAD_REQUEST, _JSON, json.dumps({"error": str(error)}).encode() + b"\n")
        return Answer(HTTPStatus.OK, _JSON, json.dumps(document).encode() + b"\n")

    def _send(self, answer: "Answer") -> None:
        self.close_connection = True
        headers = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.data)),
            "Connection": "close",
            "X-Content-Type-Options": "nosniff",
        }
        if answer.gzip:
            headers["Content-Encoding"] = "gzip"
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.data)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not told of; what is malformed is answered."""


class HttpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves in a thread of its own until the process ends. :param listening: stays the caller's."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, pages: Pages, most: int = MOST_CONNECTIONS) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pages = pages
        self._most = most
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[float, bool]] = {}  # since when, whether its request has come
        self._thread = threading.Thread(target=self.serve_forever, args=(LOOK_EVERY_S,), name="http", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def has_request(self, connection: socket.socket) -> None:
        """A connection's request has come: nobody takes its place any more."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = self._open[connection][0], True

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection was accepted: a thread for it, if need be in the place of one that does not come to its request."""
        with self._lock:
            if len(self._open) >= self._most:
                idle = [(since, one) for one, (since, asked) in self._open.items() if not asked]
                if idle:
                    self._cut(min(idle, key=lambda found: found[0])[1])
                else:
                    request.close()
                    return
            self._open[request] = time.monotonic(), False
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Now and then: cut off who takes too long."""
        now = time.monotonic()
        with self._lock:
            for one, (since, _) in list(self._open.items()):
                if now - since > LONGEST_S:
                    self._cut(one)

    def _cut(self, connection: socket.socket) -> None:
        del self._open[connection]
        try:
            connection.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes
        except OSError:
            pass  # its client was first

    def shutdown_request(self, request: Any) -> None:
        """A connection's thread is done with it."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client went away, or was too slow."""
        log.debug("the HTTP connection of %s ended before its response: %s", client_address[0], sys.exc_info()[1])
