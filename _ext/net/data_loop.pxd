"""The loop over a worker's connections: it makes the parts of the loop, begins connections, and dispatches events."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport FrameReader
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.receiving cimport RequestReceiver
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents
from odradek._ext.net.turns cimport Turns


cdef class DataLoop:
    # the parts, each of which calls only those before it; made by the constructor
    cdef readonly BufferPool pool
    cdef readonly ResponseOutput responses
    cdef SocketEvents events
    cdef readonly ResponseSender sender
    cdef readonly FrameReader frames
    cdef readonly OpenConnections connections
    cdef Turns turns
    cdef readonly RequestReceiver receiver
    cdef readonly bint stopping
    cdef int64_t max_request_bytes
    cdef list tls_listeners                    # TlsListener or None by index of the listener; None: no listener uses TLS
    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared)
    cdef int read_on(self) except -1
    cdef int handle_event(self, Connection c, uint32_t events) except -1
