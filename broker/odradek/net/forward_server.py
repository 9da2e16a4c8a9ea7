"""Serves the requests that workers forward: the coordinator's side of the Unix streams.

The coordinator owns one `ForwardServer` and uses it only on its event loop, which protects it. The code that runs for every
request is native (`_ext/net/arrivals.pyx`): reading frames, sending answers, and requests that are served without a task.
"""

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, cast

from odradek._ext.net.arrivals import Arrival, ArrivalStream, InFlight
from odradek.net.forward_frames import ForwardReply, Status, decode_context

log = logging.getLogger("odradek.forwarding")

MAX_BYTES_IN_FLIGHT = 256 << 20
_PEER_CREDENTIALS = struct.Struct("3i")

Handler = Callable[[Arrival], Awaitable[ForwardReply]]
AtOnce = Callable[[Arrival], bool]


def _not_at_once(request: Arrival) -> bool:
    return False


def _nothing() -> None:
    return None


class _Timed:
    """Awaits a handler, and adds the time that it spends in the loop to `Arrival.work_us`, without the time that it waits."""

    def __init__(self, handling: Awaitable[ForwardReply], arrival: Arrival) -> None:
        self._handling = handling
        self._arrival = arrival

    def __await__(self) -> Generator[Any, Any, ForwardReply]:
        steps = self._handling.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            began = time.perf_counter_ns()
            try:
                awaited = resume()
            except StopIteration as end:
                reply: ForwardReply = end.value
                return reply
            finally:
                self._arrival.work_us += (time.perf_counter_ns() - began) // 1000
            try:
                resume = partial(steps.send, (yield awaited))
            except BaseException as error:
                resume = partial(steps.throw, error)


class ForwardServer(InFlight):
    """The coordinator's end of the streams. Each request has a task, which is cancelled when its connection or its worker ends.

    It inherits from the native `InFlight`, which counts the requests and bytes of all streams without a Python call for each
    request, and which calls two hooks in the loop: `crowded` when the bytes exceed their limit or no longer do, and `idle` when
    the last request was answered.

    :param handler: answers a request, and may park it. An exception becomes Status.FAILED and is logged.
    :param at_once: called first; serves a request without a task if it can, and returns whether it did. It may call `answer`
        later. A client that disconnects does not cancel such a request.
    :param end_of_read: called when all requests of one read of a stream were handed over.
    :param max_bytes_in_flight: the limit of the bytes of all requests that are in flight and not parked; above it, no stream is
        read.
    """

    def __init__(
        self,
        handler: Handler,
        at_once: AtOnce = _not_at_once,
        end_of_read: Callable[[], None] = _nothing,
        *,
        max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT,
    ) -> None:
        super().__init__(max_bytes_in_flight)
        self._handler = handler
        self._at_once = at_once
        self._end_of_read = end_of_read
        self._streams: set[_Stream] = set()
        self._server: asyncio.AbstractServer | None = None
        self._idle = asyncio.Event()

    async def start(self, listener: socket.socket) -> None:
        """Accept on a listening Unix socket. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._stream, sock=listener)

    def _stream(self) -> "_Stream":
        return _Stream(self, self._handler, self._at_once, self._end_of_read, self._streams)

    async def stop(self, timeout_s: float) -> None:
        """Stop accepting and reading, wait up to `timeout_s` for the requests in flight, then close all streams."""
        if self._server is not None:
            self._server.close()
        for stream in self._streams:
            stream.pause(True)
        self.report_idle = True
        try:
            if self.in_flight:
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            log.warning(
                "stopping with %d forwarded requests unanswered after %g s",
                self.in_flight,
                timeout_s,
            )
        for stream in list(self._streams):
            stream.flush()
            stream.close()

    def idle(self) -> None:
        """Hook: the last request in flight was answered or dropped."""
        self._idle.set()

    def crowded(self, over: bool) -> None:
        """Hook: stop reading all streams while too many bytes are in flight (`over`), else continue."""
        if over or (self._server is not None and self._server.is_serving()):
            for stream in self._streams:
                stream.pause(over)


class _Stream(ArrivalStream, asyncio.Protocol):
    """One worker's stream.

    It inherits from the native `ArrivalStream`, because the event loop must call the native `data_received` without a Python
    method in between. `ArrivalStream` calls these hooks, all in the loop:

    - `begin_task`: a request needs a task, because `at_once` did not serve it;
    - `cancel`: a client's connection is closed;
    - `flush_soon`: an answer was added outside of a read;
    - `close`: the worker sent a malformed frame.
    """

    def __init__(
        self,
        server: ForwardServer,
        handler: Handler,
        at_once: AtOnce,
        end_of_read: Callable[[], None],
        streams: "set[_Stream]",
    ) -> None:
        super().__init__(server, at_once, end_of_read, decode_context)
        self._handler = handler
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._tasks: dict[asyncio.Task[None], Arrival] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = self._transport.get_extra_info("socket")
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _ = _PEER_CREDENTIALS.unpack(credentials)
        if uid != os.geteuid():
            log.error("refused a connection from process %d: user %d is not the broker's user", pid, uid)
            self._transport.abort()
            return
        self.opened(self._transport.write)
        self._streams.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.lost()
        self._streams.discard(self)
        for task in list(self._tasks):
            task.cancel()

    def pause(self, paused: bool) -> None:
        """Pause or resume reading."""
        if self._transport is None or self._transport.is_closing() or paused == self._paused:
            return
        self._paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Hook: abort the stream."""
        if self._transport is not None:
            self._transport.abort()

    def flush_soon(self) -> None:
        """Hook: send the answers in the next turn of the loop."""
        self._loop.call_soon(self.flush)

    def begin_task(self, arrival: Arrival) -> None:
        """Hook: serve a request with a task."""
        task = self._loop.create_task(self._serve(arrival))
        self._tasks[task] = arrival
        self.task_began(arrival.connection_id)

        def done(task: asyncio.Task[None]) -> None:
            del self._tasks[task]
            self.task_ended(arrival.connection_id)
            arrival.drop()

        task.add_done_callback(done)

    async def _serve(self, arrival: Arrival) -> None:
        try:
            status, metadata_version, payload = await _Timed(self._handler(arrival), arrival)
        except Exception:
            context = arrival.context
            log.exception("a forwarded request of %s failed", context.client, extra=context.log_fields)
            status, metadata_version, payload = Status.FAILED, 0, b""
        arrival.answer(payload, metadata_version, status)

    def cancel(self, connection_id: int) -> None:
        """Hook: cancel the tasks of a closed connection. Requests whose client does not wait for the response, because it is
        closing, are not cancelled."""
        for task, arrival in list(self._tasks.items()):
            if arrival.connection_id == connection_id and not arrival.unawaited:
                task.cancel()
