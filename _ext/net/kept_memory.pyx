"""Memory that a worker keeps for idle connections: the sum, and the limit of the sum.

Used in a worker's event loop, twice a second. A connection is idle if it has sent and received no byte for a second. For an idle
connection a worker keeps the state of its last Fetch without a session, a part of a frame, frames that are held back until an earlier
request is answered, and responses that the client does not read. While the sum is above the budget, the worker

1. drops the state of fetches, beginning with the connections that are idle for the longest time. The next fetch of such a client
   rebuilds it.
2. closes connections that have not completed a frame, or not read a response, for ten seconds: per owner, the longest idle first.
3. closes connections with a delayed fetch that takes more than 1/64 of the budget, which is a long poll of very many partitions:
   per owner, the largest first.

An owner is a client address, or a /64 network in IPv6 (owners.pxd). Among the owners that have connections of such a kind, the worker
each time closes a connection of the owner for which it keeps most at that moment. It closes no connection of an owner for which it
keeps no more than an equal share of the budget: the budget divided by the number of owners for which it keeps anything.

Thus memory beyond the budget is kept only for requests that arrived in part within the last ten seconds, and for long polls of many
connections that take little each; and a client that keeps little loses nothing because of another client that keeps much.
"""

import heapq
import logging

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.net.connection cimport CLOSE_HANDLER, CLOSE_IDLE, Connection
from odradek._ext.net.data_loop cimport DataLoop
from odradek._ext.shm.metering cimport FORGOTTEN_BYTES, KEPT_BYTES, add, own_page


LOG = logging.getLogger("odradek.connections")

cdef enum:
    IDLE_MS = 1000
    UNFINISHED_MS = 10000
    LARGE_SHARE = 64
    REPORT_AGAIN_MS = 60000


cdef inline int64_t buffered(Connection c) noexcept:
    """Return the bytes of frames and responses kept for a connection."""
    cdef int64_t encrypted = 0 if c.tls is None else c.tls.unread.end - c.tls.unread.start + c.output.sealed_bytes
    return (c.input.part.end if c.input.part.data != NULL else 0) + c.input.held.end - c.input.held.start \
        + c.output.queue.span_bytes + c.output.waiting_bytes + encrypted


def idle_since(Connection c):
    return c.last_activity_ms


cdef inline int64_t waiting_state(Connection c) noexcept:
    """Return the bytes of a delayed fetch; `drop_states` has dropped the state of other fetches before."""
    return c.kept_bytes - buffered(c)


def state_of(Connection c):
    return waiting_state(c)


cdef class KeptMemory:
    """Limits the memory kept for a worker's idle connections.

    :param budget: bytes that may be kept for all of them.
    """

    def __init__(self, DataLoop loop not None, int64_t budget):
        self.loop = loop
        self.budget = budget
        self.reported_ms = -REPORT_AGAIN_MS

    def look(self, int64_t now_ms):
        """Add up the kept bytes, and release memory while they exceed the budget. Return the bytes kept afterwards.

        :param now_ms: CLOCK_MONOTONIC.
        """
        cdef Connection c
        cdef list idle = []
        self.kept = 0
        for c in self.loop.connections.values():
            if now_ms - c.last_activity_ms < IDLE_MS:
                continue
            c.kept_bytes = buffered(c) + self.loop.handler.kept_bytes(c)
            if c.kept_bytes:
                self.kept += c.kept_bytes
                idle.append(c)
        if self.kept > self.budget:
            self.reduce(idle, now_ms)
        own_page().words[KEPT_BYTES] = <uint64_t>self.kept
        return self.kept

    cdef int reduce(self, list idle, int64_t now_ms) except -1:
        cdef int64_t before = self.kept, dropped = self.dropped, closed = self.closed
        idle.sort(key=idle_since)
        self.drop_states(idle)
        self.close_unfinished(idle, now_ms)
        self.close_largest(idle)
        add(FORGOTTEN_BYTES, before - self.kept)
        if now_ms - self.reported_ms >= REPORT_AGAIN_MS:
            self.reported_ms = now_ms
            LOG.warning(
                "idle connections kept %d bytes, this worker may keep %d (odradek.connections.kept.bytes): dropped the fetch state of "
                "%d connection(s), closed %d connection(s), %d bytes are still kept", before, self.budget, self.dropped - dropped,
                self.closed - closed, self.kept)
        return 0

    cdef int drop_states(self, list idle) except -1:
        cdef Connection c
        cdef int64_t freed
        for c in idle:
            if self.kept <= self.budget:
                return 0
            freed = self.loop.handler.forget(c)
            if freed:
                c.kept_bytes -= freed
                self.kept -= freed
                self.dropped += 1
        return 0

    cdef int close_unfinished(self, list idle, int64_t now_ms) except -1:
        cdef Connection c
        if self.kept > self.budget:
            self.close_by_owner(idle, [
                c for c in idle
                if now_ms - c.last_activity_ms >= UNFINISHED_MS and buffered(c) and (c.pending_count == 0 or c.output.queue.head != NULL)
            ], CLOSE_IDLE)
        return 0

    cdef int close_largest(self, list idle) except -1:
        cdef Connection c
        if self.kept > self.budget:
            large = [c for c in idle if (<Connection>c).fd >= 0 and waiting_state(c) > self.budget // LARGE_SHARE]
            self.close_by_owner(idle, sorted(large, key=state_of, reverse=True), CLOSE_HANDLER)
        return 0

    cdef int close_by_owner(self, list idle, list candidates, int reason) except -1:
        """Close candidates until the kept bytes are within the budget.

        :param candidates: in the order in which the connections of one owner, and of owners with equal bytes, are closed.
        """
        cdef Connection c
        cdef int64_t share, kept
        cdef dict kept_for = {}, closable = {}
        for c in idle:
            if c.fd >= 0 and c.kept_bytes:
                kept_for[c.owner] = kept_for.get(c.owner, 0) + c.kept_bytes
        for c in candidates:
            closable.setdefault(c.owner, []).append(c)
        for connections in closable.values():
            connections.reverse()
        share = self.budget // max(1, len(kept_for))
        owners = [(-kept_for[owner], place, owner) for place, owner in enumerate(closable)]
        heapq.heapify(owners)
        while owners and self.kept > self.budget:
            negative, place, owner = owners[0]
            kept = -negative
            if kept <= share:
                return 0
            c = closable[owner].pop()
            kept -= c.kept_bytes
            self.close(c, reason)
            if closable[owner]:
                heapq.heapreplace(owners, (-kept, place, owner))
            else:
                heapq.heappop(owners)
        return 0

    cdef int close(self, Connection c, int reason) except -1:
        what = "a delayed Fetch" if reason == CLOSE_HANDLER else \
            "an incomplete request" if c.output.queue.head == NULL else "unread responses"
        self.kept -= c.kept_bytes
        self.closed += 1
        return self.loop.close_now(
            c, reason, f"the broker keeps {c.kept_bytes} bytes for {what} of this idle connection, and all idle connections together "
            "exceed odradek.connections.kept.bytes")
