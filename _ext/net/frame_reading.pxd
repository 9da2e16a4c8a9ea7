"""The part of the data loop that offers the frames of connections to the handler, a `FrameHandler`, which executes them.

Guarantees for a FrameHandler: frames of a connection are offered in the order of arrival, one at a time, in the
loop's thread. The responses that it writes with `ResponseOutput.out_*`, and those of its Pendings, are sent in the
order in which they were written and reserved.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.late_requests cimport Standstill
from odradek._ext.net.sending cimport ResponseSender


cdef enum:
    PEEK_BYTES = 4096                  # received after a large frame: likely the head of another, which gets its own buffer


cdef class FrameHandler:
    """Executes frames. A DataLoop has one. Subclasses must supply `frame`, and may override the other methods.

    FrameReader calls `frame`, `flush` and `executes_late`; RequestReceiver and DataLoop `half_closed`; OpenConnections `closed`;
    KeptMemory `kept_bytes` and `forget`. Subclasses are RequestHandler in a worker, and PythonFrameHandler for tests and tools.
    """
    # Executes one complete frame, without its length field. `data` may be written to and stays valid until `flush` returns.
    # Returns a FrameResult. A handler that returned FRAME_JOINED executes the joined frames before it writes any other response.
    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1
    # Called after the last complete frame of a read, before the memory of any of its frames is used again.
    cdef int flush(self, Connection connection) except -1
    # The client sends no more but may still read: the handler can answer its long polls now.
    cdef int half_closed(self, Connection connection) except -1
    # The connection is closed. Called once; its Pendings are cancelled before.
    cdef int closed(self, Connection connection) except -1
    # Whether a frame is executed although it waited long and its client has ended the connection (late_requests.pxd).
    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept
    # Returns the bytes that the handler keeps for a connection between its requests, or for a delayed request of it.
    cdef int64_t kept_bytes(self, Connection connection) except -1
    # Drops the part of these that the next request can rebuild. Returns the number of dropped bytes.
    cdef int64_t forget(self, Connection connection) except -1


cdef class FrameReader:
    """Cuts received bytes into frames, and offers these to the handler. It owns the shared receive buffer, the limits of requests and of
    queued responses, and writes `ConnectionInput` and `FrameOffers` of each connection. RequestReceiver passes received bytes to `offer`;
    Turns calls `offer_held` and `release_holds`.
    """
    cdef ResponseOutput responses
    cdef ResponseSender sender
    cdef readonly FrameHandler handler
    cdef BufferPool pool
    cdef public int max_pending
    cdef int64_t max_queued_bytes
    cdef readonly int64_t count                # number of executed frames
    cdef readonly int64_t bad_frames
    cdef uint8_t* shared                       # receive buffer
    cdef int64_t shared_bytes
    cdef int64_t used_first                    # results of `offer`
    cdef int64_t used_second
    cdef Standstill standstill
    cdef int offer(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1
    cdef int64_t offer_frames(self, Connection c, uint8_t* data, int64_t n) except -1
    cdef int after_part(self, Connection c, int64_t extra) except -1
    cdef int offer_held(self, Connection c) except -1
    cdef void judge_unread(self, Connection c) noexcept
    cdef void judge_held(self, Connection c) noexcept
    cdef int keep(self, Connection c, uint8_t* data, int64_t n) except -1
    cdef bint refuse(self, Connection c, const uint8_t* data, int64_t size) except -1
    cdef void release_holds(self, Connection c) noexcept
    cdef bint queue_full(self, Connection c) noexcept
