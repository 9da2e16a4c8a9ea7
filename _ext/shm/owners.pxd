"""Owners of producers: a number for the client that uses a producer, which that client cannot choose [R 2.6]."""

from libc.stdint cimport uint32_t


cdef enum:
    PRODUCER_OWNERS = 1 << 17
    OWNER_NOBODY = 0              # restored at a start, replicated, or used by the broker itself

# The owner of the producers that a connection from `peer` ("host:port") uses: 1 to PRODUCER_OWNERS - 1. OWNER_NOBODY without a
# mapping.
cdef uint32_t owner_of(str peer) except? 0

# The part of a client's address that identifies it: an IPv4 address, or the 64-bit network of an IPv6 address, which may be in
# brackets. Another text as it is. Every table whose key is a client's address uses it; `odradek.security.owners` for Python.
cpdef str network_of(str host)
