"""The loop over a worker's connections, and top layer of the data loop: new connections, and turns."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.open_connections cimport OpenConnections


cdef class DataLoop(OpenConnections):
    """Top layer of the data loop. It owns the events of the epoll descriptor, and the order of a turn.

    It supplies hooks of the layers below: `flush_dirty` of ResponseOutput; `end_turn`, `update_interest` and `continue_later` of
    FrameReader. It requires nothing of a subclass.
    """
    cdef readonly bint stopping
    cdef list tls_listeners                    # TlsListener or None by index of the listener; None: no listener uses TLS
    cdef int again_fd                          # eventfd that is readable while `unread` is not empty; -1 without TLS
    cdef bint again
    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared)
    cdef int read_on(self) except -1
    cdef void end_clock(self) noexcept
    cdef int handle_event(self, Connection c, uint32_t events) except -1
    cdef int settle_dirty(self) except -1
