"""Memory that a worker keeps for its connections: the sum, and the limit of the sum.

Used in a worker's event loop, twice a second. For a connection a worker keeps the state of its last Fetch without a session, a part of a
frame, frames that are held back until an earlier request is answered, and responses that the client has not read yet. Of a connection
that has neither sent nor received a byte for a second (an idle connection) the worker counts all of this. Of an active connection it
counts what its client delays: the bytes of a frame that has been incomplete for a second, and responses that have been unread for a
second. So a client that sends or reads a byte now and then is counted as a silent one is, while frames and responses that move at
the speed of a network are not counted. While the sum is above the budget, the worker

1. drops the state of fetches, beginning with the connections that are idle for the longest time. The next fetch of such a client
   rebuilds it.
2. closes connections whose frame has been incomplete, or whose responses have been unread, for ten seconds: per owner, those with the
   least progress first, and of equal progress the longest idle first. The progress is the number of bytes of the frame, or of the
   responses, that moved per second in the last five seconds.
3. closes connections with a delayed request for which the worker keeps more than 1/64 of the budget: those with a delayed fetch, which is
   a long poll of very many partitions, and those with frames or responses that have waited for another request for ten seconds; per
   owner, the largest first.

A frame may take any time to arrive while the memory is within the budget: then a large request over a slow link is not cut.

An owner is a client address, or a /64 network in IPv6 (owners.pxd). Among the owners that have connections of such a kind, the worker
each time closes a connection of the owner for which it keeps most at that moment. It closes no connection of an owner for which it
keeps no more than an equal share of the budget: the budget divided by the number of owners for which it keeps anything.

Thus memory beyond the budget is kept only for requests that began to arrive, and responses that were queued, within the last ten seconds,
and for long polls of many connections that take little each; and a client that keeps little loses nothing because of another client
that keeps much.
"""

import heapq
import logging

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.net.connection cimport CLOSE_HANDLER, CLOSE_IDLE, Connection
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.shm.atomics cimport store_relaxed_64
from odradek._ext.shm.metering cimport FORGOTTEN_BYTES, KEPT_BYTES, add, own_page


LOG = logging.getLogger("odradek.connections")

cdef enum:
    IDLE_MS = 1000
    UNFINISHED_MS = 10000
    PROGRESS_MS = 5000                # the progress of a frame is measured for so long
    LARGE_SHARE = 64
    REPORT_AGAIN_MS = 60000


cdef inline int64_t buffered(Connection c) noexcept:
    """Return the bytes of frames and responses kept for a connection."""
    cdef int64_t encrypted = 0 if c.tls is None else c.tls.unread.end - c.tls.unread.start + c.output.sealed_bytes
    return (c.input.part.end if c.input.part.data != NULL else 0) + c.input.held.end - c.input.held.start \
        + c.output.queue.span_bytes + c.output.waiting_bytes + encrypted


cdef inline int64_t unread(Connection c) noexcept:
    """Return the bytes of responses that the socket has not taken yet, those in files included."""
    return c.output.queue.span_bytes + c.output.queue.file_bytes + c.output.sealed_bytes


cdef inline int64_t frame_age(Connection c, int64_t now_ms) noexcept:
    """Return for how long a frame has been incomplete, in ms; -1 if there is none."""
    return now_ms - c.input.part_since_ms if c.input.part.data != NULL else -1


cdef inline int64_t unread_age(Connection c, int64_t now_ms) noexcept:
    """Return for how long a response has been unread, in ms; -1 if there is none."""
    return now_ms - c.kept.unread_ms if c.kept.unread_ms else -1


cdef inline int64_t wait_age(Connection c, int64_t now_ms) noexcept:
    """Return for how long the first request of the connection without an answer has waited, in ms; -1 if there is none."""
    return -1 if c.pending_head is None else now_ms - c.pending_head.attached_us // 1000


cdef void measure(Connection c, int64_t now_ms) noexcept:
    """Measure the progress of the frame that is incomplete and of the responses that are unread."""
    cdef int64_t queued = unread(c)
    if c.input.part.data != NULL:
        if c.kept.frame_ms != c.input.part_since_ms:
            c.kept.frame_ms = c.kept.mark_ms = c.input.part_since_ms
            c.kept.mark_bytes = 0
            c.kept.arriving = -1
        if now_ms - c.kept.mark_ms >= PROGRESS_MS:
            c.kept.arriving = (c.input.part.end - c.kept.mark_bytes) * 1000 // (now_ms - c.kept.mark_ms)
            c.kept.mark_ms = now_ms
            c.kept.mark_bytes = c.input.part.end
    if queued == 0:
        c.kept.unread_ms = 0
    elif c.kept.unread_ms == 0 or c.output.sent_bytes - c.kept.unread_mark >= c.kept.unread_bytes:    # all that was queued then was read
        c.kept.unread_ms = c.last_activity_ms if c.kept.unread_ms == 0 else now_ms
        c.kept.unread_bytes = queued
        c.kept.unread_mark = c.output.sent_bytes


cdef int64_t delayed_by_client(Connection c, int64_t now_ms) noexcept:
    """Return the bytes kept for an active connection because its client sends or reads slowly."""
    cdef int64_t n = 0
    if frame_age(c, now_ms) >= IDLE_MS:
        n += c.input.part.end
    if unread_age(c, now_ms) >= IDLE_MS:
        n += c.output.queue.span_bytes + c.output.waiting_bytes + c.output.sealed_bytes
    elif wait_age(c, now_ms) >= IDLE_MS:
        n += c.output.waiting_bytes
    return n


cdef inline bint unfinished(Connection c, int64_t now_ms) noexcept:
    """Whether the client has not completed a frame, or not read a response, for too long."""
    if frame_age(c, now_ms) >= UNFINISHED_MS or unread_age(c, now_ms) >= UNFINISHED_MS:
        return True
    return now_ms - c.last_activity_ms >= UNFINISHED_MS and buffered(c) and (c.pending_count == 0 or c.output.queue.head != NULL)


cdef inline int64_t waiting_state(Connection c) noexcept:
    """Return the bytes of a delayed fetch; `drop_states` has dropped the state of other fetches before."""
    return c.kept.bytes - buffered(c) if c.kept.idle else 0


def idle_since(Connection c) -> int:
    return c.last_activity_ms


def progress(Connection c) -> tuple[int, int]:
    """Return the bytes per second that move between the client and the broker, and when the last of them did."""
    cdef int64_t moving = 0
    if c.input.part.data != NULL:
        moving = c.kept.arriving
    elif c.kept.unread_ms:
        moving = (c.output.sent_bytes - c.kept.unread_mark) * 1000 // max(<int64_t>1, c.responses.now_ms - c.kept.unread_ms)
    return moving, c.last_activity_ms


def kept_bytes(Connection c) -> int:
    return c.kept.bytes


cdef class KeptMemory:
    """Limits the memory kept for a worker's connections.

    :param budget: bytes that may be kept for all of them.
    """

    def __init__(self, OpenConnections connections not None, int64_t budget):
        self.connections = connections
        self.budget = budget
        self.reported_ms = -REPORT_AGAIN_MS

    def look(self, int64_t now_ms) -> int:
        """Add up the kept bytes, and release memory while they exceed the budget. Return the bytes kept afterwards.

        :param now_ms: CLOCK_MONOTONIC.
        """
        cdef Connection c
        cdef list keeping = []
        self.kept = 0
        for c in self.connections.by_id.values():
            measure(c, now_ms)
            c.kept.idle = now_ms - c.last_activity_ms >= IDLE_MS
            c.kept.bytes = buffered(c) + self.connections.handler.kept_bytes(c) if c.kept.idle else delayed_by_client(c, now_ms)
            if c.kept.bytes:
                self.kept += c.kept.bytes
                keeping.append(c)
        if self.kept > self.budget:
            self.reduce(keeping, now_ms)
        store_relaxed_64(&own_page().words[<int>KEPT_BYTES], <uint64_t>self.kept)
        return self.kept

    cdef int reduce(self, list keeping, int64_t now_ms) except -1:
        cdef int64_t before = self.kept, dropped = self.dropped, closed = self.closed
        keeping.sort(key=idle_since)
        self.drop_states(keeping)
        self.close_unfinished(keeping, now_ms)
        self.close_largest(keeping, now_ms)
        add(FORGOTTEN_BYTES, before - self.kept)
        if now_ms - self.reported_ms >= REPORT_AGAIN_MS:
            self.reported_ms = now_ms
            LOG.warning(
                "connections that are idle or slow kept %d bytes, this worker may keep %d (odradek.connections.kept.bytes): dropped the "
                "fetch state of %d connection(s), closed %d connection(s), %d bytes are still kept", before, self.budget,
                self.dropped - dropped, self.closed - closed, self.kept)
        return 0

    cdef int drop_states(self, list keeping) except -1:
        cdef Connection c
        cdef int64_t freed
        for c in keeping:
            if self.kept <= self.budget:
                return 0
            if not c.kept.idle:
                continue
            freed = self.connections.handler.forget(c)
            if freed:
                c.kept.bytes -= freed
                self.kept -= freed
                self.dropped += 1
        return 0

    cdef int close_unfinished(self, list keeping, int64_t now_ms) except -1:
        if self.kept > self.budget:
            self.close_by_owner(keeping, sorted([c for c in keeping if unfinished(c, now_ms)], key=progress), CLOSE_IDLE)
        return 0

    cdef int close_largest(self, list keeping, int64_t now_ms) except -1:
        cdef Connection c
        cdef int64_t large = self.budget // LARGE_SHARE
        cdef list candidates
        if self.kept > self.budget:
            candidates = [
                c for c in keeping
                if (<Connection>c).fd >= 0 and (
                    waiting_state(c) > large or ((<Connection>c).kept.bytes > large and wait_age(c, now_ms) >= UNFINISHED_MS))
            ]
            self.close_by_owner(keeping, sorted(candidates, key=kept_bytes, reverse=True), CLOSE_HANDLER)
        return 0

    cdef int close_by_owner(self, list keeping, list candidates, int reason) except -1:
        """Close candidates until the kept bytes are within the budget.

        :param candidates: in the order in which the connections of one owner, and of owners with equal bytes, are closed.
        """
        cdef Connection c
        cdef int64_t share, kept
        cdef dict kept_for = {}, closable = {}
        for c in keeping:
            if c.fd >= 0 and c.kept.bytes:
                kept_for[c.owner] = kept_for.get(c.owner, 0) + c.kept.bytes
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
            kept -= c.kept.bytes
            self.close(c, reason)
            if closable[owner]:
                heapq.heapreplace(owners, (-kept, place, owner))
            else:
                heapq.heappop(owners)
        return 0

    cdef int close(self, Connection c, int reason) except -1:
        what = "a request that waits" if reason == CLOSE_HANDLER else \
            "an incomplete request" if c.input.part.data != NULL or c.output.queue.head == NULL else "unread responses"
        self.kept -= c.kept.bytes
        self.closed += 1
        return self.connections.close_now(
            c, reason, f"the broker keeps {c.kept.bytes} bytes for {what} of this connection, and all connections that are idle or slow "
            "together exceed odradek.connections.kept.bytes")
