"""Requests that the coordinator serves: the worker's side of the Unix stream between them.

A worker owns one `ForwardClient` on its event loop, which is all the protection it needs. The supervisor keeps the
listening socket, so that a worker can connect while there is no coordinator: what it sends then waits in the socket
for the successor. The promise: a request is sent at most once. One that was not yet sent waits, bounded in time,
count and bytes; of one that was sent on a stream that broke nobody knows what became, and its caller is told so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from broker.net.forward_frames import (
    ForwardContext,
    ForwardReply,
    FrameCutter,
    Kind,
    MalformedFrame,
    decode_reply,
    encode_request,
)

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 30.0
MAX_QUEUED = 10_000
MAX_QUEUED_BYTES = 64 << 20
FIRST_RETRY_S, LONGEST_RETRY_S = 0.01, 1.0
WRITE_BYTES = 64 << 10
EXPIRY_STEP_S = 0.01


class ForwardError(Exception):
    """A request that got no answer."""


class ConnectionLost(ForwardError):
    """The request was sent and the stream broke: whether it was carried out is not known. Never sent again."""


class DeadlinePassed(ForwardError):
    """No answer in time; ``sent`` tells whether the request may have been, or may yet be, carried out."""

    def __init__(self, sent: bool) -> None:
        super().__init__("the coordinator did not answer in time" if sent else "the coordinator could not be reached")
        self.sent = sent


class QueueFull(ForwardError):
    """Too many requests, or bytes of them, wait to be sent already; this one was not taken."""


Callback = Callable[[ForwardReply | ForwardError], None]


@dataclass(slots=True, eq=False)
class _Pending:
    correlation: int
    kind: Kind
    context: ForwardContext
    deadline: float
    payload: bytes
    callback: Callback | None
    sent: bool = False
    dropped: bool = False  # finished before it was sent


class ForwardClient(asyncio.Protocol):
    """A worker's way to the coordinator.

    :param loop: the loop that calls back; all methods are called on it.
    :param path: of the coordinator's Unix socket (a text that begins with NUL for an abstract one).
    :param settled: called after callbacks were called, once for all of one read, expiry or loss.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        settled: Callable[[], None] = lambda: None,
        *,
        max_queued: int = MAX_QUEUED,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._loop = loop
        self._path = path
        self._settled = settled
        self._max_queued = max_queued
        self._max_queued_bytes = max_queued_bytes
        self._queue: deque[_Pending] = deque()
        self._queued = 0
        self._queued_bytes = 0
        self._pending: dict[int, _Pending] = {}  # queued and sent, by correlation
        self._transport: asyncio.Transport | None = None
        self._writable = False
        self._cutter = FrameCutter()
        self._next_correlation = 1
        self._retry_s = FIRST_RETRY_S
        self._retry: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task | None = None
        self._closed = False
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = 0.0
        self._held = False

    @property
    def waiting(self) -> int:
        """Requests without an answer yet, queued or sent."""
        return len(self._pending)

    def send(
        self,
        payload: bytes,
        context: ForwardContext,
        deadline: float,
        callback: Callback,
        kind: Kind = Kind.KAFKA,
    ) -> None:
        """Forward a request.

        :param payload: the request with its header; kept until sent.
        :param deadline: in the loop's time; `loop.time() + DEFAULT_TIMEOUT_S` if the request says nothing.
        :param callback: called once on the loop, never inside this call: with a ForwardReply, or with ConnectionLost or
            DeadlinePassed. Not called after `cancel` or `close`.
        :raises QueueFull: at the bounds; the callback is not called then.
        """
        if self._queued >= self._max_queued or self._queued_bytes + len(payload) > self._max_queued_bytes:
            raise QueueFull(f"{self._queued} requests of {self._queued_bytes} bytes wait for the coordinator")
        pending = _Pending(self._next_correlation, kind, context, deadline, payload, callback)
        self._next_correlation += 1
        self._pending[pending.correlation] = pending
        if self._expiry is None or deadline < self._expiry_at:
            self._expire_at(deadline)
        self._enqueue(pending)
        if self._transport is None:
            self.connect()
        elif not self._held:
            self._flush()

    def hold(self) -> None:
        """Until `release`, keep what is to be sent, so that it leaves together."""
        self._held = True

    def release(self) -> None:
        """Send what was kept."""
        self._held = False
        if self._queue:
            self._flush()

    def cancel(self, connection_id: int) -> None:
        """A client's connection is gone: forget its requests, and have the coordinator forget those already sent."""
        mine = [pending for pending in self._pending.values() if pending.context.connection_id == connection_id]
        for pending in mine:
            self._forget(pending)
        if any(pending.sent for pending in mine) and self._transport is not None:
            self._enqueue(_Pending(0, Kind.CANCEL, mine[0].context, self._loop.time(), b"", None))
            self._flush()

    def connect(self) -> None:
        """Connect now unless that is done or under way; otherwise the first `send` does."""
        if self._transport is None and self._connecting is None and self._retry is None and not self._closed:
            self._connecting = self._loop.create_task(self._connect())

    def close(self) -> None:
        """Let go of everything; no callback is called any more."""
        self._closed = True
        for pending in list(self._pending.values()):
            self._forget(pending)
        self._queue.clear()
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
            log.warning("cannot reach the coordinator, next try in %d ms: %s", self._retry_s * 1000, error)
            self._retry = self._loop.call_later(self._retry_s, self._connect_again)
            self._retry_s = min(self._retry_s * 2, LONGEST_RETRY_S)
        finally:
            self._connecting = None

    def _connect_again(self) -> None:
        self._retry = None
        self.connect()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has waited."""
        self._transport = cast(asyncio.Transport, transport)
        self._writable = True
        self._cutter = FrameCutter()
        self._flush()

    def pause_writing(self) -> None:
        """The coordinator takes no more for now: keep the rest, which may then still be cancelled."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on."""
        self._writable = True
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Answers."""
        self._retry_s = FIRST_RETRY_S
        try:
            for frame in self._cutter.feed(data):
                correlation, reply = decode_reply(frame)
                pending = self._pending.get(correlation)
                if pending is not None:  # else it was cancelled, or its deadline passed
                    self._finish(pending, reply)
        except MalformedFrame as error:
            log.error("the coordinator sent what is no frame, the stream is dropped: %s", error)
            assert self._transport is not None
            self._transport.abort()
        self._settled()

    def connection_lost(self, error: Exception | None) -> None:
        """What was sent is lost; what was not waits for the next connection."""
        self._transport = None
        self._writable = False
        if self._closed:
            return
        sent = [pending for pending in self._pending.values() if pending.sent]
        log.warning("the coordinator is gone with %d request(s) unanswered (%s)", len(sent), error or "closed")
        for pending in sent:
            self._finish(pending, ConnectionLost("the coordinator ended before it answered"))
        self._settled()
        for pending in self._queue:
            if pending.kind == Kind.CANCEL:  # what it would cancel is gone with the stream
                self._forget(pending)
        if self._transport is None and self._retry is None and self._connecting is None:
            self._retry = self._loop.call_later(self._retry_s, self._connect_again)
            self._retry_s = min(self._retry_s * 2, LONGEST_RETRY_S)

    def _enqueue(self, pending: _Pending) -> None:
        self._queue.append(pending)
        self._queued += 1
        self._queued_bytes += len(pending.payload)
        if len(self._queue) > 2 * self._queued + 64:
            self._queue = deque(one for one in self._queue if not one.dropped)

    def _flush(self) -> None:
        while self._writable and self._queue:
            frames: list[bytes] = []
            size = 0
            while self._queue and size < WRITE_BYTES:
                pending = self._queue.popleft()
                if pending.dropped:
                    continue
                self._queued -= 1
                self._queued_bytes -= len(pending.payload)
                pending.sent = True
                frames.append(
                    encode_request(
                        pending.correlation, pending.kind, pending.context, pending.deadline, pending.payload
                    )
                )
                size += len(frames[-1])
                pending.payload = b""
            assert self._transport is not None
            if frames:
                self._transport.write(b"".join(frames))

    def _expire_at(self, when: float) -> None:
        """One timer for all: it is set to the first deadline there was, and looks around when it fires."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = when
        self._expiry = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        for pending in [one for one in self._pending.values() if one.deadline <= now]:
            self._finish(pending, DeadlinePassed(pending.sent))
        if self._pending:
            first = min(pending.deadline for pending in self._pending.values())
            self._expire_at(max(first, now + EXPIRY_STEP_S))
        self._settled()

    def _finish(self, pending: _Pending, result: ForwardReply | ForwardError) -> None:
        callback = pending.callback
        self._forget(pending)
        if callback is not None:
            callback(result)

    def _forget(self, pending: _Pending) -> None:
        self._pending.pop(pending.correlation, None)
        pending.callback = None
        if not pending.sent and not pending.dropped:  # its place in the queue goes when its turn comes
            pending.dropped = True
            self._queued -= 1
            self._queued_bytes -= len(pending.payload)
            pending.payload = b""
