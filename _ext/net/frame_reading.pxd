"""Frames of connections, and who executes them.

What a FrameHandler may rely on: frames of a connection are offered in the order of arrival, one at a time, in the
loop's thread; whatever it writes with `data_loop.out_*`, and whatever its Pendings are completed with, leaves in the
order in which it was written and reserved.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport Connection
from odradek._ext.net.late_requests cimport Standstill
from odradek._ext.net.sending cimport Sending


cdef enum:
    PEEK_BYTES = 4096                  # received behind a large frame: likely the head of another, to be read in place


cdef class FrameHandler:
    """Executes frames. One a DataLoop; subclassed."""
    # One complete frame without its length. `data` may be written to and stays valid until `flush` returns. Returns a
    # FrameResult. A handler that joined frames executes these before it writes any other response.
    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1
    # After the last complete frame of a read, and before the memory of any frame is used again.
    cdef int flush(self, Connection connection) except -1
    # The peer sends no more but may read yet: a good moment to answer its long polls.
    cdef int half_closed(self, Connection connection) except -1
    # CachedContext once; its Pendings are cancelled already.
    cdef int closed(self, Connection connection) except -1
    # Whether a frame is executed though it waited long and its client has ended the connection (late_requests.pxd).
    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept
    # Bytes that the handler keeps for a connection between its requests, or for one that waits.
    cdef int64_t kept_bytes(self, Connection connection) except -1
    # Drop of these what the next request can make again. Returns how many bytes.
    cdef int64_t forget(self, Connection connection) except -1


cdef class FrameReading(Sending):
    cdef readonly FrameHandler handler
    cdef readonly BufferPool pool
    cdef public int64_t max_request_bytes
    cdef public int max_pending
    cdef public int64_t max_queued_bytes
    cdef readonly int64_t bytes_in
    cdef readonly int64_t frames
    cdef readonly int64_t bad_frames
    cdef uint8_t* shared                       # receive buffer
    cdef int64_t shared_bytes
    cdef int64_t used_first
    cdef int64_t used_second
    cdef int64_t turn_us                       # metering: when the turn began
    cdef Standstill standstill
    cdef int readable(self, Connection c) except -1
    cdef int end_of_stream(self, Connection c) except -1
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
    cdef int end_turn(self, Connection c) except -1
    cdef int update_interest(self, Connection c, bint force) except -1
