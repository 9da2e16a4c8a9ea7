"""The part of the data loop that sends the responses in `ResponseOutput` and in the queues of connections."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.openssl cimport Sealed


cdef class ResponseSender:
    """Sends from the `ConnectionOutput` of each connection. After an error it closes the connection (`Connection.close_now`);
    after a read by the cold reader it continues to send (`Connection.flush_dirty`).
    """
    cdef ResponseOutput responses
    cdef public object on_file_error           # called with (fd, errno) of a file that cannot be read or sent; None: not called
    cdef readonly int64_t bytes_out
    cdef readonly int64_t sendfile_bytes
    # TLS: allocated with the first listener that uses it (`begin_tls`)
    cdef Sealed gathered                       # encrypted bytes of one connection, gathered for one send
    cdef uint8_t* plain_out                    # spans and file slices, gathered for encryption
    cdef int begin_tls(self) except -1
    cdef int deliver(self, Connection c) except -1
    # Encrypts `n` bytes and sends them as far as the socket takes them. Returns how many were encrypted: less if the socket is full.
    cdef int64_t send_encrypted(self, Connection c, const uint8_t* data, int64_t n) except -1
    cdef int collect_records(self, Connection c) except -1
    cdef int push_records(self, Connection c) except -1
    cdef int pump_encrypted(self, Connection c) except -1
    cdef void unblock(self, Connection c) noexcept
    cdef int pump(self, Connection c) except -1
    cdef int read_cold(self, Connection c) except -1
    cdef int file_failed(self, Connection c, int number) except -1
