"""The incremental fetch sessions of a worker (KIP-227): a client with a session names only the partitions that change.

Used in a worker's event loop. Any client that knows a session's id may use it, on any connection to the worker, as in Kafka; therefore
ids are random numbers from the operating system. Each worker has its own range of ids: a client whose next connection is served by
another worker receives FETCH_SESSION_ID_NOT_FOUND and begins a new session, as the protocol says.

The number of sessions and the sum of their partitions are bounded. To make room for a new session, sessions that were not used for two
minutes are evicted. If the number of sessions is at its bound and none is that old, the smallest session that was created more than two
minutes ago is evicted, if the new session is larger (Kafka's rules). So a client takes the place of one session at a time, and never
that of a new or a larger session. If there is no room, the client receives session id 0 and fetches without a session.

The bounds do not apply to the sessions of followers, which clients never evict: a follower with many partitions and without a session
would name all of them in each request. Their number is bounded for each broker of the cluster.
"""

import secrets

from libc.stdint cimport int32_t, int64_t

from odradek._ext.shm.metering cimport FETCH_SESSIONS, FETCH_SESSIONS_EVICTED, FETCH_SESSION_PARTITIONS, add


cdef enum:
    ID_SPACE = 0x7FFFFFFF
    EVICTABLE_AFTER_MS = 120000
    MAX_OF_BROKER = 64                # sessions of a follower: it has one for each of its fetchers
    FULL_FOR_MS = 1000                # how long the result of an unsuccessful search for a session to evict is used


cdef class FetchSessions:
    """The fetch sessions of a worker.

    :param ordinal: number of this worker among `workers`, which determines its range of ids.
    :param max_sessions: limit for this worker.
    :param max_partitions: limit for all sessions of this worker together.
    """

    def __init__(self, int ordinal, int workers, Py_ssize_t max_sessions, Py_ssize_t max_partitions):
        if not 0 <= ordinal < workers:
            raise ValueError(f"worker number {ordinal} is not in 0 to {workers - 1}")
        self.sessions = {}
        self.replicas = {}
        self.of_broker = {}
        self.max_sessions = max_sessions
        self.max_partitions = max_partitions
        self.ids = ID_SPACE // workers
        self.first_id = 1 + ordinal * self.ids

    def __len__(self) -> int:
        return len(self.sessions) + len(self.replicas)

    def grow_older(self, int64_t ms) -> None:
        """For tests: make all sessions older by `ms`, in creation and use."""
        cdef DelayedFetch session
        for session in self.sessions.values():
            session.context.created_ms -= ms
            session.context.last_used_ms -= ms
        self.full_until_ms -= ms

    cdef DelayedFetch find(self, int32_t session_id):
        """Return the session with this id, or None."""
        fetch = self.sessions.get(session_id)
        return self.replicas.get(session_id) if fetch is None else fetch

    cdef int32_t new_id(self) except -1:
        cdef int32_t session_id
        while True:
            session_id = self.first_id + <int32_t>secrets.randbelow(self.ids)
            if session_id not in self.sessions and session_id not in self.replicas:
                return session_id

    cdef bint admit(self, DelayedFetch fetch) except -1:
        """Make `fetch`, which has its partitions, a session. Return whether there was room; if not, it stays without a session."""
        cdef Py_ssize_t size = len(fetch.context.partitions)
        if not self.make_room(size, fetch.context.last_used_ms):
            return False
        self.begin(fetch)
        self.sessions[fetch.context.session_id] = fetch
        self.partitions += size
        return True

    cdef int begin(self, DelayedFetch fetch) except -1:
        fetch.context.become_session()
        fetch.context.session_id = self.new_id()
        fetch.context.epoch = 1
        fetch.context.created_ms = fetch.context.last_used_ms
        fetch.context.counted_size = len(fetch.context.partitions)
        add(FETCH_SESSIONS, 1)
        add(FETCH_SESSION_PARTITIONS, fetch.context.counted_size)
        return 0

    cdef bint admit_replica(self, DelayedFetch fetch, int32_t broker_id) except -1:
        """Make `fetch` a session of a follower, whose plans cover only the partitions that moved. Return False if this broker has too
        many sessions; it may have one like a client then.
        """
        cdef Py_ssize_t begun = self.of_broker.get(broker_id, 0)
        if begun >= MAX_OF_BROKER:
            return False
        self.begin(fetch)
        fetch.context.select(broker_id)
        self.replicas[fetch.context.session_id] = fetch
        self.of_broker[broker_id] = begun + 1
        return True

    cdef bint make_room(self, Py_ssize_t size, int64_t now_ms) except -1:
        """Evict sessions for a new one of `size` partitions. Return whether there is room afterwards."""
        cdef DelayedFetch oldest
        if self.max_sessions <= 0 or size > self.max_partitions:
            return False
        while len(self.sessions) >= self.max_sessions or self.partitions + size > self.max_partitions:
            oldest = next(iter(self.sessions.values()))
            if now_ms - oldest.context.last_used_ms <= EVICTABLE_AFTER_MS:
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
        """Return the smallest session that may be evicted for a session of `size` partitions; None if there is none."""
        cdef DelayedFetch session, smallest = None
        if now_ms < self.full_until_ms and size <= self.full_size:
            return None
        for session in self.sessions.values():
            if now_ms - session.context.created_ms > EVICTABLE_AFTER_MS and session.context.counted_size < size and \
                    (smallest is None or session.context.counted_size < smallest.context.counted_size):
                smallest = session
        if smallest is None:
            self.full_until_ms = now_ms + FULL_FOR_MS
            self.full_size = size
        return smallest

    cdef bint used(self, DelayedFetch fetch) except -1:
        """A request of the session was read: mark the session as used, and count its partitions.

        Returns whether the session continues; it ends if it has no partitions left (as in Kafka), or more than there is room for.
        """
        cdef Py_ssize_t size = len(fetch.context.partitions)
        cdef bint of_replica = fetch.context.selective
        if size == 0 or (not of_replica and self.partitions + size - fetch.context.counted_size > self.max_partitions):
            self.end(fetch)
            return False
        if not of_replica:
            self.partitions += size - fetch.context.counted_size
        add(FETCH_SESSION_PARTITIONS, size - fetch.context.counted_size)
        fetch.context.counted_size = size
        if not of_replica:
            del self.sessions[fetch.context.session_id]
            self.sessions[fetch.context.session_id] = fetch
        return True

    def end_refused(self, DelayedFetch fetch not None) -> None:
        """End a session whose first response was replaced because of a quota."""
        self.end(fetch)

    cdef int end(self, DelayedFetch fetch) except -1:
        """End the session. A delayed request of it is still answered."""
        cdef int32_t session_id = fetch.context.session_id
        if self.sessions.get(session_id) is fetch:
            del self.sessions[session_id]
            self.partitions -= fetch.context.counted_size
            self.full_until_ms = 0
        elif self.replicas.get(session_id) is fetch:
            del self.replicas[session_id]
            self.of_broker[fetch.context.session_of] -= 1
        else:
            return 0
        add(FETCH_SESSIONS, -1)
        add(FETCH_SESSION_PARTITIONS, -fetch.context.counted_size)
        fetch.context.ended = True
        if fetch.pending is None:
            fetch.unwatch_all()
        return 0
