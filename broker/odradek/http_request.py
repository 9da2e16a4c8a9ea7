"""One HTTP request, bounded in time and size, for all parts of the program that read something from a server over HTTP.

Blocks, so it is for a thread or a command. The whole request ends at its deadline, however slowly the bytes arrive, except
for the resolution of the host name, which the system's resolver bounds. Neither the body nor what surrounds it can be longer
than its limit. Redirects are not followed, because a header with a login would go to another address. No proxy is used.

Own code around `http.client`, because the timeouts of `http.client`, urllib, urllib3 and httpx are for a single wait for
bytes, and none of them bounds all parts of a response.
"""

import io
import socket
import ssl
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
MOST_OVERHEAD = 256 << 10
"""The largest size in bytes of what surrounds a body: headers, interim responses, trailers."""
LARGEST_FAILURE = 64 << 10
"""The largest body in bytes of a response with a status of 400 or more, if the limit of the request is smaller."""
_GZIP = 31
"""The format of `zlib` for gzip with any window."""


class HttpError(Exception):
    """The request failed. The message has one line and no secrets.

    :ivar predicate: the message without the address of the server, which it begins with: "did not respond within 30 s".
    `__cause__` is the exception of the socket, TLS or `http.client`, if there is one.
    """

    def __init__(self, predicate: str, server: str = "") -> None:
        super().__init__(f"{server} {predicate}" if server else predicate)
        self.predicate = predicate


class UnreachableError(HttpError):
    """There is no connection to the server, or it ended before a response."""


class SlowError(HttpError):
    """The deadline passed before the end of the response."""


class TooLargeError(HttpError):
    """The response has more bytes than allowed."""


class MalformedError(HttpError):
    """The response is not HTTP, or ends too early."""


class RedirectError(HttpError):
    """The response is a redirection. :ivar status: such as 302. :ivar reason: such as "Found"; a text of the server."""

    def __init__(self, predicate: str, server: str, status: int, reason: str) -> None:
        super().__init__(predicate, server)
        self.status = status
        self.reason = reason


class Response(NamedTuple):
    """A response. :param body: decompressed. :param reason: the text after the status, such as "Not Found"."""

    status: int
    body: bytes
    reason: str = ""


class _Deadline:
    """The end of a request. :param limit_s: from now on."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s

    def left(self) -> float:
        """The time left in seconds. Raises TimeoutError if there is none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Reader(io.RawIOBase):
    """Reads from a socket until the deadline, however slowly its bytes arrive, and at most `most` bytes: `http.client` does not
    bound interim responses and trailers, and reads a chunk of the size -1 to the end of the connection."""

    def __init__(self, sock: socket.socket, server: str, deadline: _Deadline, most: int) -> None:
        super().__init__()
        self._socket = sock
        self._server = server
        self._deadline = deadline
        self._most = self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._socket.settimeout(self._deadline.left())
        received = self._socket.recv_into(buffer)
        self._left -= received
        if self._left < 0:
            raise TooLargeError(f"sent more than {self._most} bytes with the headers of its response", self._server)
        return received

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `HTTPResponse` uses of a socket."""
        return io.BufferedReader(self)


def basic_login(login: str) -> dict[str, str]:
    """The header for USER:PASSWORD."""
    return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def request(
    url: str,
    *,
    limit_s: float,
    largest: int,
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    compressed: bool = False,
    complete: bool = False,
) -> Response:
    """Send GET, or POST with a body, to an http or https URL without a login, and return the response, also that of a failure.

    The body of a response with a status of 400 or more is empty if it is too large, too slow or damaged. Raises HttpError.

    :param limit_s: of the whole request. :param largest: of the body of the response, in bytes.
    :param context: makes the TLS context for https; its exceptions are not caught.
    :param compressed: let the server compress the body with gzip; `largest` is for the body before and after that.
    :param complete: refuse a response whose end cannot be known, because it has neither a length nor chunks.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    except (KeyError, ValueError):
        raise HttpError("must be an http or https URL", ascii(url[:200])) from None
    if "@" in parts.netloc:
        raise HttpError("must be a URL without a login", f"{parts.scheme}://{host}")
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = _head(
        parts.netloc, f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", body, headers, compressed
    )
    if head is None:
        raise HttpError("must be a URL without spaces and control characters", ascii(url[:200]))
    tls = context() if parts.scheme == "https" else None
    deadline = _Deadline(limit_s)
    try:
        sock = _connected(host, port, deadline)
        try:
            if tls is not None:
                sock.settimeout(deadline.left())
                sock = tls.wrap_socket(sock, server_hostname=host)
            sock.settimeout(deadline.left())
            sock.sendall(head + (body or b""))
            reader = _Reader(sock, server, deadline, 2 * largest + MOST_OVERHEAD)
            return _response(reader, server, largest, compressed, complete)
        finally:
            sock.close()
    except TimeoutError as error:
        raise SlowError(f"did not respond within {limit_s:g} s", server) from error
    except OSError as error:
        raise UnreachableError(f"cannot be reached: {_reason_of(error)}", server) from error
    except (HTTPException, ValueError, zlib.error) as error:
        raise MalformedError(f"did not respond in HTTP ({type(error).__name__})", server) from error


def _head(
    host: str, target: str, body: bytes | None, headers: Mapping[str, str] | None, compressed: bool
) -> bytes | None:
    """The first line and the headers of a request; None if they contain a character that could end or split a line."""
    fields = {
        "Host": host,
        "User-Agent": "odradek",
        "Accept": "application/json",
        "Accept-Encoding": "gzip" if compressed else "identity",
        "Cache-Control": "no-cache",
        "Connection": "close",
        **(headers or {}),
    }
    if body is not None:
        fields["Content-Length"] = str(len(body))
    lines = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields)]
    if " " in target or not all(line.isprintable() for line in lines):
        return None
    return "\r\n".join([*lines, "", ""]).encode()


def _connected(host: str, port: int, deadline: _Deadline) -> socket.socket:
    """A socket that is connected to one of the addresses of the host. Raises OSError, TimeoutError."""
    failure = OSError(0, "the host has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left())
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _reason_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {str(error.verify_message).rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed: {(error.reason or 'the connection was closed').lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return f"its host name cannot be resolved: {error.strerror}"
    return error.strerror or "it closed the connection"


def _response(reader: _Reader, server: str, largest: int, compressed: bool, complete: bool) -> Response:
    response = HTTPResponse(reader)  # type: ignore[arg-type]
    try:
        response.begin()
        if 300 <= response.status < 400:
            target = ascii((response.getheader("Location") or "")[:200])
            predicate = f"redirects to {target}, and redirects are not followed: set the final URL"
            raise RedirectError(predicate, server, response.status, response.reason)
        if response.status < 400:
            if complete and response.length is None and not response.chunked:
                raise MalformedError("does not say how long its response is", server)
            return Response(response.status, _body(response, server, largest, compressed), response.reason)
        try:
            body = _body(response, server, max(largest, LARGEST_FAILURE), compressed)
        except (HttpError, HTTPException, OSError, ValueError, zlib.error):
            body = b""
        return Response(response.status, body, response.reason)
    finally:
        response.close()


def _body(response: HTTPResponse, server: str, largest: int, compressed: bool) -> bytes:
    too_large = f"sent more than {largest} bytes"
    body = response.read(largest + 1)
    if len(body) > largest:
        raise TooLargeError(too_large, server)
    if response.length:
        raise MalformedError("closed the connection before the end of its response", server)
    if not compressed or response.getheader("Content-Encoding", "").lower() != "gzip":
        return body
    unpacking = zlib.decompressobj(_GZIP)
    body = unpacking.decompress(body, largest + 1)
    if len(body) > largest:
        raise TooLargeError(too_large, server)
    if not unpacking.eof:
        raise MalformedError("sent an incomplete response", server)
    if unpacking.unused_data:
        raise MalformedError("sent data behind its compressed response", server)
    return body
