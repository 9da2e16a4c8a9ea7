"""Requests that workers forward, natively; see `arrivals.pxd`. Runs in the coordinator's loop.

What one read of a stream brings is handed over in its order; the answers that come meanwhile leave in one write after it.
"""

import logging

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.forward_frames cimport (
    KIND_CANCEL,
    KIND_HANG_UP,
    KIND_KAFKA,
    KIND_LOOKED,
    KIND_METRICS,
    STATUS_FAILED,
    STATUS_LOOK,
    STATUS_OK,
    FrameCutter,
    RequestHead,
    put_reply,
    read_request,
    taken,
)
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.late_requests cimport LATE_MS, beat, is_unawaited, look_at_clock, waited_too_long
from odradek._ext.records.record_batch cimport load16
from odradek._ext.shm.metering cimport FORWARDED_BYTES_IN, FORWARDED_BYTES_OUT, FORWARDED_REQUESTS, LATE_REQUESTS, add, clock_us


LOG = logging.getLogger("odradek.forwarding")

cdef enum:
    US_PER_MS = 1000
    US_PER_S = 1_000_000


@cython.final
@cython.freelist(256)
cdef class Arrival:
    @property
    def api_key(self):
        """Of a Kafka request; -1 for one that is too short to say."""
        cdef const uint8_t* at = <const uint8_t*><const char*>self.payload
        return <int16_t>load16(at) if len(self.payload) >= 2 else -1

    @property
    def answered(self):
        return self.stream is None

    def answer(self, bytes payload not None, uint64_t metadata_version=0, int status=STATUS_OK):
        """Answer; nothing if that was done, or if its worker is gone."""
        self.reply(status, metadata_version, <const uint8_t*><const char*>payload, len(payload))

    cdef int reply(self, int status, uint64_t metadata_version, const uint8_t* payload, int64_t size) except -1:
        cdef ArrivalStream stream = self.stream
        if stream is None:
            return 0
        self.stream = None
        if self.watched:
            stream.watched_no_more(self)
        stream.flight.gave_back(self.size)
        if stream.write is None:
            return 0
        if self.kind != KIND_METRICS:
            add(FORWARDED_BYTES_OUT, size)
        if not stream.reading and stream.out.size == 0:
            stream.flush_soon()
        put_reply(&stream.out, self.correlation, <uint8_t>status, metadata_version, payload, size)
        return 0

    def park(self):
        """It was read, and is answered later, when others have done something: it holds no bytes until then."""
        cdef ArrivalStream stream = self.stream
        if stream is not None:
            stream.flight.released(self.size)
            self.size = 0
        self.payload = b""

    def when_gone(self, callback not None):
        """Call `callback` if the client ends its connection, or its own direction of it, before the request is answered."""
        if self.stream is not None:
            self.watched = True
            self.stream.waiting_of.setdefault(self.connection_id, {})[self] = callback

    def drop(self):
        """Nobody is going to answer it."""
        cdef ArrivalStream stream = self.stream
        if stream is not None:
            if self.watched:
                stream.watched_no_more(self)
            self.stream = None
            stream.flight.gave_back(self.size)


cdef class InFlight:
    """:param max_bytes: beyond which `crowded` is called."""

    def __init__(self, int64_t max_bytes):
        self.max_bytes = max_bytes

    def tick(self):
        """Called every half second by the loop's timer: by its absence a standstill of the process is noticed."""
        beat(&self.standstill, clock_us() // US_PER_MS)

    def crowded(self, over):
        """Too much is under way; or, with `over` false, not any more."""
        raise NotImplementedError

    def idle(self):
        """Nothing is under way any more; called if `told_when_idle`."""
        raise NotImplementedError

    cdef int took(self, int64_t size) except -1:
        self.bytes_in_flight += size
        self.in_flight += 1
        if self.bytes_in_flight > self.max_bytes:
            self.crowded(True)
        return 0

    cdef int released(self, int64_t size) except -1:
        cdef bint over = self.bytes_in_flight > self.max_bytes
        self.bytes_in_flight -= size
        if over and self.bytes_in_flight <= self.max_bytes:
            self.crowded(False)
        return 0

    cdef int gave_back(self, int64_t size) except -1:
        self.released(size)
        self.in_flight -= 1
        if self.in_flight == 0 and self.told_when_idle:
            self.idle()
        return 0


cdef class ArrivalStream:
    """:param at_once: (Arrival): serves it if it can, at once, and says whether it does; its answer may come later.
    :param end_of_read: called after each read.
    :param decode_context: (bytes): what a request's context says, the same with each request of a connection. Raises MalformedFrame.
    """

    def __cinit__(self):
        buffer_init(&self.out)

    def __init__(self, InFlight flight not None, at_once, end_of_read, decode_context):
        self.flight = flight
        self.at_once = at_once
        self.end_of_read = end_of_read
        self.decode_context = decode_context
        self.tasks_of = {}
        self.waiting_of = {}
        self.cutter = FrameCutter()

    def __dealloc__(self):
        buffer_free(&self.out)

    # -- what the rest of it is asked -----------------------------------------------------------------------------------

    def begin_task(self, arrival):
        """Serve a request that is not served at once."""
        raise NotImplementedError

    def cancel(self, connection_id):
        """A client's connection is gone."""
        raise NotImplementedError

    def flush_soon(self):
        """Call `flush` in the loop's next turn."""
        raise NotImplementedError

    def close(self):
        """The stream is of no use any more."""
        raise NotImplementedError

    # -- the stream -----------------------------------------------------------------------------------------------------

    def opened(self, write not None):
        """It takes bytes by `write`."""
        self.write = write

    def lost(self):
        """It takes no more. The worker is gone, and with it the connections whose requests are in doubt."""
        self.write = None
        self.out.size = 0
        self.doubtful = None
        for connection_id in list(self.waiting_of):
            self.client_gone(connection_id)

    def data_received(self, bytes data not None):
        """Requests."""
        cdef const uint8_t* frame
        cdef int64_t size
        cdef RequestHead head
        cdef int64_t now_us = clock_us()
        if self.write is None:                  # refused, or gone
            return
        look_at_clock(&self.flight.standstill, now_us // US_PER_MS)
        self.reading = True                     # answers leave together
        try:
            try:
                self.cutter.begin(data)
                while self.cutter.next(&frame, &size):
                    read_request(frame, size, &head)
                    self.read_frame(&head, size, now_us)
            finally:
                self.cutter.finish()
        except (MalformedFrame, MemoryError) as error:
            LOG.error("a worker sent what is no frame, its stream is dropped: %s", error)
            self.close()
        try:
            self.end_of_read()
        except Exception:
            LOG.exception("the end of a read of forwarded requests")
        finally:
            self.reading = False
        self.flush()

    def flush(self):
        """Send the answers that were kept."""
        if self.out.size:
            data = taken(&self.out)
            if self.write is not None:
                self.write(data)

    cdef int read_frame(self, RequestHead* head, int64_t size, int64_t now_us) except -1:
        if head.kind == KIND_CANCEL:
            self.client_gone(<int64_t>head.connection_id)
            self.drop_doubtful(<int64_t>head.connection_id)
            self.cancel(head.connection_id)
        elif head.kind == KIND_HANG_UP:
            self.client_gone(<int64_t>head.connection_id)
        elif head.kind == KIND_LOOKED:
            self.serve_doubtful()
        elif head.deadline * US_PER_S > now_us:     # else it waited in the socket until its worker gave up
            if self.doubtful is None and head.kind != KIND_METRICS \
                    and waited_too_long(&self.flight.standstill, head.asked_ms, now_us // US_PER_MS):
                self.have_looked()
            if self.doubtful is None:
                self.serve(self.arrival_of(head, size))
            else:
                self.doubtful.append(self.arrival_of(head, size))
        return 0

    # -- requests that waited long --------------------------------------------------------------------------------------

    cdef int have_looked(self) except -1:
        """Have the worker look which clients are gone; what it forwarded before it has looked is served after that."""
        self.doubtful = []
        if not self.reading and self.out.size == 0:
            self.flush_soon()
        return put_reply(&self.out, 0, STATUS_LOOK, 0, NULL, 0)

    cdef int drop_doubtful(self, int64_t connection_id) except -1:
        """The client is gone, and its requests waited too long to be executed, but for those that it sent as its last."""
        cdef Arrival one
        cdef list kept
        if not self.doubtful:
            return 0
        kept = [one for one in self.doubtful if (<Arrival>one).connection_id != connection_id or (<Arrival>one).unawaited]
        if len(kept) < len(self.doubtful):
            add(LATE_REQUESTS, len(self.doubtful) - len(kept))
            for one in self.doubtful:
                if one.connection_id == connection_id:
                    LOG.info("%d request(s) of %s were not executed: they had waited for over %d s when the client had closed "
                             "the connection", len(self.doubtful) - len(kept), one.context.client, LATE_MS // 1000)
                    break
            self.doubtful = kept
        return 0

    cdef int serve_doubtful(self) except -1:
        """The worker has looked: what it did not cancel is served."""
        cdef Arrival one
        cdef list waiting = self.doubtful
        self.doubtful = None
        if waiting is not None:
            for one in waiting:
                if one.deadline * US_PER_S > clock_us():
                    self.serve(one)
        return 0

    # -- requests ---------------------------------------------------------------------------------------------------------

    cdef Arrival arrival_of(self, RequestHead* head, int64_t size):
        cdef Arrival one = Arrival.__new__(Arrival)
        one.context = self.decode_context(PyBytes_FromStringAndSize(<const char*>head.context, head.context_bytes))
        one.payload = PyBytes_FromStringAndSize(<const char*>head.payload, head.payload_bytes)
        one.deadline = head.deadline
        one.kind = head.kind
        one.connection_id = <int64_t>head.connection_id
        one.correlation = head.correlation
        one.size = size
        one.unawaited = head.kind == KIND_KAFKA and is_unawaited(head.payload, head.payload_bytes)
        return one

    cdef int serve(self, Arrival one) except -1:
        one.stream = self
        self.flight.took(one.size)
        if one.kind != KIND_METRICS:
            add(FORWARDED_REQUESTS, 1)
            add(FORWARDED_BYTES_IN, len(one.payload))
        try:                                    # but not before what its connection asked for earlier has begun
            if not (self.tasks_of and one.connection_id in self.tasks_of) and self.at_once(one):
                return 0
            self.begin_task(one)
        except Exception:
            LOG.exception("a forwarded request of %s failed", one.context.client)
            one.reply(STATUS_FAILED, 0, NULL, 0)
        return 0

    # -- clients that go away -------------------------------------------------------------------------------------------

    def client_gone(self, connection_id):
        """A client sends no more on its connection: call whoever asked for it with `Arrival.when_gone`."""
        for callback in self.waiting_of.pop(connection_id, {}).values():
            try:
                callback()
            except Exception:
                LOG.exception("after the end of a client's connection")

    cdef int watched_no_more(self, Arrival one) except -1:
        waiting = self.waiting_of.get(one.connection_id)
        if waiting is not None:
            waiting.pop(one, None)
            if not waiting:
                del self.waiting_of[one.connection_id]
        return 0

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def task_began(self, int64_t connection_id):
        """A request of that connection is served by a task: those behind it are, too, until it ends."""
        self.tasks_of[connection_id] = self.tasks_of.get(connection_id, 0) + 1

    def task_ended(self, int64_t connection_id):
        """Likewise."""
        self.tasks_of[connection_id] -= 1
        if not self.tasks_of[connection_id]:
            del self.tasks_of[connection_id]
