"""Reception of the requests that workers forward; see `arrivals.pxd`. Runs in the coordinator's event loop.

The requests of one read of a stream are served in their order; the answers that become ready meanwhile are sent in one write after it.
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
from odradek._ext.protocol.byte_order cimport load16
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.net.late_requests cimport LATE_MS, beat, is_unawaited, look_at_clock, waited_too_long
from odradek._ext.shm.metering cimport FORWARDED_BYTES_IN, FORWARDED_BYTES_OUT, FORWARDED_REQUESTS, LATE_REQUESTS, add, clock_us


LOG = logging.getLogger("odradek.forwarding")

cdef enum:
    US_PER_MS = 1000
    US_PER_S = 1_000_000


@cython.final
@cython.freelist(256)
cdef class Arrival:
    @property
    def api_key(self) -> int:
        """API key of a Kafka request; -1 if the payload is too short to hold one."""
        cdef const uint8_t* at = <const uint8_t*><const char*>self.payload
        return <int16_t>load16(at) if len(self.payload) >= 2 else -1

    @property
    def answered(self) -> bool:
        return self.stream is None

    def answer(self, bytes payload not None, uint64_t metadata_version=0, int status=STATUS_OK) -> None:
        """Answer the request. Does nothing if it was answered before, or if the worker's stream is closed."""
        self.reply(status, metadata_version, <const uint8_t*><const char*>payload, len(payload))

    cdef int reply(self, int status, uint64_t metadata_version, const uint8_t* payload, int64_t size) except -1:
        cdef ArrivalStream stream = self.stream
        if stream is None:
            return 0
        self.stream = None
        if self.watched:
            stream.stop_watching(self)
        stream.flight.end_request(self.size)
        if stream.write is None:
            return 0
        if self.kind != KIND_METRICS:
            add(FORWARDED_BYTES_OUT, size)
        if not stream.reading and stream.out.size == 0:
            stream.flush_soon()
        if self.began_us:
            self.work_us += clock_us() - self.began_us
        put_reply(&stream.out, self.correlation, <uint8_t>status, metadata_version, payload, size, self.work_us, self.throttle_ms)
        return 0

    def park(self) -> None:
        """Release the payload of a decoded request that waits for other events. Until its answer it counts no bytes in flight."""
        cdef ArrivalStream stream = self.stream
        if stream is not None:
            stream.flight.release_bytes(self.size)
            self.size = 0
        self.payload = b""

    def when_gone(self, callback not None) -> None:
        """Call `callback` if the client ends its connection, or its own direction of it, before the request is answered."""
        if self.stream is not None:
            self.watched = True
            self.stream.waiting_of.setdefault(self.connection_id, {})[self] = callback

    def drop(self) -> None:
        """Forget the request: no answer is sent."""
        cdef ArrivalStream stream = self.stream
        if stream is not None:
            if self.watched:
                stream.stop_watching(self)
            self.stream = None
            stream.flight.end_request(self.size)


cdef class InFlight:
    """Counts the requests in flight on all streams of the coordinator. A subclass supplies `crowded` and `idle`.

    :param max_bytes: limit of the bytes in flight; above it `crowded(True)` is called.
    """

    def __init__(self, int64_t max_bytes):
        self.max_bytes = max_bytes

    def tick(self) -> None:
        """Called every half second by the loop's timer. Missing calls show that the process stood still (late_requests.pxd)."""
        beat(&self.standstill, clock_us() // US_PER_MS)

    def crowded(self, over) -> None:
        """The bytes in flight exceed `max_bytes`; with `over` false, they no longer do."""
        raise NotImplementedError

    def idle(self) -> None:
        """The last request in flight was answered or dropped. Called only if `report_idle` is set."""
        raise NotImplementedError

    cdef int begin_request(self, int64_t size) except -1:
        self.bytes_in_flight += size
        self.in_flight += 1
        if self.bytes_in_flight > self.max_bytes:
            self.crowded(True)
        return 0

    cdef int release_bytes(self, int64_t size) except -1:
        cdef bint over = self.bytes_in_flight > self.max_bytes
        self.bytes_in_flight -= size
        if over and self.bytes_in_flight <= self.max_bytes:
            self.crowded(False)
        return 0

    cdef int end_request(self, int64_t size) except -1:
        self.release_bytes(size)
        self.in_flight -= 1
        if self.in_flight == 0 and self.report_idle:
            self.idle()
        return 0


cdef class ArrivalStream:
    """One worker's stream. A subclass supplies `begin_task`, `cancel`, `flush_soon` and `close`.

    :param at_once: (Arrival): serves a request without a task if it can, and returns whether it does; the answer may come later.
    :param end_of_read: called after each read of the stream.
    :param decode_context: (bytes): decodes the request context, which is equal in all requests of a connection until its client
        changes. Raises MalformedFrame.
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

    # -- methods that the subclass supplies -----------------------------------------------------------------------------

    def begin_task(self, arrival) -> None:
        """Serve with a task a request that `at_once` did not serve."""
        raise NotImplementedError

    def cancel(self, connection_id) -> None:
        """A client's connection is closed: cancel the tasks of its requests."""
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Call `flush` in the loop's next turn."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the stream: it sent a malformed frame, or memory ran out."""
        raise NotImplementedError

    # -- the stream -----------------------------------------------------------------------------------------------------

    def opened(self, write not None) -> None:
        """The stream is connected, and `write` sends bytes to the worker."""
        self.write = write

    def lost(self) -> None:
        """The stream is closed: the worker has ended, and with it the connections of the requests in `unchecked`, which are dropped."""
        self.write = None
        self.out.size = 0
        self.unchecked = None
        for connection_id in list(self.waiting_of):
            self.client_gone(connection_id)

    def data_received(self, bytes data not None) -> None:
        """Handle the frames in `data`; an incomplete last frame is kept for the next call."""
        cdef const uint8_t* frame
        cdef int64_t size
        cdef RequestHead head
        cdef int64_t now_us = clock_us()
        if self.write is None:                  # the peer was refused, or the stream is closed
            return
        look_at_clock(&self.flight.standstill, now_us // US_PER_MS)
        self.reading = True                     # answers are gathered until the end of the read
        try:
            try:
                self.cutter.begin(data)
                while self.cutter.next(&frame, &size):
                    read_request(frame, size, &head)
                    self.read_frame(&head, size, now_us)
            finally:
                self.cutter.finish()
        except (MalformedFrame, MemoryError) as error:
            LOG.error("a worker sent a malformed frame: %s; closing its stream", error)
            self.close()
        try:
            self.end_of_read()
        except Exception:
            LOG.exception("the callback at the end of a read of forwarded requests failed; continuing with the next read")
        finally:
            self.reading = False
        self.flush()

    def flush(self) -> None:
        """Send the answers gathered so far in one write."""
        if self.out.size:
            data = taken(&self.out)
            if self.write is not None:
                self.write(data)

    cdef int read_frame(self, RequestHead* head, int64_t size, int64_t now_us) except -1:
        if head.kind == KIND_CANCEL:
            self.client_gone(<int64_t>head.connection_id)
            self.drop_unchecked(<int64_t>head.connection_id)
            self.cancel(head.connection_id)
        elif head.kind == KIND_HANG_UP:
            self.client_gone(<int64_t>head.connection_id)
        elif head.kind == KIND_LOOKED:
            self.serve_unchecked()
        elif head.deadline * US_PER_S > now_us:     # else it was in the socket until its worker gave up: not executed
            if self.unchecked is None and head.kind != KIND_METRICS \
                    and waited_too_long(&self.flight.standstill, head.forwarded_ms, now_us // US_PER_MS):
                self.request_client_check()
            if self.unchecked is None:
                self.serve(self.arrival_of(head, size))
            else:
                self.unchecked.append(self.arrival_of(head, size))
        return 0

    # -- late requests (docs/decisions/0021-late-requests.md) -----------------------------------------------------------

    cdef int request_client_check(self) except -1:
        """Ask the worker to check which clients disconnected. Requests that it forwarded before the check are held until its result."""
        self.unchecked = []
        if not self.reading and self.out.size == 0:
            self.flush_soon()
        return put_reply(&self.out, 0, STATUS_LOOK, 0, NULL, 0, 0, 0)

    cdef int drop_unchecked(self, int64_t connection_id) except -1:
        """Drop the held requests of a client that disconnected: they waited too long to be executed. Requests for which clients
        do not await the response are kept, since a client sends such a request as its last one.
        """
        cdef Arrival arrival
        cdef list kept
        if not self.unchecked:
            return 0
        kept = [arrival for arrival in self.unchecked if (<Arrival>arrival).connection_id != connection_id or (<Arrival>arrival).unawaited]
        if len(kept) < len(self.unchecked):
            add(LATE_REQUESTS, len(self.unchecked) - len(kept))
            for arrival in self.unchecked:
                if arrival.connection_id == connection_id:
                    LOG.info("%d request(s) of %s were not executed: they had waited for over %d s when the client had closed "
                             "the connection", len(self.unchecked) - len(kept), arrival.context.client, LATE_MS // 1000,
                             extra=arrival.context.log_fields)
                    break
            self.unchecked = kept
        return 0

    cdef int serve_unchecked(self) except -1:
        """The worker has checked its clients: serve the held requests that it did not cancel."""
        cdef Arrival arrival
        cdef list held = self.unchecked
        self.unchecked = None
        if held is not None:
            for arrival in held:
                if arrival.deadline * US_PER_S > clock_us():
                    self.serve(arrival)
        return 0

    # -- requests ---------------------------------------------------------------------------------------------------------

    cdef Arrival arrival_of(self, RequestHead* head, int64_t size):
        cdef Arrival arrival = Arrival.__new__(Arrival)
        arrival.context = self.decode_context(PyBytes_FromStringAndSize(<const char*>head.context, head.context_bytes))
        arrival.payload = PyBytes_FromStringAndSize(<const char*>head.payload, head.payload_bytes)
        arrival.deadline = head.deadline
        arrival.kind = head.kind
        arrival.connection_id = <int64_t>head.connection_id
        arrival.correlation = head.correlation
        arrival.size = size
        arrival.unawaited = head.kind == KIND_KAFKA and is_unawaited(head.payload, head.payload_bytes)
        return arrival

    cdef int serve(self, Arrival arrival) except -1:
        arrival.stream = self
        self.flight.begin_request(arrival.size)
        if arrival.kind != KIND_METRICS:
            add(FORWARDED_REQUESTS, 1)
            add(FORWARDED_BYTES_IN, len(arrival.payload))
        try:                                    # while a task serves an earlier request of the connection, a task serves this one
            if not (self.tasks_of and arrival.connection_id in self.tasks_of):
                arrival.began_us = clock_us()
                if self.at_once(arrival):
                    arrival.work_us += clock_us() - arrival.began_us
                    arrival.began_us = 0
                    return 0
                arrival.began_us = 0
            self.begin_task(arrival)
        except Exception:
            LOG.exception("a forwarded request of %s failed", arrival.context.client, extra=arrival.context.log_fields)
            arrival.reply(STATUS_FAILED, 0, NULL, 0)
        return 0

    # -- clients that disconnect ----------------------------------------------------------------------------------------

    def client_gone(self, connection_id) -> None:
        """A client closed its connection, or its own direction of it: run the callbacks of `Arrival.when_gone`."""
        for callback in self.waiting_of.pop(connection_id, {}).values():
            try:
                callback()
            except Exception:
                LOG.exception("a callback for the end of a client's connection failed; running the next one")

    cdef int stop_watching(self, Arrival arrival) except -1:
        waiting = self.waiting_of.get(arrival.connection_id)
        if waiting is not None:
            waiting.pop(arrival, None)
            if not waiting:
                del self.waiting_of[arrival.connection_id]
        return 0

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def task_began(self, int64_t connection_id) -> None:
        """A task serves a request of this connection: tasks serve its later requests too, until that task ends."""
        self.tasks_of[connection_id] = self.tasks_of.get(connection_id, 0) + 1

    def task_ended(self, int64_t connection_id) -> None:
        """A task that served a request of this connection ended."""
        self.tasks_of[connection_id] -= 1
        if not self.tasks_of[connection_id]:
            del self.tasks_of[connection_id]
