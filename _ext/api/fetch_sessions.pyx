"""The incremental fetch sessions of a worker (KIP-227): a client that has one names only what changes.

Used in a worker's loop. A session belongs to whoever knows its id, on any connection to the worker, as in Kafka; so ids are random
numbers of the operating system. The ids of a worker lie in a range of its own: a client whose next connection is served by another
worker receives FETCH_SESSION_ID_NOT_FOUND and begins again, as the protocol says.

The number of sessions and the partitions of all together are bounded. To make room for a new session, sessions that were not used
for two minutes are evicted. If their number is at its bound and none is that old, the smallest of those that were made more than
two minutes ago is evicted, if the new one is larger (Kafka's rules): so one client takes the place of one session at a time, and
never that of a new or a larger one. If there is no room, the client receives session id 0 and fetches without a session.
"""

import secrets

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.metering cimport FETCH_SESSIONS, FETCH_SESSIONS_EVICTED, FETCH_SESSION_PARTITIONS, add


cdef enum:
    ID_SPACE = 0x7FFFFFFF
    EVICTABLE_AFTER_MS = 120000
    FULL_FOR_MS = 1000                # how long the outcome of a search for room holds


cdef class FetchSessions:
    """:param ordinal: of this worker among `workers`: which range of ids is its own.
    :param max_sessions: of this worker.
    :param max_partitions: of all sessions of this worker together.
    """

    def __init__(self, int ordinal, int workers, Py_ssize_t max_sessions, Py_ssize_t max_partitions):
        if not 0 <= ordinal < workers:
            raise ValueError(f"worker {ordinal} of {workers}")
        self.sessions = {}
        self.max_sessions = max_sessions
        self.max_partitions = max_partitions
        self.ids = ID_SPACE // workers
        self.first_id = 1 + ordinal * self.ids

    def __len__(self):
        return len(self.sessions)

    def grow_older(self, int64_t ms):
        """For tests: as if `ms` had passed since the sessions were made and used."""
        cdef DelayedFetch one
        for one in self.sessions.values():
            one.created_ms -= ms
            one.last_used_ms -= ms
        self.full_until_ms -= ms

    cdef DelayedFetch find(self, int32_t session_id):
        """The session; None if there is none of that id."""
        return self.sessions.get(session_id)

    cdef int32_t new_id(self) except -1:
        cdef int32_t session_id
        while True:
            session_id = self.first_id + <int32_t>secrets.randbelow(self.ids)
            if session_id not in self.sessions:
                return session_id

    cdef bint admit(self, DelayedFetch wait) except -1:
        """Make `wait`, which has its partitions, a session. Returns whether there was room; else it stays without one."""
        cdef Py_ssize_t size = len(wait.partitions)
        if not self.make_room(size, wait.last_used_ms):
            return False
        wait.become_session()
        wait.session_id = self.new_id()
        wait.epoch = 1
        wait.created_ms = wait.last_used_ms
        wait.counted_size = size
        self.sessions[wait.session_id] = wait
        self.partitions += size
        add(FETCH_SESSIONS, 1)
        add(FETCH_SESSION_PARTITIONS, size)
        return True

    cdef bint make_room(self, Py_ssize_t size, int64_t now_ms) except -1:
        """Evict sessions for a new one of `size` partitions. Returns whether there is room then."""
        cdef DelayedFetch oldest
        if self.max_sessions <= 0 or size > self.max_partitions:
            return False
        while len(self.sessions) >= self.max_sessions or self.partitions + size > self.max_partitions:
            oldest = next(iter(self.sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTABLE_AFTER_MS:
                if self.partitions + size > self.max_partitions:
                    return False
                oldest = self.smaller_than(size, now_ms)
                if oldest is None:
                    return False
            self.evictions += 1
            add(FETCH_SESSIONS_EVICTED, 1)
            self.end(oldest)
        return True

    cdef DelayedFetch smaller_than(self, Py_ssize_t size, int64_t now_ms):
        """The smallest session that may make place for a larger one; None if there is none."""
        cdef DelayedFetch one, smallest = None
        if now_ms < self.full_until_ms and size <= self.full_size:
            return None
        for one in self.sessions.values():
            if now_ms - one.created_ms > EVICTABLE_AFTER_MS and one.counted_size < size and \
                    (smallest is None or one.counted_size < smallest.counted_size):
                smallest = one
        if smallest is None:
            self.full_until_ms = now_ms + FULL_FOR_MS
            self.full_size = size
        return smallest

    cdef bint used(self, DelayedFetch wait) except -1:
        """A request of the session was read: count it as used now, and its partitions. Returns whether the session goes on; it ends
        when it has no partitions left (as in Kafka), or more than there is room for."""
        cdef Py_ssize_t size = len(wait.partitions)
        if size == 0 or self.partitions + size - wait.counted_size > self.max_partitions:
            self.end(wait)
            return False
        self.partitions += size - wait.counted_size
        add(FETCH_SESSION_PARTITIONS, size - wait.counted_size)
        wait.counted_size = size
        del self.sessions[wait.session_id]
        self.sessions[wait.session_id] = wait
        return True

    cdef int end(self, DelayedFetch wait) except -1:
        """The session is no more. A request of it that waits is still answered."""
        if self.sessions.get(wait.session_id) is not wait:
            return 0
        del self.sessions[wait.session_id]
        self.partitions -= wait.counted_size
        self.full_until_ms = 0
        add(FETCH_SESSIONS, -1)
        add(FETCH_SESSION_PARTITIONS, -wait.counted_size)
        wait.ended = True
        if wait.pending is None:
            wait.unwatch_all()
        return 0
