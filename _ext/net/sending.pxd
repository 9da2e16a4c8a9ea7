"""Second layer of the data loop: sends the responses that `ResponseOutput` gathered."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.connection cimport Connection, ResponseOutput
from odradek._ext.net.openssl cimport Sealed


cdef class ResponseSender(ResponseOutput):
    """It owns the sending: `ConnectionOutput` of each connection, and the cold reader. It adds no hook; it calls `close_now`, and
    `flush_dirty` after a cold read. DataLoop and FrameReader call `deliver`.
    """
    cdef public object cold_reader             # called like page_cache.ColdReader; None: the loop itself waits for cold pages
    cdef public object on_file_error           # called with (fd, errno) of a file that cannot be read or sent; None: not called
    cdef readonly int64_t bytes_out
    cdef readonly int64_t sendfile_bytes
    # TLS: allocated with the first listener that uses it
    cdef Sealed gathered                       # encrypted bytes of one connection, gathered for one send
    cdef uint8_t* plain_out                    # spans and file slices, gathered for encryption
    cdef int deliver(self, Connection c) except -1
    # Encrypts `n` bytes and sends them as far as the socket takes them. Returns how many were encrypted: less if the socket is full.
    cdef int64_t send_encrypted(self, Connection c, const uint8_t* data, int64_t n) except -1
    cdef int collect_records(self, Connection c) except -1
    cdef int push_records(self, Connection c) except -1
    cdef int pump_encrypted(self, Connection c) except -1
    cdef int pump(self, Connection c) except -1
    cdef int read_cold(self, Connection c) except -1
    cdef int file_failed(self, Connection c, int number) except -1
