"""The part of the data loop that ends the turn of a connection, and that of the loop."""

from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport FrameReader
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents


cdef class Turns:
    """A turn of the loop handles one batch of events, and then ends the turns of the dirty connections. RequestReceiver and
    DataLoop call `end_turn` for each connection that they have worked on.
    """
    cdef ResponseOutput responses
    cdef ResponseSender sender
    cdef FrameReader frames
    cdef SocketEvents events
    cdef OpenConnections connections
    cdef int begin(self) except -1
    cdef void finish(self) noexcept
    cdef int settle_dirty(self) except -1
    cdef int flush_dirty(self) except -1
    cdef int end_turn(self, Connection c) except -1


# Whether the connection is throttled, its client sends no more, and no request and no response is left.
cdef bint ended_while_throttled(Connection c) noexcept
