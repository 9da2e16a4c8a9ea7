"""Reading of requests: received bytes are cut into frames, which are offered to the handler in order, without copying them.

Runs in a worker's event loop; `receiving.pyx` receives the bytes. No Python object is made for a frame. A connection owns a
buffer only while it has a part of a frame, or frames that are held (`hold`). Input may be hostile: a frame's length is checked
before memory is allocated for it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from odradek._ext.net.buffers cimport Buffer, BufferPool
from odradek._ext.net.connection cimport (
    CLOSE_BAD_FRAME,
    CLOSE_HANDLER,
    CLOSE_OTHER_PROTOCOL,
    FRAME_CLOSE,
    FRAME_DEFER,
    FRAME_JOINED,
    FRAME_PENDING,
    HOLD_BACKPRESSURE,
    HOLD_DEFER,
    Connection,
    ResponseOutput,
)
from odradek._ext.net.late_requests cimport ended_by_peer, last_arrival_age_ms, waited_too_long
from odradek._ext.net.other_protocols cimport other_protocol
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.protocol.byte_order cimport load32
from odradek._ext.shm.metering cimport BAD_FRAMES, FRAMES, LATE_REQUESTS, METER_KEY_UNKNOWN, add, clock_us


cdef enum:
    OUT_DELIVERED = 256 * 1024         # responses are sent before the end of a read if they exceed this many bytes
    MAX_OUT_NODES = 4096               # with so many queued spans and slices, back-pressure holds a connection
    SMALLEST_FRAME = 8                 # api key, version, correlation id


cdef class FrameHandler:

    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        raise NotImplementedError("a FrameHandler must define frame")

    cdef int flush(self, Connection connection) except -1:
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        return 0

    cdef int closed(self, Connection connection) except -1:
        return 0

    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept:
        return True

    cdef int64_t kept_bytes(self, Connection connection) except -1:
        return 0

    cdef int64_t forget(self, Connection connection) except -1:
        return 0


cdef class PythonFrameHandler(FrameHandler):
    """A FrameHandler in Python, for tests and tools. A subclass supplies on_frame(connection, bytes) -> FrameResult, and may
    override on_flush(connection), on_half_closed(connection) and on_closed(connection).
    """

    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        return self.on_frame(connection, (<char*>data)[:size])

    cdef int flush(self, Connection connection) except -1:
        self.on_flush(connection)
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        self.on_half_closed(connection)
        return 0

    cdef int closed(self, Connection connection) except -1:
        self.on_closed(connection)
        return 0

    def on_flush(self, connection) -> None:
        """Called after all frames of a read were offered."""

    def on_half_closed(self, connection) -> None:
        """Called when the client has closed its direction of the connection."""

    def on_closed(self, connection) -> None:
        """Called when the connection is closed."""


cdef class FrameReader:

    def __cinit__(self, ResponseOutput responses not None, ResponseSender sender not None, FrameHandler handler not None,
                  BufferPool pool not None, *, int64_t receive_buffer_bytes, int max_pending, int64_t max_queued_bytes):
        self.responses = responses
        self.sender = sender
        self.handler = handler
        self.pool = pool
        self.max_pending = max_pending
        self.max_queued_bytes = max_queued_bytes
        self.shared_bytes = receive_buffer_bytes
        self.shared = <uint8_t*>malloc(receive_buffer_bytes)
        if self.shared == NULL:
            raise MemoryError("no memory for the shared receive buffer")

    def __dealloc__(self):
        free(self.shared)

    cdef int offer(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1:
        """Offer the frames in `first`, then those in `second`. Sets used_first and used_second to the bytes consumed."""
        self.responses.current = c
        self.responses.out_length = self.responses.out_base = 0
        self.responses.began_us = self.responses.clock
        self.responses.api = METER_KEY_UNKNOWN
        c.frames.joined = c.frames.offered = False
        self.used_second = 0
        self.used_first = self.offer_frames(c, first, first_n)
        if second_n and c.fd >= 0 and self.used_first == first_n:
            self.used_second = self.offer_frames(c, second, second_n)
        if c.frames.offered and c.fd >= 0:
            self.handler.flush(c)
            if c.frames.joined and c.pending_count == 0:
                c.frames.resumed = True   # a deferred frame waited for the joined frames, which left no Pending
        if self.responses.turn_kinds:
            self.responses.executed_us = clock_us()
        return 0

    cdef int64_t offer_frames(self, Connection c, uint8_t* data, int64_t n) except -1:
        cdef int64_t at = 0, size
        cdef int result
        while n - at >= 4 and not c.frames.hold:
            size = <int64_t><int32_t>load32(data + at)
            if size < SMALLEST_FRAME or size > c.frames.most_bytes or not c.frames.greeted:
                if self.refuse(c, data + at, size):
                    break
            if n - at - 4 < size:
                break
            c.frames.resumed = False
            if c.frames.late and not self.handler.executes_late(data + at + 4, size):
                c.frames.skipped += 1
                add(LATE_REQUESTS, 1)
                at += 4 + size
                continue
            result = self.handler.frame(c, data + at + 4, size)
            if result != FRAME_DEFER:
                self.count += 1
                add(FRAMES, 1)
                c.input.unused_bytes -= 4 + size
                if result != FRAME_PENDING:
                    self.responses.executed(self.responses.api)
            if c.fd < 0:
                break
            if result == FRAME_DEFER:
                c.frames.hold |= HOLD_DEFER
                break
            at += 4 + size
            c.frames.offered = c.frames.greeted = True
            c.input.large = size > self.shared_bytes // 4
            if result == FRAME_JOINED:
                c.frames.joined = True
            elif result == FRAME_CLOSE:
                c.begin_close(CLOSE_HANDLER, c.close_reason or "the handler of a request closed it")
                break
            if self.responses.out_length > OUT_DELIVERED:
                self.sender.deliver(c)
                if c.fd < 0:
                    break
            if self.queue_full(c):
                c.frames.hold |= HOLD_BACKPRESSURE
        return at

    cdef int keep(self, Connection c, uint8_t* data, int64_t n) except -1:
        """Keep `n` bytes that were not consumed: a part of a frame, or, during a hold, all of them."""
        if n == 0 or c.state.closing:
            return 0
        if c.frames.hold:
            self.pool.take(&c.input.held, n)
            memcpy(c.input.held.data, data, n)
            c.input.held.end = n
        elif n < 4:
            memcpy(c.input.size_bytes, data, n)
            c.input.size_have = n
        else:
            c.input.part_bytes = 4 + <int64_t><int32_t>load32(data)
            c.input.large = c.input.part_bytes > self.shared_bytes // 4
            self.pool.take(&c.input.part, max(c.input.part_bytes, n))
            memcpy(c.input.part.data, data, n)
            c.input.part.end = n
            c.input.part_since_ms = self.responses.now_ms
        return 0

    cdef int after_part(self, Connection c, int64_t extra) except -1:
        """Keep the bytes that were not consumed, of `part` and of the `extra` bytes after it in the shared buffer."""
        cdef Buffer part = c.input.part     # without data if `move_part` has moved it
        cdef int64_t rest = extra - self.used_second
        memset(&c.input.part, 0, sizeof(Buffer))
        if self.used_first == c.input.part_bytes:
            self.pool.give(&part)
            return self.keep(c, self.shared + self.used_second, rest)
        if c.state.closing:
            self.pool.give(&part)
            return 0
        c.input.held = part
        if rest:
            self.pool.take(&c.input.held, part.end + rest)
            memcpy(c.input.held.data, part.data, part.end)
            memcpy(c.input.held.data + part.end, self.shared, rest)
            c.input.held.end = part.end + rest
            self.pool.give(&part)
        return 0

    cdef void judge_unread(self, Connection c) noexcept:
        """The client has ended the connection: set `late` if the unread requests have waited too long to be executed."""
        cdef int64_t age
        if not c.frames.late:
            age = last_arrival_age_ms(c.fd)
            c.frames.late = age >= 0 and waited_too_long(&self.standstill, self.responses.now_ms - age, self.responses.now_ms)

    cdef void judge_held(self, Connection c) noexcept:
        """Set `late` if the held frames have waited too long for other requests, and the client has ended the connection."""
        cdef int64_t read_ms = c.input.received_us // 1000
        if c.frames.late or not waited_too_long(&self.standstill, read_ms, self.responses.now_ms):
            return
        c.frames.late = c.state.peer_finished or (read_ms <= self.standstill.resumed_ms and ended_by_peer(c.fd))

    cdef int offer_held(self, Connection c) except -1:
        cdef Buffer held
        self.judge_held(c)
        self.offer(c, c.input.held.data + c.input.held.start, c.input.held.end - c.input.held.start, NULL, 0)
        c.input.held.start += self.used_first
        if c.fd < 0 or (c.frames.hold and not c.state.closing and c.input.held.start < c.input.held.end):
            return 0
        held = c.input.held
        memset(&c.input.held, 0, sizeof(Buffer))
        try:
            self.keep(c, held.data + held.start, held.end - held.start)
        finally:
            self.pool.give(&held)
        return 0

    cdef bint refuse(self, Connection c, const uint8_t* data, int64_t size) except -1:
        """Return whether a frame of this length must not be read. If so, begin to close the connection."""
        text = None if c.frames.greeted else other_protocol(data)
        if text is not None:
            c.begin_close(CLOSE_OTHER_PROTOCOL, text)
            return True
        if (SMALLEST_FRAME if c.gate is None else 0) <= size <= c.frames.most_bytes:   # the tokens of a login have no header
            return False
        self.bad_frames += 1
        add(BAD_FRAMES, 1)
        c.begin_close(CLOSE_BAD_FRAME,
                      f"the client sent a frame of {size} bytes, allowed are {SMALLEST_FRAME} to {c.frames.most_bytes}")
        return True

    cdef bint queue_full(self, Connection c) noexcept:
        return (c.pending_count >= self.max_pending or c.output.queue.count >= MAX_OUT_NODES
                or c.output.queue.span_bytes + c.output.waiting_bytes >= self.max_queued_bytes)

    cdef void release_holds(self, Connection c) noexcept:
        if c.frames.hold & HOLD_BACKPRESSURE:
            if (c.pending_count <= self.max_pending // 2 and c.output.queue.count <= MAX_OUT_NODES // 2
                    and c.output.queue.span_bytes + c.output.waiting_bytes <= self.max_queued_bytes // 2):
                c.frames.hold &= ~HOLD_BACKPRESSURE
        if c.frames.resumed:
            c.frames.resumed = False
            c.frames.hold &= ~HOLD_DEFER
