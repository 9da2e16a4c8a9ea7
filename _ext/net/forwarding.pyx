"""Forwarding of requests to the coordinator; see `forwarding.pxd`. Runs in the event loop of the process that forwards.

A request that can be sent at once is copied into the frames that the turn sends, and counts as sent from then on. Other requests
wait in the queue, which is bounded, and where they may be cancelled. An answer is copied from its frame into the place of the
response (`Pending`) that the connection has reserved.
"""

import logging
from collections import deque

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t
from libc.string cimport memcmp

from odradek._ext.net.connection cimport FRAME_CLOSE, FRAME_PENDING, Connection, Pending
from odradek._ext.net.forward_frames cimport (
    KIND_CANCEL,
    KIND_HANG_UP,
    KIND_KAFKA,
    KIND_LOOKED,
    STATUS_LOOK,
    STATUS_OK,
    FrameCutter,
    ReplyHead,
    put_request,
    read_reply,
    taken,
)
from odradek._ext.protocol.byte_order cimport load16, store64
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.late_requests cimport is_unawaited
from odradek._ext.shm.metering cimport clock_us
from odradek._ext.shm.topics cimport TopicDirectory


LOG = logging.getLogger("odradek.forwarding")

cdef enum:
    WRITE_BYTES = 64 << 10              # a write of more than one request ends once it has this many bytes
    NO_TEXTS_BYTES = 10                 # five absent texts of a context
    US_PER_MS = 1000
    QUEUE_SPARE = 64                    # dropped requests that the queue may hold in addition to as many as wait


cdef class Route:
    """How requests of one API and version are forwarded.

    :param patience_s: time until a request fails without an answer, seconds. :param error_at: position of the error code in the
        response, bytes from the start of the response's header; -1 if it has no fixed position.
    :param follows: a request need not wait for an earlier request of its kind.
    :param of_brokers: only brokers send such requests, on the listener that they use among themselves.
    """

    def __init__(self, str name not None, double patience_s, int error_at, bint follows, bint of_brokers=False):
        self.name = name
        self.patience_s = patience_s
        self.error_at = error_at
        self.follows = follows
        self.of_brokers = of_brokers


@cython.final
cdef class CachedContext:
    pass


@cython.final
@cython.freelist(256)
cdef class ForwardedRequest:
    pass


cdef class ForwardTable:
    """The requests in flight to the coordinator. A subclass supplies `describe`, `replied`, `expire_at`, `connect`, `protocol_error`
    and `close_ended`.

    :param settled: called after answers were delivered, once for all of one read, one expiry or one lost stream.
    :param max_queued, max_queued_bytes: limits of the queue; above them requests are refused.
    """

    def __cinit__(self):
        buffer_init(&self.out)

    def __init__(self, settled, int64_t max_queued, int64_t max_queued_bytes):
        self.settled = settled
        self.max_queued = max_queued
        self.max_queued_bytes = max_queued_bytes
        self.queue = deque()
        self.pending = {}
        self.expires_at = INFINITY
        self.cutter = FrameCutter()
        self.next_correlation = 1

    def __dealloc__(self):
        buffer_free(&self.out)

    @property
    def waiting(self) -> int:
        """Number of requests that are not answered yet, queued or sent."""
        return len(self.pending)

    # -- methods that the subclass supplies -----------------------------------------------------------------------------

    def describe(self, connection, client_id) -> bytes:
        """Return the encoded context of a connection for a request's frame. `client_id`: bytes, or None."""
        raise NotImplementedError

    def replied(self, callback, status, metadata_version, payload) -> None:
        """Pass the answer to a request of `put` to its callback."""
        raise NotImplementedError

    def expire_at(self, double when) -> None:
        """Set the timer to `when`: a request's deadline is earlier than `expires_at`."""
        raise NotImplementedError

    def connect(self) -> None:
        """Connect to the coordinator: requests wait, and the stream is not connected."""
        raise NotImplementedError

    def protocol_error(self, error) -> None:
        """Close the stream: the coordinator sent a malformed frame, or memory ran out."""
        raise NotImplementedError

    def close_ended(self, connections) -> None:
        """Close those of `connections` that their clients have ended: their requests waited long for the coordinator."""
        raise NotImplementedError

    # -- sending --------------------------------------------------------------------------------------------------------

    def serve(self, TopicDirectory topics not None, take_over not None) -> None:
        """Call `take_over` before an answer that depends on newer metadata than `topics` is delivered."""
        self.topics = topics
        self.take_over = take_over

    cdef bint full(self, int64_t size) noexcept:
        return self.queued >= self.max_queued or self.queued_bytes + size > self.max_queued_bytes

    def put(self, int kind, bytes context not None, uint64_t connection_id, double deadline, bytes payload not None, callback) -> bool:
        """Forward a request of this process itself; `replied` or `fail` calls the callback. Return False if the queue is full."""
        cdef ForwardedRequest request
        if self.full(len(payload)):
            return False
        request = ForwardedRequest.__new__(ForwardedRequest)
        request.kind = <uint8_t>kind
        request.connection_id = connection_id
        request.deadline = deadline
        request.forwarded_ms = clock_us() // US_PER_MS
        request.callback = callback
        self.add(request, context, <const uint8_t*><const char*>payload, len(payload))
        return True

    cdef int forward(self, Connection connection, Route route, const uint8_t* client_id, int64_t client_id_bytes,
                     const uint8_t* payload, int64_t size) except -1:
        cdef ForwardedRequest request
        cdef bytes context
        cdef int64_t now_us
        if self.full(size):
            connection.close_reason = (
                f"cannot answer the {route.name} request: {self.queued} requests of {self.queued_bytes} bytes wait for the coordinator")
            return FRAME_CLOSE
        context = self.context_of(connection, client_id, client_id_bytes)
        request = ForwardedRequest.__new__(ForwardedRequest)
        request.kind = KIND_KAFKA
        request.connection_id = <uint64_t>connection.connection_id
        now_us = clock_us()
        request.deadline = now_us / 1e6 + route.patience_s
        request.forwarded_ms = now_us // US_PER_MS
        request.route = route
        request.pending = connection.reserve()
        request.pending.follows = route.follows
        self.add(request, context, payload, size)
        return FRAME_PENDING

    cdef bytes context_of(self, Connection connection, const uint8_t* client_id, int64_t size):
        """Return the encoded context of a connection, cached there because most of a connection's requests have an equal context."""
        cdef CachedContext cached = <CachedContext>connection.cached_context
        if cached is not None and cached.principal is connection.principal \
                and cached.software_name is connection.client_software_name \
                and cached.software_version is connection.client_software_version \
                and (size < 0 if cached.client_id is None else
                     len(cached.client_id) == size and memcmp(<const char*>cached.client_id, client_id, size) == 0):
            return cached.context
        cached = CachedContext.__new__(CachedContext)
        cached.client_id = None if size < 0 else PyBytes_FromStringAndSize(<const char*>client_id, size)
        cached.principal = connection.principal
        cached.software_name = connection.client_software_name
        cached.software_version = connection.client_software_version
        cached.context = self.describe(connection, cached.client_id)
        connection.cached_context = cached
        return cached.context

    cdef int add(self, ForwardedRequest request, bytes context, const uint8_t* payload, int64_t size) except -1:
        request.correlation = self.next_correlation
        self.next_correlation += 1
        if request.deadline < self.expires_at:
            self.expire_at(request.deadline)
        if self.writable and not self.queue:
            put_request(&self.out, request.correlation, request.kind, request.deadline, request.forwarded_ms,
                        <const uint8_t*><const char*>context, len(context), payload, size)
            request.sent = True
            self.pending[request.correlation] = request
            if not self.held or self.out.size >= WRITE_BYTES:
                self.write_out()
            return 0
        self.pending[request.correlation] = request
        self.enqueue(request, context, PyBytes_FromStringAndSize(<const char*>payload, size))
        if self.write is None:
            self.connect()
        elif not self.held:
            self.flush()
        return 0

    cdef int enqueue(self, ForwardedRequest request, bytes context, bytes payload) except -1:
        request.context = context
        request.payload = payload
        self.queue.append(request)
        self.queued += 1
        self.queued_bytes += len(payload)
        if len(self.queue) > 2 * self.queued + QUEUE_SPARE:
            self.queue = deque([kept for kept in self.queue if not (<ForwardedRequest>kept).dropped])
        return 0

    def hold(self) -> None:
        """Gather frames until `release`, so that one write sends them."""
        self.held = True

    def release(self) -> None:
        """Send the frames gathered since `hold`."""
        self.held = False
        if self.out.size or self.queue:
            self.flush()

    cpdef int flush(self) except -1:
        """Send gathered frames and queued requests, as far as the stream takes them."""
        cdef ForwardedRequest request
        while True:
            while self.writable and self.queue and self.out.size < WRITE_BYTES:
                request = self.queue.popleft()
                if request.dropped:
                    continue
                put_request(&self.out, request.correlation, request.kind, request.deadline, request.forwarded_ms,
                            <const uint8_t*><const char*>request.context, len(request.context),
                            <const uint8_t*><const char*>request.payload, len(request.payload))
                request.sent = True
                self.queued -= 1
                self.queued_bytes -= len(request.payload)
                request.context = request.payload = None
            if self.out.size == 0:
                return 0
            self.write_out()
            if not self.writable or not self.queue:
                return 0

    cdef int write_out(self) except -1:
        self.write(taken(&self.out))
        return 0

    def cancel(self, uint64_t connection_id) -> None:
        """A client's connection is closed: forget its requests, and make the coordinator forget those already sent.

        A request for which clients do not await the response is sent and executed nevertheless.
        """
        cdef ForwardedRequest request
        cdef bint sent = False
        if not self.pending:
            return
        for request in [request for request in self.pending.values() if (<ForwardedRequest>request).connection_id == connection_id]:
            sent = sent or request.sent
            if not request.sent and request.kind == KIND_KAFKA \
                    and is_unawaited(<const uint8_t*><const char*>request.payload, len(request.payload)):
                del self.pending[request.correlation]
            else:
                self.forget(request)
        if sent and self.write is not None:
            self.enqueue_note(KIND_CANCEL, connection_id)
            if not self.held:
                self.flush()

    cdef int hang_up(self, uint64_t connection_id) except -1:
        """The client sends no more: notify the coordinator if a request of that connection was sent to it."""
        cdef ForwardedRequest request
        if self.write is None:
            return 0
        for request in self.pending.values():
            if request.connection_id == connection_id and request.sent:
                self.enqueue_note(KIND_HANG_UP, connection_id)
                if not self.held:
                    self.flush()
                return 0
        return 0

    cdef int enqueue_note(self, int kind, uint64_t connection_id) except -1:
        """Queue a notification for the coordinator, which gets no answer, after all that is queued before."""
        cdef ForwardedRequest request = ForwardedRequest.__new__(ForwardedRequest)
        cdef uint8_t[8] number
        request.kind = <uint8_t>kind
        request.connection_id = connection_id
        store64(number, connection_id)
        return self.enqueue(request, <bytes>(<const char*>number)[:8] + b"\0\0" + NO_TEXTS_BYTES * b"\xff", b"")

    cdef int check_clients(self) except -1:
        """The coordinator holds requests that waited long: check which of their clients disconnected, and notify it afterwards.

        The requests of connections that are closed thereby are cancelled before the notification is queued.
        """
        cdef ForwardedRequest request
        cdef list connections = [(<ForwardedRequest>request).pending.connection for request in self.pending.values()
                                 if (<ForwardedRequest>request).pending is not None]
        try:
            self.close_ended(connections)
        finally:
            if self.write is not None:
                self.enqueue_note(KIND_LOOKED, 0)
                if not self.held:
                    self.flush()
        return 0

    # -- the stream -----------------------------------------------------------------------------------------------------

    def opened(self, write not None) -> None:
        """The stream is connected, and `write` sends bytes on it: send the requests that have waited."""
        self.cutter = FrameCutter()
        self.has_answered = False
        self.write = write
        self.writable = True
        self.out.size = 0
        if not self.held:
            self.flush()

    def pause_writing(self) -> None:
        """The stream takes no more for now: queue further requests, which can then still be cancelled."""
        self.writable = False

    def resume_writing(self) -> None:
        """The stream takes bytes again: send the queue."""
        self.writable = self.write is not None
        if not self.held:
            self.flush()

    def lost(self) -> list[ForwardedRequest]:
        """The stream is closed: forget and return the requests that were sent on it. Unsent requests wait for the next stream."""
        cdef ForwardedRequest request
        cdef list sent = [request for request in self.pending.values() if (<ForwardedRequest>request).sent]
        self.write = None
        self.writable = False
        self.out.size = 0
        for request in sent:
            self.pending.pop(request.correlation, None)
        for request in self.queue:
            if request.kind in (KIND_CANCEL, KIND_HANG_UP, KIND_LOOKED):    # they concern requests sent on the closed stream
                self.forget(request)
        return sent

    def due(self, double now) -> list[ForwardedRequest]:
        """Forget and return the requests whose deadline has passed."""
        cdef ForwardedRequest request
        cdef list expired = [request for request in self.pending.values() if (<ForwardedRequest>request).deadline <= now]
        for request in expired:
            self.forget(request)
        return expired

    def next_deadline(self) -> float:
        """Return the earliest deadline; infinite without a request."""
        cdef ForwardedRequest request
        cdef double first = INFINITY
        for request in self.pending.values():
            first = min(first, request.deadline)
        return first

    def forget_all(self) -> None:
        """Forget all requests: no callback is called and no Pending is completed."""
        cdef ForwardedRequest request
        for request in list(self.pending.values()):
            self.forget(request)
        self.queue.clear()

    cdef int forget(self, ForwardedRequest request) except -1:
        self.pending.pop(request.correlation, None)
        if not request.sent and not request.dropped:    # `flush` or `enqueue` removes it from the queue later
            request.dropped = True
            self.queued -= 1
            self.queued_bytes -= len(request.payload)
            request.context = request.payload = None
        return 0

    # -- answers --------------------------------------------------------------------------------------------------------

    def data_received(self, bytes data not None) -> None:
        """Handle the answers in `data`; an incomplete last frame is kept for the next call."""
        cdef const uint8_t* frame
        cdef int64_t size
        cdef ReplyHead head
        cdef object request
        cdef FrameCutter cutter = self.cutter   # `opened` replaces self.cutter
        self.has_answered = True
        try:
            try:
                cutter.begin(data)
                while cutter.next(&frame, &size):
                    read_reply(frame, size, &head)
                    if head.status == STATUS_LOOK:
                        self.check_clients()
                        continue
                    request = self.pending.get(head.correlation)
                    if request is None:             # the request was cancelled, or its deadline passed
                        continue
                    if not (<ForwardedRequest>request).sent:
                        raise MalformedFrame(f"answer to request {head.correlation}, which was not sent")
                    del self.pending[head.correlation]
                    self.answer(<ForwardedRequest>request, &head)
            finally:
                cutter.finish()
        except (MalformedFrame, MemoryError) as error:
            self.protocol_error(error)
        self.settled()

    cdef int answer(self, ForwardedRequest request, ReplyHead* head) except -1:
        """Deliver an answer to its callback or Pending. An error fails this request only."""
        cdef Pending pending = request.pending
        cdef int at, code
        try:
            if pending is None:
                self.replied(request.callback, head.status, head.metadata_version,
                             PyBytes_FromStringAndSize(<const char*>head.payload, head.payload_bytes))
                return 0
            if pending.cancelled:
                return 0
            if head.status != STATUS_OK:
                return self.refuse(request, "malformed" if head.status == 2 else "unsupported" if head.status == 3 else "failed")
            if self.topics is not None and head.metadata_version > self.topics.version:
                self.take_over()
            at = request.route.error_at
            if 0 <= at <= head.payload_bytes - 2:
                code = <int16_t>load16(head.payload + at)
                if code:
                    pending.failed(code)
            pending.spent_us += head.work_us
            pending.least_wait_ms = head.throttle_ms
            pending.connection.throttle_for(head.throttle_ms)
            pending.complete_framed(head.payload, head.payload_bytes)
        except Exception:
            LOG.exception("cannot deliver a response of the coordinator; the request fails")
            if pending is not None and not pending.done:
                self.refuse(request, "internal error, logged above")
        return 0

    def fail(self, ForwardedRequest request not None, error not None) -> None:
        """Report to the callback, or to the client by closing its connection, that the request failed with `error`."""
        try:
            if request.pending is None:
                if request.callback is not None:
                    request.callback(error)
            elif not request.pending.cancelled:
                self.refuse(request, str(error))
        except Exception:
            LOG.exception("cannot report a failed forwarded request to its caller")

    cdef int refuse(self, ForwardedRequest request, reason) except -1:
        cdef Connection connection = request.pending.connection
        connection.close(f"cannot answer the {request.route.name} request: {reason}")
        return 0
