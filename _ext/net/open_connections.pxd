"""The part of the data loop that limits the number and the age of the open connections, and ends each of them."""

from libc.stdint cimport int64_t

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport FrameHandler
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents


cdef class OpenConnections:
    """Owns the connections. Turns sets `in_turn`, and frees `graveyard` at the end of a turn."""
    cdef ResponseOutput responses
    cdef ResponseSender sender
    cdef readonly FrameHandler handler
    cdef BufferPool pool
    cdef SocketEvents events
    cdef readonly dict by_id                   # by connection_id
    cdef public int64_t idle_ms
    cdef public object on_closed
    cdef int64_t[10] closes_by_reason
    cdef public object failure_log             # (peer, text) -> the text to log or None; limits the lines about refused connections
    cdef public object protocol_log            # (peer, text) -> the text or None; for other protocols on listeners without TLS
    cdef public int64_t max_unauthenticated    # connections that have not authenticated yet: in all, and of one address
    cdef public int64_t max_unauthenticated_of_address
    cdef public int64_t authentication_timeout_ms   # from the beginning of a connection to its authentication
    cdef object unauthenticated                # OrderedDict: when each connection began (ms), in this order
    cdef dict unauthenticated_of               # by address (of IPv6 the network): a dict whose keys are its connections, in that order
    cdef dict crowd                            # the dict of the address that had most of them at the last search
    cdef int64_t crowd_sought_ms
    cdef bint in_turn
    cdef list graveyard                        # connections closed in this turn, which its events may still point to
    cdef int admit(self, Connection c) except -1
    cdef Connection oldest_silent(self, object connections)
    cdef Connection oldest_of_crowd(self, int64_t fair)
    cdef int forget_unauthenticated(self, Connection c) except -1
    cdef int close_now(self, Connection c, int reason, object text) except -1
    cdef int say_goodbye(self, Connection c) except -1
    # Logs the exception that is being handled, and closes the connection for which it was raised.
    cdef int fail(self, Connection c) except -1
    cdef void release_buffers(self, Connection c) noexcept
