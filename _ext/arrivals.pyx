"""Requests that workers forward, natively; see `arrivals.pxd`. Runs in the coordinator's loop.

What one read of a stream brings is handed over in its order; the answers that come meanwhile leave in one write after it.
"""

import logging

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int64_t, uint8_t, uint64_t

from broker._ext.cursor cimport buffer_free, buffer_init
from broker._ext.forward_frames cimport (
    KIND_CANCEL,
    KIND_METRICS,
    STATUS_FAILED,
    STATUS_OK,
    FrameCutter,
    RequestHead,
    put_reply,
    read_request,
    taken,
)
from broker._ext.forward_frames import MalformedFrame
from broker._ext.metering cimport FORWARDED_BYTES_IN, FORWARDED_BYTES_OUT, FORWARDED_REQUESTS, add, clock_us
from broker._ext.records cimport load16


LOG = logging.getLogger("odradek.forwarding")


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

    def drop(self):
        """Nobody is going to answer it."""
        cdef ArrivalStream stream = self.stream
        if stream is not None:
            self.stream = None
            stream.flight.gave_back(self.size)


cdef class InFlight:
    """:param max_bytes: beyond which `crowded` is called."""

    def __init__(self, int64_t max_bytes):
        self.max_bytes = max_bytes

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
        """It takes no more."""
        self.write = None
        self.out.size = 0

    def data_received(self, bytes data not None):
        """Requests."""
        cdef const uint8_t* frame
        cdef int64_t size
        cdef RequestHead head
        cdef double now = clock_us() / 1e6
        if self.write is None:                  # refused, or gone
            return
        self.reading = True                     # answers leave together
        try:
            try:
                self.cutter.begin(data)
                while self.cutter.next(&frame, &size):
                    read_request(frame, size, &head)
                    if head.kind == KIND_CANCEL:
                        self.cancel(head.connection_id)
                    elif head.deadline > now:   # else it waited in the socket until its worker gave up
                        self.arrive(&head, size)
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

    cdef int arrive(self, RequestHead* head, int64_t size) except -1:
        cdef Arrival one = Arrival.__new__(Arrival)
        one.context = self.decode_context(PyBytes_FromStringAndSize(<const char*>head.context, head.context_bytes))
        one.payload = PyBytes_FromStringAndSize(<const char*>head.payload, head.payload_bytes)
        one.deadline = head.deadline
        one.kind = head.kind
        one.connection_id = <int64_t>head.connection_id
        one.correlation = head.correlation
        one.size = size
        one.stream = self
        self.flight.took(size)
        if head.kind != KIND_METRICS:
            add(FORWARDED_REQUESTS, 1)
            add(FORWARDED_BYTES_IN, head.payload_bytes)
        try:                                    # but not before what its connection asked for earlier has begun
            if not (self.tasks_of and one.connection_id in self.tasks_of) and self.at_once(one):
                return 0
            self.begin_task(one)
        except Exception:
            LOG.exception("a forwarded request of %s failed", one.context.client)
            one.reply(STATUS_FAILED, 0, NULL, 0)
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
