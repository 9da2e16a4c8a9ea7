"""The loop over a worker's connections, and top layer of the data loop: turns, limits, closing of connections."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.frame_reading cimport FrameReader


# Supplies all methods that the layers below require of a subclass; needs none itself.
cdef class DataLoop(FrameReader):
    cdef readonly dict connections             # by connection_id
    cdef public int64_t idle_ms
    cdef public object on_closed
    cdef readonly bint stopping
    cdef int64_t[9] closes_by_reason
    cdef int epoll_fd
    cdef bint in_turn
    cdef list graveyard                        # connections closed in this turn, which its events may still point to
    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer)
    cdef void end_clock(self) noexcept
    cdef int handle_event(self, Connection c, uint32_t events) except -1
    cdef int settle_dirty(self) except -1
    cdef int fail(self, Connection c) except -1
    cdef void release_buffers(self, Connection c) noexcept
