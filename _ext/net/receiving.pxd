"""The part of the data loop that receives from sockets, and decrypts."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport FrameReader
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents
from odradek._ext.net.turns cimport Turns


cdef class RequestReceiver:
    """Receives the bytes of requests, also through TLS, and passes them to FrameReader. DataLoop sets `unjudged`, and calls `readable`
    and `read_records`.
    """
    cdef ResponseOutput responses
    cdef ResponseSender sender
    cdef FrameReader frames
    cdef BufferPool pool
    cdef SocketEvents events
    cdef OpenConnections connections
    cdef Turns turns
    cdef readonly int64_t bytes_in
    cdef Connection unjudged                   # its client has ended it: `read_frames` judges it if it receives a byte; or None
    # TLS
    # Computes the long steps of handshakes: called with (step, done, slow), the first two like those of JobThread.
    cdef public object handshake_thread
    cdef uint8_t* records                      # receive buffer for encrypted bytes; NULL until a listener uses TLS (`begin_tls`)
    cdef const uint8_t* source                 # received bytes, of the connection being read, that its Tls has not been fed yet
    cdef const uint8_t* source_end
    cdef int stream_end                        # why nothing more can be received: STREAM_ENDED or an errno; 0: it can
    cdef int64_t records_left                  # encrypted bytes that may still be received in its turn
    cdef int begin_tls(self) except -1
    cdef int readable(self, Connection c) except -1
    cdef int read_frames(self, Connection c) except -1
    # TLS: reads the kept records of the connection, then those that have arrived.
    cdef int read_records(self, Connection c) except -1
    cdef int64_t receive_records(self, Connection c) except -1
    cdef int64_t decrypt(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1
    cdef int shake_hands(self, Connection c) except -1
    cdef int after_handshake(self, Connection c, int result) except -1
    cdef int delegate_handshake(self, Connection c) except -1
    cdef int continue_handshake(self, Connection c) except -1
    cdef int records_ended(self, Connection c) except -1
    cdef int keep_records(self, Connection c) except -1
    cdef int end_of_stream(self, Connection c) except -1
