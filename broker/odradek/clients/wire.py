"""One connection to a broker: sends requests in the newest version that both sides know, one at a time or pipelined.

Owned by one thread of a client's process. `odradek.clients.security` supplies TLS.
"""

import math
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from odradek.clients.errors import (
    ClientError,
    HandshakeError,
    ResponseTooLargeError,
    UnknownHostError,
    UnreachableError,
    UnsupportedError,
)
from odradek.clients.login import log_in
from odradek.clients.security import PLAIN, ClientSecurity, lost, refuses_certificate
from odradek.protocol import ProtocolError
from odradek.protocol.client_connection import (
    SOFTWARE,
    ClientConnection,
    CorrelationError,
    FrameSizeError,
    UnservedError,
    VersionsRefused,
    converse,
    negotiation,
)
from odradek.protocol.schema import ApiSchema, Ask

MAX_RESPONSE_BYTES = 256 << 20
_AHEAD_BYTES = 1 << 16
"""How much a connection that streams reads at once."""
_PARTS_AT_ONCE = 1024
"""Linux takes so many buffers in one call (IOV_MAX)."""
_API_VERSIONS_VERSION = 4
"""Version 3, which older brokers receive, omits features whose lowest level is 0, such as transaction.version."""
SILENCE_S = 3.0
"""After this time without a response to the first request, the user learns that the peer may be no broker."""
_ALLOW_MORE = "use a larger --timeout"


Buffer = bytes | bytearray | memoryview
"""Bytes to send; a memoryview is one of single bytes."""


class Readable(Protocol):
    """An object that `which_readable` can wait for."""

    def fileno(self) -> int: ...


AnyReadable = TypeVar("AnyReadable", bound=Readable)


def which_readable(candidates: Iterable[AnyReadable], timeout_s: float | None) -> list[AnyReadable]:
    """Those that can be read, as soon as one can, or none after the timeout; None waits without a limit."""
    poll, by_number = select.poll(), {}  # select.select refuses descriptors above 1023, which an application may have
    for candidate in candidates:
        by_number[candidate.fileno()] = candidate
        poll.register(candidate.fileno(), select.POLLIN)
    ready = poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
    return [by_number[number] for number, _ in ready]


class Connection:
    """A connection to a broker; connects and requests the served API versions at once. Raises UnreachableError.

    :param host: name or address of the broker. :param timeout_s: for the connect, and for each response.
    :param on_silence: called with a line of text if the first request, ApiVersions, has no response after `SILENCE_S`.
    :param security: TLS and authentication.
    :ivar features: the lowest and highest supported level of each cluster feature that the broker reports.
    :ivar feature_levels: the level in force of each of these features; 0 if the feature is not in force.
    :ivar features_epoch: the number of changes of the levels that the broker knows; -1 if it reports none.
    :ivar streams: set by an owner of many or large responses that looks at `buffered` before it waits for `fileno`: several
        responses are read at once, and all are decoded in the same memory, so that `receive` invalidates the records of
        the former response.
    :ivar most_response_bytes: a larger response raises ResponseTooLargeError; at most MAX_RESPONSE_BYTES.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float,
        client_id: str = SOFTWARE,
        on_silence: Callable[[str], None] | None = None,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._hint = (
            "is it a listener with TLS (SSL)?" if security.encrypted else
            "is it a plain-text listener of a Kafka broker? For one with TLS or SASL use --command-config" if security is PLAIN
            else f"the client has security.protocol={security.protocol}; listeners with TLS need SSL or SASL_SSL"
        )  # fmt: skip
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout_s = timeout_s
        self._protocol = ClientConnection(client_id, MAX_RESPONSE_BYTES)
        self._frames = self._protocol.frames
        self.features: Mapping[str, tuple[int, int]] = {}
        self.feature_levels: Mapping[str, int] = {}
        self.features_epoch = -1
        self.streams = False
        self.most_response_bytes = MAX_RESPONSE_BYTES
        self._login_hint = ""  # for a connection that ends before the first response after ApiVersions
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except UnicodeError:  # of the codec for host names; a broker can advertise any text
            raise UnknownHostError(f"cannot connect to {self.address}: the host name is invalid") from None
        except OSError as error:
            kind = UnknownHostError if isinstance(error, socket.gaierror) else UnreachableError
            raise kind(f"cannot connect to {self.address}: {error.strerror or error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket = security.wrap(self._socket, host)
        except UnreachableError as error:
            raise type(error)(f"cannot connect to {self.address}: {error}") from None
        try:
            self._request_versions(on_silence)
            if security.credentials is not None:
                log_in(self, security.credentials)
            else:
                self._login_hint = (
                    "; if the listener requires a login, set security.protocol, sasl.mechanism and sasl.jaas.config with "
                    "--command-config"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; may be called more than once."""
        self._socket.close()

    @property
    def closed(self) -> bool:
        """Whether the connection was closed: by `close`, or because a request failed or timed out."""
        return self._socket.fileno() < 0

    @property
    def apis(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and newest version that the broker serves, by API key."""
        return self._protocol.ranges or {}

    def serves(self, api_key: int) -> tuple[int, int] | None:
        """The oldest and newest served version of an API; None if the broker does not serve the API."""
        return self.apis.get(api_key)

    def version_of(self, api: ApiSchema, oldest: int = 0, newest: int | None = None) -> int:
        """The version to use. :param oldest: and `newest`: the versions that the caller supports. Raises UnsupportedError."""
        try:
            return self._protocol.version_of(api, oldest, newest)
        except UnservedError:
            served = self.serves(api.key)
        if served is None:
            raise UnsupportedError(f"{self.address} does not serve {api.name}")
        supported = f"{oldest} to {api.max_version if newest is None else newest}"
        raise UnsupportedError(
            f"{self.address} serves {api.name} versions {served[0]} to {served[1]}; this client needs one of {supported}"
        )

    def ask(
        self,
        api: ApiSchema,
        request: Any,
        *,
        oldest: int = 0,
        newest: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request and wait for its response. Raises UnsupportedError, UnreachableError, ClientError.

        RuntimeError if a request is in flight: `receive` would return its response instead, and its owner would miss it.
        """
        if (pending := self._protocol.pending) and not self.closed:
            raise RuntimeError(
                f"{api.name} cannot wait for its response from {self.address}: {pending[0].api.name} is in flight"
            )
        self.send(api, request, version=self.version_of(api, oldest, newest))
        try:
            return self.receive(timeout_s)
        except BaseException:  # a signal, too: the response may be received in part
            self.close()
            raise

    def send(self, api: ApiSchema, request: Any, *, version: int, answered: bool = True) -> None:
        """Send a request; `receive` returns its response. Raises UnreachableError, ClientError.

        :param answered: False for a request that gets no response (Produce with acks=0).
        """
        try:
            frame = self._protocol.request(api, request, version, answered)
        except ProtocolError as error:
            raise ClientError(f"cannot encode a {api.name} request of version {version}: {error}") from None
        self._write([frame], f"a {api.name} request")

    def send_parts(self, api: ApiSchema, version: int, bodies: Iterable[Sequence[Buffer]]) -> None:
        """Send requests whose bodies are encoded already, without copying them. Raises UnreachableError.

        :param version: not a flexible one. :param bodies: each is one request, in parts that follow each other.
        """
        parts: list[Buffer] = []
        for body in bodies:
            parts += (self._protocol.head(api, version, sum(map(len, body))), *body)
        self._write(parts, f"{api.name} requests")

    def _write(self, parts: Sequence[Buffer], what: str) -> None:
        try:
            self._socket.settimeout(self._timeout_s)
            if len(parts) == 1 or isinstance(self._socket, ssl.SSLSocket):
                self._socket.sendall(b"".join(parts))
            else:
                _send_all(self._socket, parts)
        except TimeoutError:
            self.close()
            raise UnreachableError(f"cannot send {what} to {self.address}: timed out; {_ALLOW_MORE}") from None
        except OSError as error:
            self.close()
            raise UnreachableError(f"lost the connection to {self.address}: {lost(error)}") from None

    def receive(self, timeout_s: float | None = None, on_silence: Callable[[str], None] | None = None) -> Any:
        """Wait for the response to the oldest unanswered request. Raises UnreachableError.

        :param on_silence: called with a line of text if nothing has arrived after `SILENCE_S`; the wait continues.
        Fields of type `records` are memoryviews of a buffer that the caller owns.
        """
        name = self._protocol.pending[0].api.name
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        if on_silence is not None and limit_s > SILENCE_S and not self._has_data(SILENCE_S):
            on_silence(
                f"{self.address} accepted the connection and has not responded to {name} for {SILENCE_S:g} s;"
                f" waiting up to {limit_s:g} s; {self._hint}"
            )
        self._take(deadline, MAX_RESPONSE_BYTES, limit_s)
        self._login_hint = ""
        try:
            return self._protocol.response()
        except CorrelationError as error:
            self.close()
            raise UnreachableError(
                f"{self.address} sent the response to request {error.received} instead of {error.expected}"
            ) from None
        except ProtocolError as error:
            self.close()
            raise UnreachableError(f"{self.address} sent a malformed {name} response: {error}") from None

    def advance(self, most_bytes: int = MAX_RESPONSE_BYTES) -> bool:
        """Take what has arrived of the oldest response, without waiting. Returns whether it is complete.

        Raises UnreachableError, ResponseTooLargeError.

        :param most_bytes: of a larger response only the size is taken; see `held_bytes`.
        """
        return self._take(None, most_bytes, self._timeout_s)

    @property
    def held_bytes(self) -> int:
        """The size of a response that `advance` does not take, because it is too large; 0: there is none."""
        return self._frames.held_bytes

    @property
    def begun_bytes(self) -> int:
        """The size of the response that is being taken; 0: none is."""
        return self._frames.begun_bytes

    @property
    def arrived_bytes(self) -> int:
        """How much of the oldest response was taken."""
        return self._frames.arrived_bytes

    def fileno(self) -> int:
        """The descriptor, readable when a response or the end of the connection arrived; -1 after `close`."""
        return self._socket.fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes wait here already, read or decrypted: then `which_readable` does not report them."""
        if self._frames.ahead:
            return not self.closed
        return isinstance(self._socket, ssl.SSLSocket) and not self.closed and self._socket.pending() > 0

    @property
    def certificate_ends(self) -> float | None:
        """Unix time in seconds at which the broker's certificate expires; None without TLS."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return None
        ends = (self._socket.getpeercert() or {}).get("notAfter")
        return ssl.cert_time_to_seconds(str(ends)) * 1.0 if ends else None

    @property
    def unanswered(self) -> list[str]:
        """API names of requests that have no response yet and do more than validate."""
        return [request.api.name for request in self._protocol.pending if request.changes]

    def release(self, most_bytes: int) -> None:
        """Free the memory of a connection that streams if it has more than this."""
        self._frames.release(most_bytes)

    def _has_data(self, wait_s: float) -> bool:
        """Whether data, or the end of the connection, arrives within this time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(wait_s * 1000))

    def _take(self, deadline: float | None, most_bytes: int, limit_s: float) -> bool:
        """Take a response until it is complete; False: the rest must be waited for. :param limit_s: for the error."""
        name = self._protocol.pending[0].api.name
        self._frames.most_bytes, self._frames.shares_memory = self.most_response_bytes, self.streams
        try:
            while not self._frames.complete(most_bytes):
                if self._frames.held_bytes:
                    return False
                self._receive_some(deadline)
        except FrameSizeError as error:
            self.close()
            if not 4 <= error.size <= MAX_RESPONSE_BYTES:
                raise UnreachableError(
                    f"{self.address} is not a Kafka broker: it responded to {name} with {error.head!r}..."
                ) from None
            raise ResponseTooLargeError(
                f"{self.address} responded to {name} with {error.size} bytes; this client takes at most "
                f"{self.most_response_bytes}"
            ) from None
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except TimeoutError:
            self.close()
            raise UnreachableError(
                f"{self.address} did not respond to {name} within {limit_s:g} s; {_ALLOW_MORE}"
            ) from None
        except OSError as error:
            self.close()
            text = f"lost the connection to {self.address}: {lost(error)}"
            if refuses_certificate(error):
                raise HandshakeError(text) from None
            raise UnreachableError(f"{text}{self._login_hint}") from None
        return True

    def _receive_some(self, deadline: float | None) -> None:
        """Receive bytes of a response. :param deadline: None: do not wait."""
        wait = 0.0 if deadline is None else deadline - time.monotonic()
        if deadline is not None and wait <= 0:
            raise TimeoutError
        self._socket.settimeout(wait)
        if self.streams and len(self._frames.room) < _AHEAD_BYTES:
            data = self._socket.recv(_AHEAD_BYTES)
            received = len(data)
            self._frames.feed(data)
        else:
            received = self._socket.recv_into(self._frames.room)
            self._frames.filled(received)
        if not received:
            raise ConnectionResetError(0, "the broker closed it")

    def _request_versions(self, on_silence: Callable[[str], None] | None) -> None:
        """Ask which versions the broker serves. Raises UnreachableError."""

        asked = 0

        def answer(ask: Ask) -> Any:
            nonlocal asked
            asked += 1
            self.send(ask.api, ask.request, version=self.version_of(ask.api, newest=ask.newest))
            return self.receive(on_silence=on_silence if asked == 1 else None)

        try:
            response = converse(negotiation(_API_VERSIONS_VERSION), answer)
        except VersionsRefused as error:
            raise UnreachableError(f"{self.address} refused ApiVersions with error code {error.code}") from None
        except HandshakeError:
            raise
        except UnreachableError as error:
            if asked > 1:  # the first response was that of a Kafka broker
                raise
            raise UnreachableError(f"connected, but {error}; {self._hint}") from None
        self.features = {
            feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features
        }
        in_force = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.feature_levels = dict.fromkeys(self.features, 0) | in_force
        self.features_epoch = response.finalized_features_epoch


def _send_all(connected: socket.socket, parts: Sequence[Buffer]) -> None:
    """Send all parts, in as few calls as the system allows."""
    for first in range(0, len(parts), _PARTS_AT_ONCE):
        left = parts[first : first + _PARTS_AT_ONCE]
        while left:
            sent = connected.sendmsg(left)
            done = 0
            while done < len(left) and sent >= len(left[done]):
                sent -= len(left[done])
                done += 1
            left = left[done:]
            if sent:
                left = [memoryview(left[0])[sent:], *left[1:]]
