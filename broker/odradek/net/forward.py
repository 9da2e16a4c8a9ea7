"""Forwards requests to the coordinator: the worker's side of the Unix stream between them.

A worker owns one `ForwardClient` and uses it only on its event loop, which protects it. The supervisor keeps the listening
socket, so a worker can connect while no coordinator runs; the requests that it sends then wait in the socket for the
successor. A request is sent at most once. A request that was not sent yet waits; the wait is limited in time, in the number
of requests and in bytes. If the stream breaks, it is unknown whether the requests already sent were executed; their callers
get ConnectionLost.

The code that runs for every request is native (`_ext/net/forwarding.pyx`): the queue, the table of unanswered requests, the
frames, and the copying of answers into the responses of clients' connections. This module contains the rare parts: the stream,
the timer, and the errors.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, cast

from odradek._ext.net.forwarding import ForwardTable
from odradek.backoff import Backoff
from odradek.net.forward_frames import ForwardContext, ForwardReply, Kind, Status, encode_context

log = logging.getLogger("odradek.forwarding")

DEFAULT_TIMEOUT_S = 30.0
MAX_QUEUED = 10_000
MAX_QUEUED_BYTES = 64 << 20
RETRIES_S = Backoff(first=0.01, longest=1.0)
EXPIRY_STEP_S = 0.01
ANONYMOUS = "User:ANONYMOUS"


class ForwardError(Exception):
    """A forwarded request got no answer."""


class ConnectionLost(ForwardError):
    """The stream broke after the request was sent. It is unknown whether the request was executed; it is never sent again."""


class DeadlinePassed(ForwardError):
    """No answer arrived before the deadline. If ``sent`` is true, the request may have been executed or may still be
    executed."""

    def __init__(self, sent: bool) -> None:
        super().__init__("the coordinator did not answer in time" if sent else "the coordinator could not be reached")
        self.sent = sent


class QueueFull(ForwardError):
    """The limit of queued requests or of their bytes is reached; the request was not queued."""


Callback = Callable[[ForwardReply | ForwardError], None]


class ForwardClient(ForwardTable, asyncio.Protocol):
    """A process's connection to the coordinator.

    It inherits from the native `ForwardTable`, because the event loop must call the native `data_received` without a Python
    method in between, and because native code adds requests to the table. `ForwardTable` calls these hooks, all in the loop:

    - `connect`: a request waits, and no stream is open;
    - `expire_at`: the first deadline became earlier;
    - `describe`: the context of a connection is needed for the first time, or changed;
    - `replied`: an answer arrived for a request of `send`;
    - `close_ended`: the coordinator reports that requests waited long;
    - `protocol_error`: the coordinator sent a malformed frame.

    `RequestHandler` forwards clients' requests natively. If the coordinator does not answer a request, the
    client's connection is closed.

    :param loop: the event loop; all methods and callbacks are called on it.
    :param path: the path of the coordinator's Unix socket (it begins with NUL for an abstract socket).
    :param settled: called once after all callbacks of one read, expiry or loss of the stream.
    :param close_ended: called with connections whose requests waited long for the coordinator; closes those whose clients have
        disconnected.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        settled: Callable[[], None] = lambda: None,
        close_ended: Callable[[list[Any]], None] = lambda connections: None,
        *,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        super().__init__(settled, max_queued, max_queued_bytes)
        self._loop = loop
        self._path = path
        self._settled = settled
        self._close_ended = close_ended
        self._transport: asyncio.Transport | None = None
        self._retries = 0
        self._retry: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._expiry: asyncio.TimerHandle | None = None

    def send(
        self,
        payload: bytes,
        context: ForwardContext,
        deadline: float,
        callback: Callback,
        kind: Kind = Kind.KAFKA,
    ) -> None:
        """Forward a request.

        :param payload: the request with its header; kept until it is sent.
        :param deadline: in the loop's time; use `loop.time() + DEFAULT_TIMEOUT_S` if the request contains no timeout.
        :param callback: called once on the loop, never inside this call, with a ForwardReply, ConnectionLost or DeadlinePassed.
            Not called after `cancel` or `close`.
        :raises QueueFull: a limit of the queue is reached; the callback is not called then.
        """
        if not self.put(kind, encode_context(context), context.connection_id, deadline, payload, callback):
            raise QueueFull(f"{self.queued} requests of {self.queued_bytes} bytes wait for the coordinator")

    def describe(self, connection: Any, client_id: bytes | None) -> bytes:
        """Hook: the encoded context of a connection."""
        return encode_context(context_of(connection, client_id))

    def replied(self, callback: Callback, status: int, metadata_version: int, payload: bytes) -> None:
        """Hook: pass an answer to the callback of `send`."""
        callback(ForwardReply(Status(status), metadata_version, payload))

    def connect(self) -> None:
        """Connect now, unless the stream is open or is being opened. Without this call, the first request connects."""
        if self._transport is None and self._connecting is None and self._retry is None and not self._closed:
            self._connecting = self._loop.create_task(self._connect())

    def close(self) -> None:
        """Close the stream and forget all requests; no callback is called afterwards."""
        self._closed = True
        self.forget_all()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        try:
            await self._loop.create_unix_connection(lambda: self, self._path)
        except OSError as error:
            wait_s = self._connect_later()
            log.warning("cannot connect to the coordinator: %s; retrying in %d ms", error, wait_s * 1000)
        finally:
            self._connecting = None

    def _connect_later(self) -> float:
        self._retries += 1
        wait_s = RETRIES_S.after(self._retries)
        self._retry = self._loop.call_later(wait_s, self._connect_again)
        return wait_s

    def _connect_again(self) -> None:
        self._retry = None
        self.connect()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the waiting requests."""
        self._transport = cast(asyncio.Transport, transport)
        self.opened(self._transport.write)

    def protocol_error(self, error: Exception) -> None:
        """Hook: close the stream, because the position of the next frame is unknown."""
        log.error("the coordinator sent a malformed frame: %s; closing the stream, its unanswered requests fail", error)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the requests that were sent; requests that were not sent wait for the next stream."""
        self._transport = None
        if self.has_answered:
            self._retries = 0
        sent = self.lost()
        if self._closed:
            return
        reason = error or "the coordinator closed it"
        if sent:
            log.warning("lost the connection to the coordinator: %s; %d unanswered requests fail", reason, len(sent))
        else:  # this happens in every ordered stop, too
            log.info("lost the connection to the coordinator: %s; no request was waiting for a response", reason)
        for request in sent:
            self.fail(request, ConnectionLost("the coordinator ended before it answered"))
        self._settled()
        if self._transport is None and self._retry is None and self._connecting is None:
            self._connect_later()

    def close_ended(self, connections: list[Any]) -> None:
        """Hook: close those of `connections` whose clients have disconnected."""
        self._close_ended(connections)

    def expire_at(self, when: float) -> None:
        """Hook: set the timer of all requests to the first deadline; when it fires, the overdue requests fail."""
        if self._expiry is not None:
            self._expiry.cancel()
        self.expires_at = when
        self._expiry = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self.expires_at = inf
        now = self._loop.time()
        overdue = self.due(now)
        if overdue:
            log.warning("%d requests fail: the coordinator has not answered them in time", len(overdue))
        for request in overdue:
            self.fail(request, DeadlinePassed(request.sent))
        if self.waiting:
            first = max(self.next_deadline(), now + EXPIRY_STEP_S)
            if first < self.expires_at:
                self.expire_at(first)
        self._settled()


def context_of(connection: Any, client_id: bytes | None) -> ForwardContext:
    """The context of requests that come from a client's connection."""
    return ForwardContext(
        connection_id=connection.connection_id,
        listener=connection.listener_index,
        peer=connection.peer,
        client_id=None if client_id is None else client_id.decode("utf-8", "replace"),
        principal=connection.principal or ANONYMOUS,
        software_name=connection.client_software_name,
        software_version=connection.client_software_version,
        by_token=connection.by_token,
    )
