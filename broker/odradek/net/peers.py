"""A connection to another broker, for requests of this broker: to the controller, or from the controller to the other brokers.

Runs on the event loop of the coordinator, which protects it. Requests are sent in the order of `Peer.send`, one at a time:
the next one is sent after the response to the one before. With `PeerSecurity`, a connection is encrypted and logged in before
the first request; before the session of its login ends, it is replaced between two requests.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.backoff import RecentFailures, SetupTimeout
from odradek.config.broker_config import BrokerConfig
from odradek.protocol import ProtocolError
from odradek.protocol.client_connection import (
    ClientConnection,
    Frame,
    UnservedError,
    VersionsRefused,
    negotiation,
    renewal_s,
)
from odradek.protocol.errors import ErrorCode, peer_error_text
from odradek.protocol.schema import ApiSchema, Ask
from odradek.security.opening import MAX_OPENING_BYTES, RETRY_MS, VERSIONS_VERSION, Opening, PeerRefused, opening
from odradek.security.sasl.client import LoginError, NoTokenError

if TYPE_CHECKING:
    import ssl

    from odradek.security.peers import PeerSecurity

log = logging.getLogger("odradek.replication")

RETRY_S = 0.1
"""The time in seconds between two attempts to connect, and before a request is repeated."""
DENIED_RETRY_S = 1.0
"""The time in seconds before a request is repeated that the other broker denied."""
MAX_RESPONSE_BYTES = 64 << 20
FIRST_RETRY_MS, LONGEST_RETRY_MS = 20, 4 * RETRY_MS
SETUP_TIMEOUT_MS = 10_000, 30_000

Address = tuple[str, int]
Result = TypeVar("Result")


def setup_ms(config: BrokerConfig) -> tuple[int, int]:
    """See `Peer`."""
    return config.integer("socket.connection.setup.timeout.ms"), config.integer(
        "socket.connection.setup.timeout.max.ms"
    )


class PeerError(Exception):
    """A request to another broker got no response. It is unknown whether the broker executed it."""


class PeerClosed(PeerError):
    """This broker closed the connection, because it does not need it any more."""


class UnsendableRequest(PeerError):
    """The request could not be made or encoded, because of an error of this broker. It was not sent."""


class UnsupportedRequest(PeerError):
    """The other broker serves no version of the request that this broker can send. The request was not sent."""


Callback = Callable[[Any], None]
"""Called once, on the loop, with the decoded response or a PeerError."""
Build = Callable[[int], Any]
"""Makes the message of a request in a version."""


@dataclass
class _Request:
    """:ivar version: None: the newest version that both brokers know. :ivar repeat: see `Peer.send`."""

    api: ApiSchema
    message: Any | Build
    then: Callback
    version: int | None
    repeat: bool


class Peer:
    """Sends requests to one broker, or to the broker that has a role, such as the controller.

    It connects when there is a request to send. It asks for the other broker's API versions only if a request needs them,
    because Kafka's controller and its brokers use fixed versions for most of these requests.

    :param address: returns the present address of the broker; None if it is not known now. It is called before each
        request: if the address has changed, the connection to the former address is closed.
    :param timeout_s: for each response. After it, the connection is closed.
    :param name: of the broker, for log messages.
    :param security: None: the inter-broker listener is PLAINTEXT. :param setup_ms: the keys
        `socket.connection.setup.timeout.ms` and `.max.ms`: for connecting, the handshake and the login together.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        address: Callable[[], Address | None],
        client_id: str,
        timeout_s: float,
        security: "PeerSecurity | None" = None,
        setup_ms: tuple[int, int] = SETUP_TIMEOUT_MS,
    ) -> None:
        self.name = name
        self._security = security
        self._setup = SetupTimeout(*setup_ms)
        self._refusals = RecentFailures(FIRST_RETRY_MS, LONGEST_RETRY_MS)
        self._phase = ""  # of a connection that is being opened and is connected
        self._used = False  # whether a request was sent on the connection
        self._renew_at: float | None = None  # in the time of the loop: when the session of the login ends soon
        self._loop = loop
        self._address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._queue: deque[_Request] = deque()
        self._current: _Request | None = None
        self._stream: _Stream | None = None
        self._connected_to: Address | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._negotiation: Generator[Ask, Any, Any] | None = None  # while the other broker is asked for its versions
        self._unreachable = False  # whether a failure to connect was logged since the last success
        self._unsendable = ""  # the error of the last request that could not be made
        self._denied = False  # whether the other broker denied the last request that is repeated
        self._closed = False

    def send(
        self, api: ApiSchema, message: Any | Build, then: Callback, *, version: int | None = None, repeat: bool = False
    ) -> None:
        """Queue a request.

        :param message: the request, or a function that makes it when it is sent, and again when it is repeated.
        :param then: see `Callback`; not called inside this call.
        :param version: of the request; None: the newest version that both sides know, by ApiVersions.
        :param repeat: send the request again after a lost connection, a timeout, or CLUSTER_AUTHORIZATION_FAILED, until there
            is another response or `close` is called. The requests behind it wait. False: `then` receives a PeerError, or the
            response.
        """
        request = _Request(api, message, then, version, repeat)
        if self._closed:
            self._loop.call_soon(then, PeerClosed(f"the connection to {self.name} is closed"))
            return
        self._queue.append(request)
        self._proceed()

    @property
    def waiting(self) -> int:
        """The number of requests without a response."""
        return len(self._queue) + (self._current is not None)

    def give_up(self, reason: str) -> None:
        """Close the connection if a request is under way, whose callback then receives a PeerError. A broker that has not read
        the request yet sees that its response is not wanted any more."""
        if self._current is not None and self._stream is not None:
            self._stream.abort(reason)

    def close(self) -> None:
        """Close the connection. Every request without a response fails with PeerClosed."""
        if self._closed:
            return
        self._closed = True
        requests = [self._current] if self._current is not None else []
        requests += self._queue
        self._current = None
        self._queue.clear()
        self._drop()
        if self._connecting is not None:
            self._connecting.cancel()
        for request in requests:
            self._loop.call_soon(request.then, PeerClosed(f"the connection to {self.name} was closed"))

    # -- progress ---------------------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Send the next request, or connect, if nothing is under way."""
        if self._closed or self._current is not None or self._negotiation or not self._queue or self._timer:
            return
        if self._connecting is not None:
            return
        address = self._address()
        if self._stream is not None and (self._connected_to != address or self._expires):
            self._drop()
        if self._stream is None:
            if address is None:
                self._fail_waiting(PeerError(f"the address of {self.name} is not known"))
                self._retry()
            else:
                self._connecting = self._loop.create_task(self._connect(address))
            return
        request = self._queue[0]
        if request.version is None and self._stream.protocol.ranges is None:
            self._negotiation = negotiation(VERSIONS_VERSION)
            self._write(self._stream, self._stream.protocol.ask(next(self._negotiation)))
            return
        self._queue.popleft()
        self._used = True
        self._write_request(self._stream, request)

    def _fail_waiting(self, error: PeerError) -> None:
        """Fail the waiting requests that are not to be repeated."""
        failed = [request for request in self._queue if not request.repeat]
        self._queue = deque(request for request in self._queue if request.repeat)
        for request in failed:
            self._loop.call_soon(request.then, error)

    @property
    def _expires(self) -> bool:
        """Whether the session of the login ends soon. A connection serves at least one request, however short the session."""
        return self._renew_at is not None and self._used and self._loop.time() >= self._renew_at

    def _retry(self, after_s: float = RETRY_S) -> None:
        """Continue after a time, if a request waits."""
        if self._timer is None and self._queue and not self._closed:
            self._timer = self._loop.call_later(after_s, self._retried)

    def _retried(self) -> None:
        self._timer = None
        self._proceed()

    async def _connect(self, address: Address) -> None:
        host, port = address
        began = self._loop.time()
        limit_s = self._setup.seconds
        self._phase = ""
        try:
            async with asyncio.timeout(limit_s):
                stream, lifetime_ms = await self._open(address)
        except NoTokenError as error:  # it is logged and counted where the token is to be got
            self._refused(address, str(error), reported=True)
            return
        except (LoginError, PeerRefused, UnservedError) as error:
            self._refused(address, str(error))
            return
        except ProtocolError as error:
            self._refused(address, f"it sent a malformed response in {self._phase}: {error}")
            return
        except TimeoutError:
            self._setup.timed_out()
            if self._phase:
                self._refused(address, f"no end of {self._phase} within {limit_s:g} s")
            else:
                self._not_connected(address, f"no connection within {limit_s:g} s")
            return
        except (OSError, UnicodeError) as error:  # UnicodeError: the host name is malformed
            reason = self._security.reason_of(error, host) if self._security and isinstance(error, OSError) else None
            if reason is not None:
                self._refused(address, reason)
            else:
                text = str(error) or "the other broker closed the connection"
                self._not_connected(address, f"{text} in {self._phase}" if self._phase else text)
            return
        except Exception as error:  # RuntimeError, if the system has no thread left: the next attempt may succeed
            log.exception("cannot connect to %s at %s: internal error", self.name, _text(address))
            self._not_connected(address, f"internal error: {type(error).__name__}")
            return
        self._connecting = None
        self._setup.succeeded()
        if self._security is not None:
            self._security.succeeded(address)
        if self._unreachable:
            log.info("connected to %s at %s:%d", self.name, host, port)
            self._unreachable = False
        self._stream, self._connected_to, self._renew_at = stream, address, renewal_s(began, lifetime_ms)
        self._used = False
        stream.serve(self)
        self._proceed()

    async def _open(self, address: Address) -> "tuple[_Stream, int]":
        """Connect, and log in if the listener requires it. Returns also the lifetime of the session in ms; 0: unlimited.

        Raises OSError, UnicodeError, LoginError, PeerRefused, UnservedError, ProtocolError.
        """
        host, port = address
        if self._security is None:
            _, stream = await self._loop.create_connection(lambda: _Stream(self.name, self._client_id), host, port)
            return stream, 0
        context = self._security.context()
        credentials = await self._security.credentials_in_loop(self._setup.seconds / 2)
        _, stream = await self._loop.create_connection(lambda: _Stream(self.name, self._client_id), host, port)
        try:
            self._phase = "the TLS handshake"
            if context is not None:
                await stream.encrypt(context, host, 2 * self._setup.seconds)
            self._phase = "the first response" if credentials is None else "the login"
            steps = opening(credentials)
            step: bytes | int = stream.protocol.ask(next(steps))
            while isinstance(step, bytes):
                stream.write(step)
                response = await stream.next_frame()
                # In a thread, because a login may compute for long: the other broker chooses how long.
                step = await self._loop.run_in_executor(None, _step, stream.protocol, steps, response)
            return stream, step
        except BaseException:
            stream.abort("the connection was not opened")
            raise

    def _refused(self, address: Address, reason: str, reported: bool = False) -> None:
        """The handshake or the login failed. :param reported: it is logged and counted already."""
        self._connecting = None
        if self._security is not None and not reported:
            self._security.failed(self.name, address, reason)
        self._unreachable = True
        self._fail_waiting(PeerError(f"cannot authenticate a connection to {self.name} at {_text(address)}: {reason}"))
        self._retry(max(RETRY_MS, self._refusals.next(int(self._loop.time() * 1000))) / 1000)

    def _not_connected(self, address: Address, reason: str) -> None:
        self._connecting = None
        if not self._unreachable:
            log.warning("cannot connect to %s at %s: %s; retrying", self.name, _text(address), reason)
            self._unreachable = True
        self._fail_waiting(PeerError(f"cannot connect to {self.name} at {_text(address)}: {reason}"))
        self._retry()

    # -- requests ---------------------------------------------------------------------------------------------------

    def _write_request(self, stream: "_Stream", request: _Request) -> None:
        name = request.api.name
        try:
            version = stream.protocol.version_of(request.api) if request.version is None else request.version
            message = request.message(version) if callable(request.message) else request.message
            frame = stream.protocol.request(request.api, message, version)
        except UnservedError:
            self._unsent(request, UnsupportedRequest(f"{self.name} serves no version of {name} that this broker knows"))
        except Exception as error:  # it must not stop the requests behind it
            self._report_unsendable(request, error)
            self._unsent(request, UnsendableRequest(f"{name} for {self.name}: {error!r}"))
        else:
            self._current = request
            self._write(stream, frame)

    def _unsent(self, request: _Request, error: PeerError) -> None:
        self._loop.call_soon(request.then, error)
        self._loop.call_soon(self._proceed)

    def _report_unsendable(self, request: _Request, error: Exception) -> None:
        """Log an error of this broker, with its place only if it is another one than the last."""
        text = f"{request.api.name}: {error!r}"
        log.error(
            "cannot make a request for %s: %s; continuing with the next one",
            self.name, text, exc_info=error if text != self._unsendable else None,
        )  # fmt: skip
        self._unsendable = text

    def _write(self, stream: "_Stream", frame: bytes) -> None:
        stream.write(frame)
        self._begin_deadline()

    def _begin_deadline(self) -> None:
        self._timer = self._loop.call_later(self._timeout_s, self._timed_out)

    def _clear_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _timed_out(self) -> None:
        self._timer = None
        if self._stream is not None:
            self._stream.abort(f"no response within {self._timeout_s:g} s")

    # -- responses --------------------------------------------------------------------------------------------------

    def received(self, stream: "_Stream", frame: Frame) -> None:
        """A response arrived. Raises ProtocolError."""
        if stream is not self._stream:
            return
        response = stream.protocol.decode(frame)
        if self._negotiation is not None:
            step = _advanced(stream.protocol, self._negotiation, response)
            if isinstance(step, bytes):
                stream.write(step)  # before the deadline of the first request
                return
            self._clear_deadline()
            self._negotiation = None
        else:
            request, self._current = self._current, None
            assert request is not None
            self._clear_deadline()
            if request.repeat and self._is_denied(request, response):
                self._queue.appendleft(request)
                self._retry(DENIED_RETRY_S)
                return
            request.then(response)
        self._proceed()

    def _is_denied(self, request: _Request, response: Any) -> bool:
        """Whether the other broker executed nothing, because this broker has no right yet: an administrator can grant it."""
        denied = getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if denied and not self._denied:
            log.warning(
                "%s denies %s requests: %s; repeating the request every %g s",
                self.name, request.api.name, peer_error_text(response.error_code), DENIED_RETRY_S,
            )  # fmt: skip
        elif self._denied and not denied:
            log.info("%s does not deny requests any more", self.name)
        self._denied = denied
        return denied

    def lost(self, stream: "_Stream", reason: str) -> None:
        """The connection ended."""
        if stream is not self._stream:
            return
        self._clear_deadline()
        self._stream = None
        if self._negotiation is not None:
            self._negotiation = None
            self._fail_waiting(PeerError(f"{self.name} did not respond to ApiVersions: {reason}"))
        request, self._current = self._current, None
        if request is None:
            self._retry()
            return
        log.warning(
            "lost the connection to %s while a %s request was under way: %s", self.name, request.api.name, reason
        )
        if request.repeat:
            self._queue.appendleft(request)
        else:
            request.then(PeerError(f"lost the connection to {self.name}: {reason}"))
        self._retry()

    def _drop(self) -> None:
        """Close the connection; its loss is not reported."""
        self._clear_deadline()
        stream, self._stream = self._stream, None
        self._negotiation = None
        if stream is not None:
            stream.abort("closed")


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _step(protocol: ClientConnection, steps: Opening, response: Frame) -> bytes | int:
    """The next request of the opening, or its result. Executed in a thread."""
    return _advanced(protocol, steps, protocol.decode(response))


def _advanced(protocol: ClientConnection, steps: Generator[Ask, Any, Result], response: Any) -> bytes | Result:
    """The frame of the next request of a conversation, or its result."""
    try:
        return protocol.ask(steps.send(response))
    except StopIteration as end:
        result: Result = end.value
        return result


class _Stream(asyncio.Protocol):
    """The bytes of one connection. While the connection is opened, `next_frame` returns the responses; then they are passed to
    the peer.

    :param name: of the other broker, for log messages.
    """

    def __init__(self, name: str, client_id: str) -> None:
        self.protocol = ClientConnection(client_id, MAX_OPENING_BYTES)
        self._name = name
        self._peer: Peer | None = None
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._ended: Exception | None = None
        self._frame: asyncio.Future[Frame] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it

    def serve(self, peer: Peer) -> None:
        """The connection is open: pass frames, and its end, to the peer."""
        self._peer = peer
        self.protocol.frames.most_bytes = MAX_RESPONSE_BYTES
        if self._ended is not None:
            asyncio.get_running_loop().call_soon(peer.lost, self, self._why_ended())

    async def encrypt(self, context: "ssl.SSLContext", host: str, limit_s: float) -> None:
        """Do the TLS handshake, before the first request. Raises OSError, ProtocolError."""
        assert self._transport is not None
        encrypted = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=host, ssl_handshake_timeout=limit_s
        )
        if encrypted is None:
            raise ConnectionError("the other broker closed the connection")
        if self.protocol.frames.begun:  # perhaps of somebody on the way: they would begin the first encrypted response
            raise ProtocolError("bytes that were sent before it", message="TLS handshake")
        self._transport = encrypted

    async def next_frame(self) -> Frame:
        """The next response, while the connection is opened. Raises OSError, ProtocolError."""
        if self._ended is not None:
            raise self._ended
        self._frame = asyncio.get_running_loop().create_future()
        try:
            return await self._frame
        finally:
            self._frame = None

    def write(self, data: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._transport.write(data)

    def abort(self, reason: str) -> None:
        """Close the connection now. :param reason: for the log."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass on each complete frame. A malformed one closes the connection."""
        try:
            self.protocol.frames.feed(data)
            while (frame := self.protocol.frames.take()) is not None:
                self._take(frame)
        except ProtocolError as error:
            what = "an error" if isinstance(error, VersionsRefused) else "a malformed response"
            if self._peer is None:
                self._end(error)
            else:
                log.error("%s sent %s: %s; closing the connection", self._name, what, error)
            self.abort(f"{what.partition(' ')[2]}: {error}")

    def _take(self, frame: Frame) -> None:
        if self._peer is not None:
            self._peer.received(self, frame)
        elif self._frame is not None and not self._frame.done():
            self._frame.set_result(frame)
        else:
            raise ProtocolError("a response arrived without a request")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the other broker closed the connection"))
        if self._peer is not None:
            self._peer.lost(self, self._why_ended())

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        if self._frame is not None and not self._frame.done():
            self._frame.set_exception(error)

    def _why_ended(self) -> str:
        return self._reason or str(self._ended) or "the other broker closed it"
