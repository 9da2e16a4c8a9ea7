"""The loop over a worker's connections, and top layer of the data loop: turns, limits, closing of connections."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.frame_reading cimport FrameReader


cdef class DataLoop(FrameReader):
    """Top layer of the data loop. It owns the epoll descriptor, the connections, and the order of a turn.

    It supplies the hooks of the layers below: `flush_dirty`, `begin_close` and `close_now` of ResponseOutput, `end_turn` and
    `update_interest` of FrameReader. It requires nothing of a subclass.
    """
    cdef readonly dict connections             # by connection_id
    cdef public int64_t idle_ms
    cdef public object on_closed
    cdef readonly bint stopping
    cdef int64_t[10] closes_by_reason
    cdef public object failure_log             # (peer, text) -> the text to log or None; limits the lines about refused connections
    cdef public object protocol_log            # (peer, text) -> the text or None; for other protocols on listeners without TLS
    cdef public int64_t max_unauthenticated    # connections that have not authenticated yet: in all, and of one address
    cdef public int64_t max_unauthenticated_of_address
    cdef public int64_t authentication_timeout_ms   # for the authentication of a connection
    cdef list tls_listeners                    # TlsListener or None by index of the listener; None: no listener uses TLS
    cdef object unauthenticated                # OrderedDict: since when (ms) by connection, in the order of their beginning
    cdef dict unauthenticated_of               # by address (of IPv6 the network): a dict whose keys are its connections, in that order
    cdef dict crowd                            # that of the address that had most of them when it was last looked for
    cdef int64_t crowd_sought_ms
    cdef int again_fd                          # eventfd that is readable while `unread` is not empty; -1 without TLS
    cdef bint again
    cdef int epoll_fd
    cdef bint in_turn
    cdef list graveyard                        # connections closed in this turn, which its events may still point to
    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared)
    cdef int admit(self, Connection c) except -1
    cdef Connection oldest_of_crowd(self, int64_t fair)
    cdef int forget_unauthenticated(self, Connection c) except -1
    cdef int read_on(self) except -1
    cdef int say_goodbye(self, Connection c) except -1
    cdef void end_clock(self) noexcept
    cdef int handle_event(self, Connection c, uint32_t events) except -1
    cdef int settle_dirty(self) except -1
    cdef void release_buffers(self, Connection c) noexcept
