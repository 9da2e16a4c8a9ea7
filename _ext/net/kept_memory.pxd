"""Memory that a worker keeps for connections on which nothing moves."""

from libc.stdint cimport int64_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.net.data_loop cimport DataLoop


cdef class KeptMemory:
    cdef DataLoop loop
    cdef readonly int64_t budget
    cdef readonly int64_t kept                 # as the last look found it, less what that gave up
    cdef readonly int64_t dropped              # connections whose state was dropped, so far
    cdef readonly int64_t closed               # connections that were closed, so far
    cdef int64_t reported_ms
    cdef int give_up(self, list idle, int64_t now_ms) except -1
    cdef int drop_states(self, list idle) except -1
    cdef int close_unfinished(self, list idle, int64_t now_ms) except -1
    cdef int close_largest(self, list idle) except -1
    cdef int close_by_owner(self, list idle, list candidates, int reason) except -1
    cdef int close(self, Connection c, int reason) except -1
