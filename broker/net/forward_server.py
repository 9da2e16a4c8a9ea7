"""Requests that workers forward: the coordinator's side of the Unix streams.

The coordinator owns one `ForwardServer` on its event loop, which is all the protection it needs.
"""

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import cast

from broker.net.forward_frames import (
    ForwardReply,
    ForwardRequest,
    FrameCutter,
    Kind,
    MalformedFrame,
    Status,
    decode_request,
    encode_reply,
)

log = logging.getLogger(__name__)

MAX_BYTES_IN_FLIGHT = 256 << 20
CANCEL = Kind.CANCEL
_PEER_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[ForwardRequest], Awaitable[ForwardReply]]
Answer = Callable[[ForwardReply], None]
AtOnce = Callable[[ForwardRequest, Answer], bool]


def _not_at_once(request: ForwardRequest, answer: Answer) -> bool:
    return False


def _nothing() -> None:
    return None


class ForwardServer:
    """The coordinator's end: a task for each request, cancelled when its connection or its worker is gone.

    :param handler: answers a request; what it raises becomes Status.FAILED, with a line in the log.
    :param at_once: asked first: serves a request without a task if it can, and says whether it did. Its answer may come
        later; a client that goes away does not cancel it.
    :param end_of_read: called when all requests of one read of a stream were handed over.
    :param max_bytes_in_flight: of all requests under way; beyond it no stream is read.
    """

    def __init__(
        self,
        handler: Handler,
        at_once: AtOnce = _not_at_once,
        end_of_read: Callable[[], None] = _nothing,
        *,
        max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT,
    ) -> None:
        self._handler = handler
        self._at_once = at_once
        self._end_of_read = end_of_read
        self._in_flight = 0
        self._max_bytes = max_bytes_in_flight
        self._bytes = 0
        self._streams: set[_Stream] = set()
        self._server: asyncio.AbstractServer | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self, listener: socket.socket) -> None:
        """Accept on a listening Unix socket. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Stream(self), sock=listener)

    async def stop(self, timeout_s: float) -> None:
        """Accept and read no more, let requests under way finish for that long, then close."""
        if self._server is not None:
            self._server.close()
        for stream in self._streams:
            stream.pause(True)
        try:
            if not self._idle.is_set():
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            log.warning("%d request(s) unfinished at the stop", self._in_flight)
        for stream in list(self._streams):
            stream.flush()
            stream.close()

    @property
    def bytes_in_flight(self) -> int:
        """Of the requests under way."""
        return self._bytes

    def _took(self, size: int) -> None:
        self._bytes += size
        self._in_flight += 1
        if self._in_flight == 1:
            self._idle.clear()
        if self._bytes > self._max_bytes:
            for stream in self._streams:
                stream.pause(True)

    def _gave_back(self, size: int) -> None:
        over = self._bytes > self._max_bytes
        self._bytes -= size
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle.set()
        if over and self._bytes <= self._max_bytes and self._server is not None and self._server.is_serving():
            for stream in self._streams:
                stream.pause(False)


class _Stream(asyncio.Protocol):
    """One worker's stream."""

    def __init__(self, server: ForwardServer) -> None:
        self._server = server
        self._cutter = FrameCutter()
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._out: list[bytes] = []
        self._reading = False
        self.tasks: dict[asyncio.Task, int] = {}  # to the connection id
        self._tasks_of: dict[int, int] = {}  # how many, by connection id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = self._transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
        if uid != os.geteuid():
            log.error("process %d of user %d is no worker of this broker: refused", pid, uid)
            self._transport.abort()
            return
        self._server._streams.add(self)

    def data_received(self, data: bytes) -> None:
        self._reading = True  # answers leave together
        now = time.monotonic()
        try:
            for frame in self._cutter.feed(data):
                correlation, request = decode_request(frame)
                if request.kind is CANCEL:
                    self._cancel(request.context.connection_id)
                elif request.deadline > now:  # else it waited in the socket until its worker gave up
                    self._start(correlation, request, len(frame))
        except MalformedFrame as error:
            log.error("a worker sent what is no frame, its stream is dropped: %s", error)
            self.close()
        finally:
            self._server._end_of_read()
            self._reading = False
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server._streams.discard(self)
        for task in list(self.tasks):
            task.cancel()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        if self._transport is None or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Send the answers that were kept."""
        if self._out:
            out, self._out = self._out, []
            if self._transport is not None:
                self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _start(self, correlation: int, request: ForwardRequest, size: int) -> None:
        self._server._took(size)
        waits = True

        def answer(reply: ForwardReply) -> None:
            nonlocal waits
            if waits:
                waits = False
                self._reply(correlation, reply)
                self._server._gave_back(size)

        connection_id = request.context.connection_id
        try:  # but not before what its connection asked for earlier has begun
            if connection_id not in self._tasks_of and self._server._at_once(request, answer):
                return
        except Exception:
            log.exception("request of %s failed", request.context.peer)
            answer(ForwardReply(Status.FAILED, 0))
            return
        task = asyncio.get_running_loop().create_task(self._serve(correlation, request))
        self.tasks[task] = connection_id
        self._tasks_of[connection_id] = self._tasks_of.get(connection_id, 0) + 1

        def done(task: asyncio.Task) -> None:
            del self.tasks[task]
            self._tasks_of[connection_id] -= 1
            if not self._tasks_of[connection_id]:
                del self._tasks_of[connection_id]
            self._server._gave_back(size)

        task.add_done_callback(done)

    def _reply(self, correlation: int, reply: ForwardReply) -> None:
        if not self._out and not self._reading:
            asyncio.get_running_loop().call_soon(self.flush)
        self._out.append(encode_reply(correlation, reply))

    async def _serve(self, correlation: int, request: ForwardRequest) -> None:
        try:
            reply = await self._server._handler(request)
        except Exception:
            log.exception("request of %s failed", request.context.peer)
            reply = ForwardReply(Status.FAILED, 0)
        self._reply(correlation, reply)

    def _cancel(self, connection_id: int) -> None:
        for task, owner in list(self.tasks.items()):
            if owner == connection_id:
                task.cancel()
