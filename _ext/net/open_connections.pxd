"""Fourth layer of the data loop: the open connections, the limits of their number and age, and the end of each of them."""

from libc.stdint cimport int64_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.frame_reading cimport FrameReader


cdef class OpenConnections(FrameReader):
    """It owns the connections, and closes the epoll descriptor that DataLoop opens and registers them with.

    It supplies hooks of the layers below: `begin_close` and `close_now` of ResponseOutput, `authenticated` and `fail` of FrameReader. It
    requires no other hooks than they do. DataLoop calls `admit` and `release_buffers`, and sets `in_turn`: closed connections stay in
    `graveyard` until the turn ends.
    """
    cdef readonly dict connections             # by connection_id
    cdef public int64_t idle_ms
    cdef public object on_closed
    cdef int64_t[10] closes_by_reason
    cdef public object failure_log             # (peer, text) -> the text to log or None; limits the lines about refused connections
    cdef public object protocol_log            # (peer, text) -> the text or None; for other protocols on listeners without TLS
    cdef public int64_t max_unauthenticated    # connections that have not authenticated yet: in all, and of one address
    cdef public int64_t max_unauthenticated_of_address
    cdef public int64_t authentication_timeout_ms   # for the authentication of a connection
    cdef object unauthenticated                # OrderedDict: since when (ms) by connection, in the order of their beginning
    cdef dict unauthenticated_of               # by address (of IPv6 the network): a dict whose keys are its connections, in that order
    cdef dict crowd                            # that of the address that had most of them when it was last looked for
    cdef int64_t crowd_sought_ms
    cdef int epoll_fd
    cdef bint in_turn
    cdef list graveyard                        # connections closed in this turn, which its events may still point to
    cdef int admit(self, Connection c) except -1
    cdef Connection oldest_silent(self, object connections)
    cdef Connection oldest_of_crowd(self, int64_t fair)
    cdef int forget_unauthenticated(self, Connection c) except -1
    cdef int say_goodbye(self, Connection c) except -1
    cdef void release_buffers(self, Connection c) noexcept
