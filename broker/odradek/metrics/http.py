"""HTTP server of the reporter: one thread per connection, on the standard library's server. The caller passes the contents.

The supervisor owns the listening socket, so it outlives this process. A client that is slow or hangs does not delay others:
each connection has one request and a limited time for it and for its response.

Connections have two kinds of places. Until its request has arrived, a connection has one of 32; at the limit, a new connection
replaces one of the address with most of them, the one that has waited longest. Then a request for a page that takes memory and
time (`/metrics`, `/usage`) needs one of 16 places, of which an address may have 8. If there is none, the new request takes the
place of a page that its client does not read (`HttpServer.begin_page`), else it is answered at once with 503. The responses of
health checks fit into any socket buffer, so they need no place: clients that do not read their pages, or that have the broker
compute pages, keep no health check from its response. An address is a /64 network of IPv6.

Requests for `/metrics` that arrive during a rendering share the next rendering of their format (`Shared`).
"""

import errno
import json
import logging
import select
import socket
import socketserver
import ssl
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from odradek.metrics import spool_pages
from odradek.metrics.http_access import OPEN_PAGES, HttpTls
from odradek.metrics.registry import Wanted, wanted
from odradek.printable import printable
from odradek.security.owners import network_of_peer

log = logging.getLogger("odradek.reporter")

MOST_CONNECTIONS = 32  # that have not sent their request
MOST_PAGES = 16  # that are made or sent at the same time
MOST_PAGES_OF_ADDRESS = 8
STALLED_S = 1.0  # a page of which the client reads nothing for so long makes room for another one
UNFAIR_SHARES = 2  # an address with more than so many times the pages of another makes room for it
PATIENCE_S = 10.0  # maximum time until a request has arrived
RESPONSE_S = 30.0  # maximum time in which a client must read its response
LONGEST_S = 60.0  # maximum time of a connection
PIECE_BYTES = 1 << 17  # of a response are sent at once
LOOK_EVERY_S = 0.5
LOG_EVERY_S = 60
GZIP_LEVEL = 1  # for ten megabytes, level 1 takes a tenth of the time of level 9, and the result is a fifth larger
_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"

Render = Callable[[Wanted], Iterable[bytes]]
"""Renders `/metrics` in pieces (`registry.Exposition.render`)."""

_Kind = tuple[bool, bool]
"""Of pages that are shared: whether the format is OpenMetrics; whether the page is compressed by gzip."""

Usage = Callable[[dict[str, list[str]], Callable[[], None]], dict[str, Any]]


class Pages:
    """The contents of the HTTP server. Its members are called in the threads of connections.

    :param not_ready: returns the reason why the broker is not ready; None if it is ready.
    :param usage: returns the document of `/usage` for a query; raises ValueError for a wrong query. Its second argument raises
        OSError if the client has gone; it is called from time to time. None: no such page.
    :param permit: whether a request with this Authorization header, from this address, may read the pages other than
        `OPEN_PAGES`.
    :param spool: directory of the usage spool, whose files are pages; None: no such pages.
    """

    def __init__(
        self,
        render: Render,
        not_ready: Callable[[], str | None],
        usage: Usage | None = None,
        permit: Callable[[str | None, str], bool] = lambda header, address: True,
        spool: Path | None = None,
    ) -> None:
        self.spool = spool
        self.permit = permit
        self.metrics = Shared(render)
        self.not_ready = not_ready
        self.usage = usage


class Shared:
    """Makes one rendering at a time, in the order of the requests. Requests that arrive during a rendering wait for, and share,
    the next one of their kind.

    Special pages (`Wanted.special`) are not shared, and only one of them at a time is made or has a turn. So a page that
    Prometheus scrapes never waits for more than one special page, and the kinds of pages to share are few, whatever clients
    request.
    """

    def __init__(self, render: Render) -> None:
        self._render = render
        self._special = threading.Lock()
        self._turns = threading.Condition()  # protects what follows
        self._next_turn = self._turn = 0
        self._begun = 0
        self._waiting: list[tuple[_Kind, int]] = []  # the kinds that are waited for, and how many renderings had begun
        self._made: dict[_Kind, tuple[int, list[bytes]]] = {}  # those that somebody waits for

    def get(self, wanted: Wanted, gzip: bool, look: Callable[[], None] = lambda: None) -> list[bytes]:
        """Return the pieces of a rendering that began after the call.

        :param look: called before a rendering; raises an exception if the client has gone.
        """
        if wanted.special:
            with self._special, self._one_turn():
                look()
                return _encoded(self._render(wanted), gzip)
        kind = wanted.openmetrics, gzip
        with self._turns:
            seen = self._begun
            self._waiting.append((kind, seen))
        try:
            with self._one_turn():
                number, data = self._made.get(kind, (0, []))
                if number <= seen:
                    look()
                    with self._turns:
                        self._begun += 1
                        number = self._begun
                    data = _encoded(self._render(wanted), gzip)
                    with self._turns:
                        self._made[kind] = number, data
                return data
        finally:
            with self._turns:
                self._waiting.remove((kind, seen))
                for made, (number, _) in list(self._made.items()):
                    if not any(of == made and seen < number for of, seen in self._waiting):
                        del self._made[made]

    @contextmanager
    def _one_turn(self) -> Iterator[None]:
        with self._turns:
            turn = self._next_turn
            self._next_turn += 1
            self._turns.wait_for(lambda: self._turn == turn)
        try:
            yield
        finally:
            with self._turns:
                self._turn += 1
                self._turns.notify_all()


def _encoded(pieces: Iterable[bytes], gzip: bool) -> list[bytes]:
    if not gzip:
        return list(pieces)
    squeeze = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return [piece for piece in (*map(squeeze.compress, pieces), squeeze.flush()) if piece]


def accepts_gzip(header: str | None) -> bool:
    """Whether an Accept-Encoding allows gzip."""
    for part in (header or "").split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Response(NamedTuple):
    """A response to a GET request."""

    status: HTTPStatus
    content_type: str
    pieces: Sequence[bytes]
    gzip: bool = False


_UNAUTHORIZED = Response(
    HTTPStatus.UNAUTHORIZED,
    _PLAIN,
    (b"metrics.listener requires a password or a token (Authorization: Basic or Bearer)\n",),
)
_BUSY = Response(
    HTTPStatus.SERVICE_UNAVAILABLE,
    _PLAIN,
    (b"too many requests are being answered, in all or from this address; try again in some seconds\n",),
)


class ClientGone(OSError):
    """The client has closed its connection, so its response is not made."""


_LARGE_PAGES = ("/metrics", "/usage", spool_pages.PATH)
_SHOWN = 100  # characters of an unknown path in a response


def _no_page(path: str) -> Response:
    shown = path if len(path) <= _SHOWN else path[:_SHOWN] + "..."
    return Response(HTTPStatus.NOT_FOUND, _PLAIN, (f"no page {shown}; / lists all pages\n".encode(),))


class _Handler(BaseHTTPRequestHandler):
    server: "HttpServer"
    timeout = PATIENCE_S
    server_version = "odradek"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Complete the TLS handshake, if there is one, in the connection's own thread. Raises OSError."""
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(PATIENCE_S)
            self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        """Answer a GET or HEAD request."""
        self.server.has_request(self.connection)
        url = urlsplit(self.path)
        header, address = self.headers.get("Authorization"), self.client_address[0]
        if url.path not in OPEN_PAGES and not self.server.pages.permit(header, address):
            self._send(_UNAUTHORIZED)
        elif not url.path.startswith(_LARGE_PAGES):
            self._answer(url.path, url.query)
        elif self.server.begin_page(self.connection, address):
            try:
                self._answer(url.path, url.query)
            finally:
                self.server.end_page(self.connection)
        else:
            self._send(_BUSY)

    do_HEAD = do_GET

    def _answer(self, path: str, query: str) -> None:
        try:
            response = self._respond(path, query)
        except ClientGone:
            raise
        except Exception as error:  # a connection is a border for exceptions: the server must continue
            self.server.note_failure(self.path, self.client_address[0], error)
            response = Response(
                HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, (b"internal error of the broker; see its log\n",)
            )
        self._send(response)

    def _respond(self, path: str, query: str) -> "Response":
        if path == "/metrics":
            return self._metrics(query)
        if path == "/usage" and (usage := self.server.pages.usage) is not None:
            return self._usage(usage, query)
        if f"{path}/".startswith(f"{spool_pages.PATH}/") and (spool := self.server.pages.spool) is not None:
            return self._spool(spool, path, query)
        if path == "/readyz":
            reason = self.server.pages.not_ready()
            if reason is not None:
                return Response(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, (f"not ready: {reason}\n".encode(),))
            return Response(HTTPStatus.OK, _PLAIN, (b"ready\n",))
        if path == "/healthz":
            return Response(HTTPStatus.OK, _PLAIN, (b"ok\n",))
        if path == "/":
            more = b"" if self.server.pages.usage is None else b"/usage\n"
            more += b"" if self.server.pages.spool is None else b"/spool\n"
            return Response(HTTPStatus.OK, _PLAIN, (b"/metrics\n/healthz\n/readyz\n" + more,))
        return _no_page(path)

    def _metrics(self, query: str) -> "Response":
        page = wanted(self.headers.get("Accept", ""), parse_qs(query).get("name[]", ()))
        gzip = accepts_gzip(self.headers.get("Accept-Encoding"))
        pieces = self.server.pages.metrics.get(page, gzip, self._look_for_client)
        return Response(HTTPStatus.OK, page.content_type, pieces, gzip)

    def _usage(self, usage: Usage, query: str) -> "Response":
        try:
            document = usage(parse_qs(query, keep_blank_values=True), self._look_for_client)
        except ValueError as error:
            return Response(HTTPStatus.BAD_REQUEST, _JSON, (json.dumps({"error": str(error)}).encode() + b"\n",))
        return Response(HTTPStatus.OK, _JSON, (json.dumps(document).encode() + b"\n",))

    @staticmethod
    def _spool(directory: Path, path: str, query: str) -> "Response":
        if path == spool_pages.PATH:
            return Response(HTTPStatus.OK, _JSON, (spool_pages.listing(directory),))
        name = path.removeprefix(f"{spool_pages.PATH}/")
        try:
            piece = spool_pages.piece(directory, name, parse_qs(query, keep_blank_values=True))
        except ValueError as error:
            return Response(HTTPStatus.BAD_REQUEST, _PLAIN, (f"{error}\n".encode(),))
        return _no_page(path) if piece is None else Response(HTTPStatus.OK, "application/octet-stream", (piece,))

    def _look_for_client(self) -> None:
        """Raise ClientGone if the client has closed the connection, or the server has cut it off."""
        ended = select.poll()
        ended.register(self.connection, select.POLLRDHUP)
        if ended.poll(0):
            raise ClientGone(errno.ECONNRESET, "the client closed the connection before its response was made")

    def _send(self, response: "Response") -> None:
        self.close_connection = True
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(sum(map(len, response.pieces))),
            "Connection": "close",
            "X-Content-Type-Options": "nosniff",
        }
        if response.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Basic realm="odradek", charset="UTF-8"'
        if response.gzip:
            headers["Content-Encoding"] = "gzip"
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send_pieces(response.pieces)

    def _send_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send the response. Raises TimeoutError if the client has not read it within RESPONSE_S."""
        ends = time.monotonic() + RESPONSE_S
        for piece in pieces:
            for first in range(0, len(piece), PIECE_BYTES):
                left = ends - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the client did not read its response within {RESPONSE_S:g} s")
                self.connection.settimeout(left)
                self.server.reads_page(self.connection)
                self.wfile.write(piece[first : first + PIECE_BYTES])

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests; malformed requests get an error response."""


@dataclass
class _Page:
    """A large page. :param read_at: when its client had read all that was sent; None while the page is made."""

    network: str
    read_at: float | None = None


class HttpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves in a separate thread until `stop`, or until the process ends.

    :param listening: the listening socket; the caller keeps owning it. :param tls: for each new connection; None: plain HTTP.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, listening: socket.socket, pages: Pages, most: int = MOST_CONNECTIONS, tls: HttpTls | None = None
    ) -> None:
        self._tls = tls
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.pages = pages
        self._most = most
        self._lock = threading.Lock()
        self._silent_until: dict[tuple[str, type[Exception]], float] = {}  # for each page and kind of error
        self._waiting: dict[socket.socket, tuple[float, str]] = {}  # without a request: (time of accept, address)
        self._answered: dict[socket.socket, float] = {}  # whose request has arrived: time of accept
        self._pages: dict[socket.socket, _Page] = {}  # being made or sent
        self._thread = threading.Thread(target=self.serve_forever, args=(LOOK_EVERY_S,), name="http", daemon=True)

    def start(self) -> None:
        """Start to accept connections."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections, and wait until the thread that accepts them has ended."""
        self.shutdown()
        self._thread.join()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Its thread does the TLS handshake, so that no client delays the accepting of others."""
        request, address = super().get_request()
        if self._tls is not None:
            try:
                request = self._tls.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            except OSError:
                request.close()
                raise
        return request, address

    def has_request(self, connection: socket.socket) -> None:
        """Note that a connection's request has arrived, so that no new connection replaces it."""
        with self._lock:
            place = self._waiting.pop(connection, None)
            if place is not None:
                self._answered[connection] = place[0]

    def begin_page(self, connection: socket.socket, address: str) -> bool:
        """Take a place for a large page; return whether there is one for the address.

        At a limit the new page takes the place of one that its client has not read for the longest time, if that is more than
        STALLED_S: at the limit of its address, one of that address. If all clients read, or their pages are being made, it
        takes the place of the oldest page of the address with most of them, if that has more than UNFAIR_SHARES times as many.
        """
        network, now = network_of_peer(address), time.monotonic()
        with self._lock:
            counts = Counter(page.network for page in self._pages.values())
            own_limit = counts[network] >= MOST_PAGES_OF_ADDRESS
            if own_limit or len(self._pages) >= MOST_PAGES:
                stalled = [
                    connection
                    for connection, page in self._pages.items()
                    if page.read_at is not None
                    and now - page.read_at > STALLED_S
                    and (page.network == network or not own_limit)
                ]
                if stalled:
                    self._cut(min(stalled, key=lambda connection: self._pages[connection].read_at or now))
                else:
                    crowd, most = counts.most_common(1)[0]
                    if own_limit or most <= UNFAIR_SHARES * (counts[network] + 1):
                        return False
                    self._cut(next(connection for connection, page in self._pages.items() if page.network == crowd))
            self._pages[connection] = _Page(network)
            return True

    def reads_page(self, connection: socket.socket) -> None:
        """Note that the client of a large page has read what was sent so far, or that sending begins."""
        with self._lock:
            if (page := self._pages.get(connection)) is not None:
                page.read_at = time.monotonic()

    def end_page(self, connection: socket.socket) -> None:
        """Release the place that `begin_page` has taken, if no other page has it yet."""
        with self._lock:
            self._pages.pop(connection, None)

    def note_failure(self, path: str, address: str, error: Exception) -> None:
        """Log an internal error of a page; for each page and kind of error once in `LOG_EVERY_S`."""
        kind, now = (urlsplit(path).path.split("/")[1], type(error)), time.monotonic()
        with self._lock:
            if now < self._silent_until.get(kind, 0.0):
                return
            self._silent_until[kind] = now + LOG_EVERY_S
        log.error(
            "the request GET %s of %s failed with an internal error; responding 500; further such errors within %d s are not "
            "logged",
            printable(path),
            address,
            LOG_EVERY_S,
            exc_info=error,
            extra={"client_address": address},
        )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for an accepted connection; at the limit, close the oldest connection without a request of the address
        that has most of them."""
        with self._lock:
            if len(self._waiting) >= self._most:
                counts = Counter(address for _, address in self._waiting.values())
                self._cut(
                    min(
                        self._waiting,
                        key=lambda waiting: (-counts[self._waiting[waiting][1]], self._waiting[waiting][0]),
                    )
                )
            self._waiting[request] = time.monotonic(), network_of_peer(client_address[0])
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that have been open for too long, and look at the certificate's file; called periodically."""
        if self._tls is not None:
            self._tls.refresh()
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, (since, _) in self._waiting.items() if now - since > PATIENCE_S]
            late += [connection for connection, since in self._answered.items() if now - since > LONGEST_S]
            for connection in late:
                self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        self._waiting.pop(connection, None)
        self._answered.pop(connection, None)
        self._pages.pop(connection, None)
        try:
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # its thread sees the end, and closes
        except OSError:
            pass  # the client has closed the connection already

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; called by its thread at the end."""
        with self._lock:
            self._waiting.pop(request, None)
            self._answered.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client closed its connection early, or was too slow."""
        log.debug("the HTTP connection of %s ended before its response: %s", client_address[0], sys.exc_info()[1])
