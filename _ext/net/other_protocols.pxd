"""What a client speaks that does not speak Kafka's protocol."""

from libc.stdint cimport int64_t, uint8_t


# Returns a message if the first four bytes of a connection belong to another protocol; None if they may be Kafka's.
cdef object other_protocol(const uint8_t* data)
# Returns why the first `n` bytes of a connection to a TLS listener are not TLS.
cdef object not_tls(const uint8_t* data, int64_t n)
