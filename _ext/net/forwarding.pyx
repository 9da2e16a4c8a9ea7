"""Requests on their way to the coordinator, natively; see `forwarding.pxd`. Runs in the loop of the process that forwards.

A request that can leave at once is copied into the frames that the turn sends, and is sent from then on. The others wait in
the queue, where they may be cancelled, within the bounds. An answer goes from the frame into the place of the response that
its connection has reserved.
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
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.late_requests cimport is_unawaited
from odradek._ext.records.record_batch cimport load16, store64
from odradek._ext.shm.metering cimport clock_us
from odradek._ext.shm.topics cimport TopicDirectory


LOG = logging.getLogger("odradek.forwarding")

cdef enum:
    WRITE_BYTES = 64 << 10              # of one write, if more than one request is in it
    NO_TEXTS_BYTES = 10
    US_PER_MS = 1000
    QUEUE_SPARE = 64                    # requests that were dropped, beside as many as wait


cdef class Route:
    """:param patience_s: seconds. :param error_at: bytes from the response's header on."""

    def __init__(self, str name not None, double patience_s, int error_at, bint follows):
        self.name = name
        self.patience_s = patience_s
        self.error_at = error_at
        self.follows = follows


@cython.final
cdef class CachedContext:
    pass


@cython.final
@cython.freelist(256)
cdef class Forwarded:
    pass


cdef class ForwardTable:
    """:param settled: called after answers were passed on, once for all of one read, expiry or loss."""

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
    def waiting(self):
        """Requests without an answer yet, queued or sent."""
        return len(self.pending)

    # -- what the rest of it is asked -----------------------------------------------------------------------------------

    def describe(self, connection, client_id):
        """The context of a connection as a request's frame tells it, for a client id in bytes or None."""
        raise NotImplementedError

    def replied(self, callback, status, metadata_version, payload):
        """An answer to what was `put`: to be handed to its callback."""
        raise NotImplementedError

    def expire_at(self, double when):
        """A deadline comes before the timer fires."""
        raise NotImplementedError

    def connect(self):
        """There is something to send and no stream."""
        raise NotImplementedError

    def protocol_error(self, error):
        """The stream is of no use any more."""
        raise NotImplementedError

    def close_ended(self, connections):
        """Requests of these connections waited long for the coordinator: close those that their clients have ended."""
        raise NotImplementedError

    # -- asking ---------------------------------------------------------------------------------------------------------

    def serve(self, TopicDirectory topics not None, take_over not None):
        """Before an answer that depends on newer metadata than `topics` is passed on, call `take_over`."""
        self.topics = topics
        self.take_over = take_over

    cdef bint full(self, int64_t size) noexcept:
        return self.queued >= self.max_queued or self.queued_bytes + size > self.max_queued_bytes

    def put(self, int kind, bytes context not None, uint64_t connection_id, double deadline, bytes payload not None, callback):
        """A request of this process; `replied` or `fail` tells the callback. False when the queue is full."""
        cdef Forwarded one
        if self.full(len(payload)):
            return False
        one = Forwarded.__new__(Forwarded)
        one.kind = <uint8_t>kind
        one.connection_id = connection_id
        one.deadline = deadline
        one.asked_ms = clock_us() // US_PER_MS
        one.callback = callback
        self.add(one, context, <const uint8_t*><const char*>payload, len(payload))
        return True

    cdef int forward(self, Connection connection, Route route, const uint8_t* client_id, int64_t client_id_bytes,
                     const uint8_t* request, int64_t size) except -1:
        cdef Forwarded one
        cdef bytes context
        cdef int64_t now_us
        if self.full(size):
            connection.close_reason = (
                f"a {route.name} request has no answer: {self.queued} requests of {self.queued_bytes} bytes wait for the coordinator")
            return FRAME_CLOSE
        context = self.context_of(connection, client_id, client_id_bytes)
        one = Forwarded.__new__(Forwarded)
        one.kind = KIND_KAFKA
        one.connection_id = <uint64_t>connection.connection_id
        now_us = clock_us()
        one.deadline = now_us / 1e6 + route.patience_s
        one.asked_ms = now_us // US_PER_MS
        one.route = route
        one.pending = connection.reserve()
        one.pending.follows = route.follows
        self.add(one, context, request, size)
        return FRAME_PENDING

    cdef bytes context_of(self, Connection connection, const uint8_t* client_id, int64_t size):
        """Kept for the connection's next request: most of them say the same."""
        cdef CachedContext told = <CachedContext>connection.told
        if told is not None and told.principal is connection.principal \
                and told.software_name is connection.client_software_name \
                and told.software_version is connection.client_software_version \
                and (size < 0 if told.client_id is None else
                     len(told.client_id) == size and memcmp(<const char*>told.client_id, client_id, size) == 0):
            return told.context
        told = CachedContext.__new__(CachedContext)
        told.client_id = None if size < 0 else PyBytes_FromStringAndSize(<const char*>client_id, size)
        told.principal = connection.principal
        told.software_name = connection.client_software_name
        told.software_version = connection.client_software_version
        told.context = self.describe(connection, told.client_id)
        connection.told = told
        return told.context

    cdef int add(self, Forwarded one, bytes context, const uint8_t* payload, int64_t size) except -1:
        one.correlation = self.next_correlation
        self.next_correlation += 1
        if one.deadline < self.expires_at:
            self.expire_at(one.deadline)
        if self.writable and not self.queue:
            put_request(&self.out, one.correlation, one.kind, one.deadline, one.asked_ms,
                        <const uint8_t*><const char*>context, len(context), payload, size)
            one.sent = True
            self.pending[one.correlation] = one
            if not self.held or self.out.size >= WRITE_BYTES:
                self.write_out()
            return 0
        self.pending[one.correlation] = one
        self.enqueue(one, context, PyBytes_FromStringAndSize(<const char*>payload, size))
        if self.write is None:
            self.connect()
        elif not self.held:
            self.flush()
        return 0

    cdef int enqueue(self, Forwarded one, bytes context, bytes payload) except -1:
        one.context = context
        one.payload = payload
        self.queue.append(one)
        self.queued += 1
        self.queued_bytes += len(payload)
        if len(self.queue) > 2 * self.queued + QUEUE_SPARE:
            self.queue = deque([kept for kept in self.queue if not (<Forwarded>kept).dropped])
        return 0

    def hold(self):
        """Until `release`, keep what is to be sent, so that it leaves together."""
        self.held = True

    def release(self):
        """Send what was kept."""
        self.held = False
        if self.out.size or self.queue:
            self.flush()

    cpdef int flush(self) except -1:
        """Send what waits, as far as the stream takes it."""
        cdef Forwarded one
        while True:
            while self.writable and self.queue and self.out.size < WRITE_BYTES:
                one = self.queue.popleft()
                if one.dropped:
                    continue
                put_request(&self.out, one.correlation, one.kind, one.deadline, one.asked_ms,
                            <const uint8_t*><const char*>one.context, len(one.context),
                            <const uint8_t*><const char*>one.payload, len(one.payload))
                one.sent = True
                self.queued -= 1
                self.queued_bytes -= len(one.payload)
                one.context = one.payload = None
            if self.out.size == 0:
                return 0
            self.write_out()
            if not self.writable or not self.queue:
                return 0

    cdef int write_out(self) except -1:
        self.write(taken(&self.out))
        return 0

    def cancel(self, uint64_t connection_id):
        """A client's connection is closed: forget its requests, and have the coordinator forget those already sent.

        One that clients send without waiting for the response is sent and executed nevertheless.
        """
        cdef Forwarded one
        cdef bint sent = False
        if not self.pending:
            return
        for one in [one for one in self.pending.values() if (<Forwarded>one).connection_id == connection_id]:
            sent = sent or one.sent
            if not one.sent and is_unawaited(<const uint8_t*><const char*>one.payload, len(one.payload)):
                del self.pending[one.correlation]
            else:
                self.forget(one)
        if sent and self.write is not None:
            self.enqueue_note(KIND_CANCEL, connection_id)
            if not self.held:
                self.flush()

    cdef int hang_up(self, uint64_t connection_id) except -1:
        """The client sends no more: have the coordinator know it, if a request of that connection is under way there."""
        cdef Forwarded one
        if self.write is None:
            return 0
        for one in self.pending.values():
            if one.connection_id == connection_id and one.sent:
                self.enqueue_note(KIND_HANG_UP, connection_id)
                if not self.held:
                    self.flush()
                return 0
        return 0

    cdef int enqueue_note(self, int kind, uint64_t connection_id) except -1:
        """Something for the coordinator to know that has no answer, behind all that was to be sent before."""
        cdef Forwarded one = Forwarded.__new__(Forwarded)
        cdef uint8_t[8] number
        one.kind = <uint8_t>kind
        one.connection_id = connection_id
        store64(number, connection_id)
        return self.enqueue(one, <bytes>(<const char*>number)[:8] + b"\0\0" + NO_TEXTS_BYTES * b"\xff", b"")

    cdef int look(self) except -1:
        """The coordinator has requests that waited long: look which of their clients are gone, and say when that is done.

        Requests of closed connections are cancelled before that.
        """
        cdef Forwarded one
        cdef list connections = [(<Forwarded>one).pending.connection for one in self.pending.values()
                                 if (<Forwarded>one).pending is not None]
        try:
            self.close_ended(connections)
        finally:
            if self.write is not None:
                self.enqueue_note(KIND_LOOKED, 0)
                if not self.held:
                    self.flush()
        return 0

    # -- the stream -----------------------------------------------------------------------------------------------------

    def opened(self, write not None):
        """There is a stream, which takes bytes by `write`: send what has waited."""
        self.cutter = FrameCutter()
        self.heard = False
        self.write = write
        self.writable = True
        self.out.size = 0
        if not self.held:
            self.flush()

    def pause_writing(self):
        """The coordinator takes no more for now: keep the rest, which may then still be cancelled."""
        self.writable = False

    def resume_writing(self):
        """Go on."""
        self.writable = self.write is not None
        if not self.held:
            self.flush()

    def lost(self):
        """The stream is gone: the requests that were sent on it, which nobody waits for an answer to from now on."""
        cdef Forwarded one
        cdef list sent = [one for one in self.pending.values() if (<Forwarded>one).sent]
        self.write = None
        self.writable = False
        self.out.size = 0
        for one in sent:
            self.pending.pop(one.correlation, None)
        for one in self.queue:
            if one.kind in (KIND_CANCEL, KIND_HANG_UP, KIND_LOOKED):    # they concern what was sent on the stream that is gone
                self.forget(one)
        return sent

    def due(self, double now):
        """The requests whose deadline has come; nobody waits for an answer to them from now on."""
        cdef Forwarded one
        cdef list found = [one for one in self.pending.values() if (<Forwarded>one).deadline <= now]
        for one in found:
            self.forget(one)
        return found

    def next_deadline(self):
        """The first of all; infinite without a request."""
        cdef Forwarded one
        cdef double first = INFINITY
        for one in self.pending.values():
            first = min(first, one.deadline)
        return first

    def forget_all(self):
        """No answer is passed on any more."""
        cdef Forwarded one
        for one in list(self.pending.values()):
            self.forget(one)
        self.queue.clear()

    cdef int forget(self, Forwarded one) except -1:
        self.pending.pop(one.correlation, None)
        if not one.sent and not one.dropped:    # its place in the queue goes when its turn comes
            one.dropped = True
            self.queued -= 1
            self.queued_bytes -= len(one.payload)
            one.context = one.payload = None
        return 0

    # -- answers --------------------------------------------------------------------------------------------------------

    def data_received(self, bytes data not None):
        """Answers."""
        cdef const uint8_t* frame
        cdef int64_t size
        cdef ReplyHead head
        cdef object one
        cdef FrameCutter cutter = self.cutter   # a new stream gets a new one
        self.heard = True
        try:
            try:
                cutter.begin(data)
                while cutter.next(&frame, &size):
                    read_reply(frame, size, &head)
                    if head.status == STATUS_LOOK:
                        self.look()
                        continue
                    one = self.pending.get(head.correlation)
                    if one is None:             # it was cancelled, or its deadline passed
                        continue
                    if not (<Forwarded>one).sent:
                        raise MalformedFrame(f"an answer to request {head.correlation}, which was not sent")
                    del self.pending[head.correlation]
                    self.answer(<Forwarded>one, &head)
            finally:
                cutter.finish()
        except (MalformedFrame, MemoryError) as error:
            self.protocol_error(error)
        self.settled()

    cdef int answer(self, Forwarded one, ReplyHead* head) except -1:
        """Pass an answer on. What goes wrong with it is its own request's affair."""
        cdef Pending pending = one.pending
        cdef int at, code
        try:
            if pending is None:
                self.replied(one.callback, head.status, head.metadata_version,
                             PyBytes_FromStringAndSize(<const char*>head.payload, head.payload_bytes))
                return 0
            if pending.cancelled:
                return 0
            if head.status != STATUS_OK:
                return self.refuse(one, "malformed" if head.status == 2 else "unsupported" if head.status == 3 else "failed")
            if self.topics is not None and head.metadata_version > self.topics.version:
                self.take_over()
            at = one.route.error_at
            if 0 <= at <= head.payload_bytes - 2:
                code = <int16_t>load16(head.payload + at)
                if code:
                    pending.failed(code)
            pending.complete_framed(head.payload, head.payload_bytes)
        except Exception:
            LOG.exception("an answer of the coordinator could not be passed on")
            if pending is not None and not pending.done:
                self.refuse(one, "an error in the broker, logged above")
        return 0

    def fail(self, Forwarded one not None, error not None):
        """There will be no answer, for this reason."""
        try:
            if one.pending is None:
                if one.callback is not None:
                    one.callback(error)
            elif not one.pending.cancelled:
                self.refuse(one, str(error))
        except Exception:
            LOG.exception("that a request has no answer could not be told")

    cdef int refuse(self, Forwarded one, why) except -1:
        cdef Connection connection = one.pending.connection
        connection.data_loop.close(connection, f"a {one.route.name} request has no answer: {why}")
        return 0
