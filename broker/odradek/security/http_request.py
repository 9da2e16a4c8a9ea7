"""One HTTP request to an identity provider, bounded in time and size: for key sets and tokens.

Blocks, so it is for a thread or a command. Every wait ends at the deadline of the request, except for the resolution of the
host name, which the system's resolver bounds. Redirects are not followed, proxies are not used, nothing is decompressed.
"""

import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}
MOST_OVERHEAD = 256 << 10
"""The largest size in bytes of what surrounds a body: headers, interim responses, trailers."""
_AGENT = "odradek"


class HttpError(Exception):
    """The request failed. The message completes "cannot ...: " and has no secrets."""


class Response(NamedTuple):
    """The status code and the body of a response."""

    status: int
    body: bytes


class _Deadline:
    """The end of a request. :param limit_s: from now on. :param clock: monotonic seconds."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + limit_s

    def left(self) -> float:
        """The time left in seconds. Raises TimeoutError if there is none."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError
        return left


class _Reader(io.RawIOBase):
    """Reads from a socket until the deadline, however slowly its bytes arrive, and at most `most` bytes: `http.client` does not
    bound interim responses and trailers, and reads a chunk of the size -1 to the end of the connection."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, most: int) -> None:
        super().__init__()
        self._socket = sock
        self._deadline = deadline
        self._most = self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._socket.settimeout(self._deadline.left())
        received = self._socket.recv_into(buffer)
        self._left -= received
        if self._left < 0:
            raise HttpError(f"its response has more than {self._most} bytes with its headers")
        return received


class _Readable:
    """What `HTTPResponse` uses of a socket."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, most: int) -> None:
        self._reader = _Reader(sock, deadline, most)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


def request(
    url: str,
    *,
    limit_s: float,
    largest: int,
    context: Callable[[], ssl.SSLContext],
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Send GET, or POST with a body, to an http or https URL that `url_error` accepts. Raises HttpError.

    :param limit_s: of the whole request. :param largest: of the body of the response, in bytes.
    :param context: makes the TLS context for https; its ConfigError is not caught.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    tls = context() if parts.scheme == "https" else None
    lines = [
        f"{'GET' if body is None else 'POST'} {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"User-Agent: {_AGENT}",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "Cache-Control: no-cache",
        "Connection: close",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    data = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
    deadline = _Deadline(limit_s)
    try:
        sock = _connected(host, port, deadline)
        try:
            if tls is not None:
                sock.settimeout(deadline.left())
                sock = tls.wrap_socket(sock, server_hostname=host)
            sock.settimeout(deadline.left())
            sock.sendall(data)
            return _response(sock, deadline, largest)
        finally:
            sock.close()
    except TimeoutError:
        raise HttpError(f"{host}:{port} did not respond completely within {limit_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise HttpError(
            f"the certificate of {host}:{port} is not accepted: {str(error.verify_message).rstrip('.')}"
        ) from None
    except ssl.SSLError as error:
        raise HttpError(f"the TLS connection to {host}:{port} failed: {error.reason or 'it was closed'}") from None
    except socket.gaierror as error:
        raise HttpError(f"the host name {host} cannot be resolved: {error.strerror}") from None
    except OSError as error:
        raise HttpError(f"the connection to {host}:{port} failed: {error.strerror or 'it was closed'}") from None
    except (HTTPException, ValueError) as error:
        raise HttpError(f"{host}:{port} did not respond in HTTP ({type(error).__name__})") from None


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


def _response(sock: socket.socket, deadline: _Deadline, largest: int) -> Response:
    response = HTTPResponse(_Readable(sock, deadline, 2 * largest + MOST_OVERHEAD))  # type: ignore[arg-type]
    try:
        response.begin()
        if 300 <= response.status < 400:
            target = ascii((response.getheader("Location") or "")[:200])
            raise HttpError(f"it redirects to {target}, and redirects are not followed: set the final URL")
        body = response.read(largest + 1)
        if len(body) > largest:
            raise HttpError(f"its response has more than {largest} bytes")
        if response.length:
            raise HttpError("the connection was closed before the end of the response")
        return Response(response.status, body)
    finally:
        response.close()


def tls_context(trust: tuple[str | None, ...]) -> ssl.SSLContext:
    """A client's context. :param trust: location, type, password and certificates (PEM) of a trust store; all None: the
    certificates of this system. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    location, kind, password, certificates = trust
    if location is None and certificates is None:
        context.load_default_certs()
        return context
    from odradek.security.contexts import trust as let_trust
    from odradek.security.keystores import StoreSettings, pem, read_trust_store

    store = StoreSettings(
        location, kind, password, None, certificates, None, lambda part: f"sasl.jaas.config: ssl.truststore.{part}"
    )
    let_trust(context, "".join(pem(certificate).decode() for certificate in read_trust_store(store)))
    return context
