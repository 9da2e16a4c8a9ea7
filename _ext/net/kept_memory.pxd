"""Memory that a worker keeps for idle connections, and its limit."""

from libc.stdint cimport int64_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.open_connections cimport OpenConnections


cdef class KeptMemory:
    cdef OpenConnections connections
    cdef readonly int64_t budget
    cdef readonly int64_t kept                 # bytes kept after the last check
    cdef readonly int64_t dropped              # number of times that a connection's fetch state was dropped
    cdef readonly int64_t closed               # number of closed connections
    cdef int64_t reported_ms
    cdef int reduce(self, list keeping, int64_t now_ms) except -1
    cdef int drop_states(self, list keeping) except -1
    cdef int close_unfinished(self, list keeping, int64_t now_ms) except -1
    cdef int close_largest(self, list keeping, int64_t now_ms) except -1
    cdef int close_by_owner(self, list keeping, list candidates, int reason) except -1
    cdef int close(self, Connection c, int reason) except -1
