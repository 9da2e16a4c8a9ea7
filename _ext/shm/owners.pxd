"""Owners of producers: who brought them, as a number that a client cannot choose [R 2.6]."""

from libc.stdint cimport uint32_t


cdef enum:
    OWNER_NOBODY = 0              # restored at a start, replicated, or of the broker itself

# The owner of the producers that a connection from `peer` ("host:port") brings: 1 to PRODUCER_OWNERS - 1. Without a mapping OWNER_NOBODY.
cdef uint32_t owner_of(str peer) except? 0
