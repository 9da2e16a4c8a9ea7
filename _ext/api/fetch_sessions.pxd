"""The incremental fetch sessions of a worker (KIP-227)."""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.api.delayed_fetch cimport DelayedFetch


cdef class FetchSessions:
    cdef dict sessions                # of clients: id -> DelayedFetch, the least recently used first
    cdef dict replicas                # of followers: id -> DelayedFetch
    cdef dict of_broker               # number of sessions of each follower, by broker id
    cdef readonly Py_ssize_t partitions       # of all sessions together
    cdef readonly Py_ssize_t max_sessions
    cdef readonly Py_ssize_t max_partitions
    cdef int32_t first_id
    cdef int32_t ids
    cdef readonly int64_t evictions
    cdef int64_t full_until_ms        # until then no session can be evicted for a session of `full_size` partitions or fewer
    cdef Py_ssize_t full_size

    cdef DelayedFetch find(self, int32_t session_id)
    cdef int32_t new_id(self) except -1
    cdef bint admit(self, DelayedFetch fetch) except -1
    cdef int begin(self, DelayedFetch fetch) except -1
    cdef bint admit_replica(self, DelayedFetch fetch, int32_t broker_id) except -1
    cdef bint make_room(self, Py_ssize_t size, int64_t now_ms) except -1
    cdef DelayedFetch smaller_than(self, Py_ssize_t size, int64_t now_ms)
    cdef bint used(self, DelayedFetch fetch) except -1
    cdef int end(self, DelayedFetch fetch) except -1
