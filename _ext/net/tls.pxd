"""TLS of one connection behind one narrow interface: records in, plaintext out, and the reverse. No socket is touched here.

Users (RequestReceiver, ResponseSender, OpenConnections, DataLoop) know only this interface, so that another TLS library can take the
place of Python's.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.buffers cimport Buffer
from odradek._ext.net.openssl cimport Records, Sealed
from odradek._ext.net.output cimport OutQueue


cdef enum:
    RECORD_BYTES = 16384               # largest plaintext of a record
    SEALED_MOST = 262144               # ciphertext of a connection that waits for its socket, before nothing more is encrypted
    PLAIN_MOST = 196608                # plaintext that is gathered: its records are shorter than SEALED_MOST, with 512 bytes in each too
    CONTROLS_MOST = 32                 # records without application data (KeyUpdate) that a peer may send one after the other

cdef enum TlsResult:
    TLS_OK = 0
    TLS_WANTS = 1                      # more records are needed
    TLS_END = 2                        # the peer sent close_notify
    TLS_FAILED = 3                     # `Tls.error` says why; the alert is among the records to send


cdef class TlsListener:
    """What all TLS connections of a listener share: the context, and how a client certificate becomes a principal."""
    cdef readonly object context       # ssl.SSLContext
    cdef readonly bint authenticates   # the handshake is the whole authentication; False: SASL follows
    cdef readonly bint asks_certificate
    cdef readonly bint slow_key        # a handshake takes so long that those of other listeners must not wait for it
    cdef readonly object principal_of  # (DER of a client certificate) -> str, raises ValueError
    cdef bint native                   # OpenSSL itself can move the records of its connections


cdef class Tls:
    cdef readonly TlsListener listener
    cdef readonly bint established
    cdef readonly bint busy            # a thread computes the handshake: nothing else may touch the object
    cdef readonly bint begun           # the first bytes looked like TLS
    cdef bint waited                   # `may_wait` has returned True once
    cdef bint listed                   # in the loop's list of connections with unread records
    cdef bint reading                  # `RequestReceiver.read_records` works on the connection
    cdef readonly bint ended           # close_notify was received
    cdef bint ready                    # a whole record was fed whose plaintext was not read to its end
    cdef int controls                  # records without application data since the last one with some
    cdef int unsent_controls           # of those that came while encrypted bytes waited for the socket
    cdef uint8_t[5] head               # header of the record that is being fed
    cdef int head_bytes
    cdef int64_t record_left           # bytes of that record that are to be fed
    cdef int64_t step_us               # time of the last step of the handshake
    cdef readonly object error         # text after TLS_FAILED: nothing more is read or written, and the connection is to be closed
    cdef object library                # ssl.SSLObject; None before `open` and after the end
    cdef void* native                  # its SSL* after the handshake, if OpenSSL itself reads and writes `records`; else NULL
    cdef Records records
    cdef object incoming               # ssl.MemoryBIO; None once `native` is set and the last records were taken from `outgoing`
    cdef object outgoing
    cdef object feed_record            # bound methods, looked up once
    cdef object take_sealed
    cdef object decrypt
    cdef object encrypt
    cdef Buffer unread                 # received records that are not decrypted yet; owned by the loop's pool
    cdef OutQueue sealed               # encrypted bytes that the socket did not take
    # Creates the state. Before it, a connection costs nothing but this object. `sealed`: where records are gathered that the native
    # layer writes; it must exist as long as the object.
    cdef int open(self, Sealed* sealed) except -1
    # Feeds received bytes up to the end of a record. Returns how many were taken; `ready` says whether the record is whole.
    cdef int64_t feed(self, const uint8_t* data, int64_t n) except -1
    cdef int absorb(self) except -1
    # Whether the fed record alone does not continue a handshake, so that a step of it can wait for the next record. At most once.
    cdef bint may_wait(self) noexcept
    # Whether the fed record makes a step of the handshake that needs no computation with a key of a certificate or a key exchange: the
    # Finished message of TLS 1.3, from a client that is not asked for a certificate. A message that is not one fails without such either.
    cdef bint step_is_short(self) noexcept
    # Continues the handshake with what was fed; `step_us` is the time that it took. While `busy` is set, a thread calls it.
    cpdef TlsResult compute_handshake(self) except *
    cdef TlsResult handshake(self) except *
    # Decrypts up to `room` bytes of the record that is `ready`; *got is their number. Clears `ready` at its end.
    cdef TlsResult read(self, uint8_t* out, int64_t room, int64_t* got) except *
    cdef TlsResult read_native(self, uint8_t* out, int64_t room, int64_t* got) except *
    cdef TlsResult count_control(self) except *
    cdef TlsResult stop(self, int64_t result) except *
    # Called after each TLS_WANTS, when the answers were sent as far as the socket takes them. :param waiting: whether some wait.
    # Sets `error` if the client lets too many of them wait.
    cdef int control_handled(self, bint waiting) except -1
    # Encrypts all of `data` into as few records as possible. They are in `sealed` at once, or `take` returns them. Sets `error` if the
    # client has sent a part of a message of TLS, because then nothing can be written.
    cdef int write(self, const uint8_t* data, int64_t n) except -1
    # Records to send that are not in `sealed`, as bytes; None or empty: none.
    cdef bytes take(self)
    # Whether received bytes wait to be decrypted: those of `unread`, or of the record that is `ready`.
    cdef bint pending(self) noexcept
    # The record of close_notify, as bytes; None or empty: there is none to send.
    cdef bytes shutdown(self)
    # DER of the client's certificate, None without one.
    cdef object peer(self)

    # Whether the client's certificate has expired. A handshake checks that, but not one that resumes a session of TLS 1.2.
    cdef bint expired(self) except -1
    cdef void drop(self) noexcept
