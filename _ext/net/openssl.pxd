"""OpenSSL below an `ssl.SSLObject`: application data between its records and our buffers, without Python objects and copies of them.

Python's `ssl` makes the contexts and computes the handshakes. After that, `attach` puts a BIO of our own in the place of Python's memory
buffers. The functions come from the library that Python's `_ssl` uses already, found when the process starts, so that nothing is linked
and no headers are needed. `available` is False where that is impossible; Python's buffers stay in use then, with the same result.
"""

from libc.stdint cimport int64_t, uint8_t


cdef enum:
    WANTS_RECORDS = -1                 # the records that were given are read, and more are needed
    END_OF_RECORDS = -2                # the peer sent close_notify
    RECORDS_FAILED = -3                # `failure()` says why
    UNFINISHED_MESSAGE = -4            # nothing can be written before the peer has sent the rest of a message of TLS


# Where records are gathered. Nothing is written beyond `room`; what does not fit fails.
cdef struct Sealed:
    uint8_t* data
    int64_t length
    int64_t room


# What the BIO of a connection reads from and writes to. Its address must not change.
cdef struct Records:
    const uint8_t* received
    int64_t received_left
    Sealed* sealed
    void* bio                          # set by `attach`


# Whether OpenSSL can be used below this SSLContext's connections. Called by one thread at a time.
cdef bint available(object context) except -1
# Names the authorities of an SSLContext in its requests for client certificates; `available` must be True. Raises ValueError.
cdef int name_authorities(object context) except -1
# Keeps at most `most` sessions of TLS 1.2 that clients may resume by their ids; 0: none. `available` must be True.
cdef void limit_sessions(object context, long most) noexcept
# Encrypts session tickets with these keys, 80 bytes, instead of own random ones. `available` must be True. Raises ValueError.
cdef int set_ticket_keys(object context, bytes keys) except -1
# Lets the SSLObject, whose handshake is complete, read and write `records` from now on. Returns its SSL; it lives as long as the SSLObject.
cdef void* attach(object library, Records* records) except NULL
# Lets the BIO refer to `records` no longer; the SSLObject must still exist.
cdef void detach(Records* records) noexcept
# Decrypts up to `room` bytes, of one record. Returns their number, or one of the enum.
cdef int64_t read_plain(void* connection, uint8_t* out, int64_t room) noexcept
# Bytes of the current record that are decrypted and not read.
cdef int64_t plain_left(void* connection) noexcept
# Encrypts `n` bytes. Returns `n`, RECORDS_FAILED or UNFINISHED_MESSAGE.
cdef int64_t write_plain(void* connection, const uint8_t* data, int64_t n) noexcept
# Writes close_notify.
cdef void write_end(void* connection) noexcept
# The reason of the last RECORDS_FAILED, in the words of OpenSSL.
cdef object failure()
