"""The open connections of a worker, the limits of their number and age, and the end of each of them.

Runs in a worker, in the thread of its event loop; nothing in this module is shared with another thread or process.

A connection that has not authenticated yet counts towards two limits, of all such connections and of those of one address, and must
authenticate in time. Other limits apply to idle time (`sweep_idle`) and, over all workers, to the number of connections
(`close_least_used`).
"""

import logging
from collections import OrderedDict

from libc.stdint cimport int64_t, uint64_t, uint8_t
from posix.unistd cimport close

from odradek._ext.net.connection import CloseReason

from odradek._ext.net.connection cimport (
    CLOSE_ASKED,
    CLOSE_AUTHENTICATION,
    CLOSE_EOF,
    CLOSE_ERROR,
    CLOSE_IDLE,
    CLOSE_OTHER_PROTOCOL,
    CLOSE_RESET,
    HOLD_THROTTLE,
    Connection,
    Pending,
    ResponseOutput,
)
from odradek._ext.net.frame_reading cimport FrameReader
from odradek._ext.net.late_requests cimport LATE_MS, ended_by_peer
from odradek._ext.net.output cimport drop_queue
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents
from odradek._ext.net.tls cimport Tls
from odradek._ext.shm.atomics cimport count_64, store_relaxed_64
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.metering cimport (
    CLOSED_EOF,
    FAILED_AUTHENTICATIONS,
    METER_LISTENERS,
    QUEUED_BYTES,
    UNAUTHENTICATED_CLOSED,
    UNSENT_BYTES,
    UNUSED_BYTES_IN,
    add,
    clock_us,
    own_page,
    software_closed,
    turn_clock,
)
from odradek._ext.shm.owners cimport network_of


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int socket, void* data, size_t n, int flags)
    ssize_t send(int socket, const void* data, size_t n, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK


cdef enum:
    SILENT_MS = 1000                  # an unauthenticated connection without activity for so long may be closed for another
    MOST_SOUGHT = 100                 # so many connections are searched for a silent one
    UNFAIR_SHARES = 2                 # an address loses one if it has more than so many times those of another address
    CROWD_SOUGHT_MS = 100             # the address with most of them is searched at most once in this time

LOG = logging.getLogger("odradek.connections")

CLOSE_NAMES = tuple([reason.name.removeprefix("CLOSE_").lower() for reason in CloseReason])
cdef set QUIET = {CLOSE_EOF, CLOSE_RESET, CLOSE_IDLE, CLOSE_ASKED}


cdef bint is_drained(Connection c) noexcept:
    """Whether the responses of all executed frames of a connection are sent."""
    return c.pending_count == 0 and c.output.queue.head == NULL and c.output.sealed_bytes == 0


cdef class OpenConnections:
    """The open connections of a worker. See the pxd for what it owns.

    :param idle_ms: connections.max.idle.ms, negative: connections are never closed for being idle. :param on_closed: called with the id
        of each closed connection.
    """

    def __cinit__(self, ResponseOutput responses not None, ResponseSender sender not None, FrameReader frames not None,
                  SocketEvents events not None, int64_t idle_ms, on_closed):
        self.responses = responses
        self.sender = sender
        self.handler = frames.handler
        self.pool = frames.pool
        self.events = events
        self.idle_ms = idle_ms
        self.on_closed = on_closed
        self.by_id = {}
        self.graveyard = []
        self.unauthenticated = OrderedDict()
        self.unauthenticated_of = {}
        self.crowd = {}
        self.max_unauthenticated = self.max_unauthenticated_of_address = 1 << 30
        self.authentication_timeout_ms = 10000

    @property
    def closes(self) -> dict[str, int]:
        """Number of closed connections, by reason."""
        return {name: self.closes_by_reason[i] for i, name in enumerate(CLOSE_NAMES)}

    @property
    def drained(self) -> bool:
        """Whether the responses of all executed frames are sent."""
        cdef Connection c
        for c in self.by_id.values():
            if not is_drained(c):
                return False
        return True

    def count_connections(self) -> None:
        """Count, for metrics, how long the connections have been open, and the bytes that are not sent yet. Called periodically."""
        cdef Connection c
        cdef Pending pending
        cdef int64_t now = coarse_ms(), queued = 0
        turn_clock()
        for c in self.by_id.values():
            c.count_time(now)
            queued += c.output.queue.span_bytes + c.output.queue.file_bytes
            pending = c.pending_head
            while pending is not None:
                queued += pending.answer.span_bytes + pending.answer.file_bytes + pending.after.span_bytes + pending.after.file_bytes
                pending = pending.next
        store_relaxed_64(&own_page().words[<int>QUEUED_BYTES], <uint64_t>queued)

    # --- connections that have not authenticated ---

    cdef int admit(self, Connection c) except -1:
        """Count a connection that has not authenticated; at a limit, make room by closing an older one, or close this one."""
        cdef Connection oldest
        cdef dict of_network = self.unauthenticated_of.setdefault(network_of(c.peer.rpartition(":")[0]), {})
        self.unauthenticated[c] = self.responses.now_ms
        of_network[c] = None
        if len(of_network) > self.max_unauthenticated_of_address:
            add(UNAUTHENTICATED_CLOSED, 1)
            oldest = self.oldest_silent(of_network)
            if oldest is not None:
                return self.close_now(oldest, CLOSE_AUTHENTICATION,
                                      "it had not authenticated, and was silent, when too many connections of its address had not")
            return self.close_now(c, CLOSE_AUTHENTICATION,
                                  f"{len(of_network) - 1} connections of this address have not authenticated yet, which is the limit")
        if len(self.unauthenticated) > self.max_unauthenticated:
            add(UNAUTHENTICATED_CLOSED, 1)
            oldest = self.oldest_silent(self.unauthenticated)
            if oldest is not None:
                return self.close_now(oldest, CLOSE_AUTHENTICATION, "it had not authenticated when too many connections had not")
            oldest = self.oldest_of_crowd(UNFAIR_SHARES * len(of_network))
            if oldest is not None:
                return self.close_now(oldest, CLOSE_AUTHENTICATION,
                                      "it had not authenticated when too many connections had not, most of them of its address")
            return self.close_now(c, CLOSE_AUTHENTICATION,
                                  f"{self.max_unauthenticated} connections have not authenticated yet, which is the limit")
        return 0

    cdef Connection oldest_silent(self, object connections):
        """The oldest connection without activity for SILENT_MS and without unread bytes, among the oldest MOST_SOUGHT of these;
        None: there is none."""
        cdef Connection c
        cdef uint8_t byte
        cdef int looked = 0
        for c in connections:
            if self.responses.now_ms - c.last_activity_ms >= SILENT_MS and not (c.tls is not None and c.tls.busy) \
                    and recv(c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0:
                return c
            looked += 1
            if looked == MOST_SOUGHT:
                return None
        return None

    cdef Connection oldest_of_crowd(self, int64_t fair):
        """The oldest unauthenticated connection of the address that has the most; None if the address has at most `fair`."""
        if self.responses.now_ms - self.crowd_sought_ms >= CROWD_SOUGHT_MS:
            self.crowd_sought_ms = self.responses.now_ms
            self.crowd = max(self.unauthenticated_of.values(), key=len)
        return next(iter(self.crowd)) if len(self.crowd) > fair else None

    cdef int forget_unauthenticated(self, Connection c) except -1:
        cdef dict of_network
        if c in self.unauthenticated:
            del self.unauthenticated[c]
            network = network_of(c.peer.rpartition(":")[0])
            of_network = self.unauthenticated_of[network]
            del of_network[c]
            if not of_network:
                del self.unauthenticated_of[network]
        return 0

    def await_authentication(self, Connection c not None) -> None:
        """Count a connection of a listener without TLS whose client must log in; `note_authenticated` ends that."""
        if c.fd >= 0 and c not in self.unauthenticated:
            self.admit(c)

    def note_authenticated(self, Connection c not None) -> None:
        """The client has logged in. If the TLS handshake is the whole authentication, RequestReceiver notes that itself."""
        self.forget_unauthenticated(c)

    @property
    def unauthenticated_count(self) -> int:
        """Number of connections that have not authenticated yet."""
        return len(self.unauthenticated)

    def sweep_unauthenticated(self, int64_t now_ms) -> int:
        """Close the connections that have not authenticated within `authentication_timeout_ms`. Return their number."""
        cdef Connection c
        cdef int count = 0
        cdef int64_t waited
        while self.unauthenticated:
            c, since_ms = next(iter(self.unauthenticated.items()))
            waited = now_ms - <int64_t>since_ms
            if waited < self.authentication_timeout_ms:
                break
            count += 1
            add(UNAUTHENTICATED_CLOSED, 1)
            what = "the TLS handshake was not complete" if c.tls is not None and not c.tls.established else "the client had not logged in"
            self.close_now(c, CLOSE_AUTHENTICATION, f"{what} after {waited} ms")
        return count

    # --- limits of idle time and number ---

    def sweep_idle(self, int64_t now_ms) -> int:
        """Close the connections that sent and received nothing for `idle_ms`, have no pending response and are not throttled. Return their
        number."""
        cdef Connection c
        cdef int count = 0
        if self.idle_ms < 0:
            return 0
        for c in list(self.by_id.values()):
            if now_ms - c.last_activity_ms > self.idle_ms and c.pending_count == 0 and not c.frames.hold & HOLD_THROTTLE:
                self.close_now(c, CLOSE_IDLE, f"idle for {now_ms - c.last_activity_ms} ms")
                count += 1
        return count

    def close_least_used(self, int protected_listener) -> bool:
        """Close the connection, of another listener, that was idle for the longest time. Return whether there was one."""
        cdef Connection c, oldest = None
        for c in self.by_id.values():
            if c.listener_index != protected_listener and (oldest is None or c.last_activity_ms < oldest.last_activity_ms):
                oldest = c
        if oldest is None:
            return False
        self.close_now(oldest, CLOSE_ASKED, "a connection of a broker exceeds max.connections, and this one was idle for the longest time")
        return True

    def forget_quotas(self) -> None:
        """No quota exists any more: requests are not charged until `Charges` looks them up again."""
        cdef Connection c
        for c in self.by_id.values():
            c.quotas.limited = False
            c.quotas.version = 0

    # --- ends of connections ---

    def close_all(self, reason="the broker stops") -> None:
        """Close every connection at once."""
        for c in list(self.by_id.values()):
            self.close_now(c, CLOSE_ASKED, reason)

    def close_drained(self, reason="the broker stops") -> None:
        """Close the connections whose executed frames are answered and whose responses are sent."""
        cdef Connection c
        for c in list(self.by_id.values()):
            if is_drained(c):
                self.close_now(c, CLOSE_ASKED, reason)

    def close_answered(self, reason) -> None:
        """Close the connections whose executed frames are answered, also if their clients have not read the responses."""
        cdef Connection c
        for c in list(self.by_id.values()):
            if not c.pending_count:
                self.close_now(c, CLOSE_ASKED, reason)

    def close_ended(self, connections) -> None:
        """Close those of `connections` whose clients have closed the connection, or their own direction of it."""
        cdef Connection c
        for c in connections:
            if c.fd >= 0 and (c.state.peer_finished or ended_by_peer(c.fd)):
                self.close_now(c, CLOSE_EOF, "the client closed it while one of its requests waited for the coordinator")

    cdef int close_now(self, Connection c, int reason, object text) except -1:
        cdef Pending pending
        cdef bint unauthenticated, stranger = False
        if c.fd < 0:
            return 0
        if c.tls is not None and c.tls.reading and reason != CLOSE_RESET:
            self.sender.push_records(c)               # without them, the client could not read close_notify
            if c.fd < 0:                       # the socket has failed, and is closed
                return 0
        unauthenticated = reason == CLOSE_AUTHENTICATION or (
            reason == CLOSE_OTHER_PROTOCOL and c.tls is not None and not c.tls.established)
        add(UNSENT_BYTES, c.output.sealed_bytes)
        if c.tls is not None:
            if reason != CLOSE_RESET:
                self.say_goodbye(c)
            elif not c.tls.busy:
                c.tls.drop()
        if self.unauthenticated:
            stranger = c in self.unauthenticated
            self.forget_unauthenticated(c)
        if unauthenticated:
            add(FAILED_AUTHENTICATIONS, 1)
        self.events.remove(c)                  # needed if another process holds the socket open
        close(c.fd)
        c.fd = -1
        c.close_reason = text
        self.closes_by_reason[reason] += 1
        add(CLOSED_EOF + reason, 1)
        if 0 <= c.listener_index < METER_LISTENERS and own_page().listeners[c.listener_index].open:
            count_64(&own_page().listeners[c.listener_index].open, -1)
        software_closed(c.metering.software)
        c.metering.software = -1
        c.count_time(coarse_ms())
        add(UNSENT_BYTES, c.output.queue.span_bytes + c.output.queue.file_bytes)
        self.graveyard.append(c)               # events of this turn may point to it, and callers may hold no reference to it
        del self.by_id[c.connection_id]
        self.responses.throttled.pop(c.connection_id, None)
        drop_queue(&c.output.queue)
        while c.pending_head is not None:
            pending = c.pending_head
            pending.cancelled = True
            add(UNSENT_BYTES, pending.answer.span_bytes + pending.answer.file_bytes
                + pending.after.span_bytes + pending.after.file_bytes)
            drop_queue(&pending.answer)
            drop_queue(&pending.after)
            c.pending_head = pending.next
            pending.next = None
        c.pending_tail = None
        c.pending_count = 0
        c.output.waiting_bytes = 0
        if self.responses.current is not c:              # else its frames may be in use; the end of the turn releases the buffers
            self.release_buffers(c)
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        if c.frames.skipped:
            LOG.info("%s: %d request(s) were not executed: they had waited for over %d s when the client had closed the connection",
                     c.name, c.frames.skipped, LATE_MS // 1000, extra=c.log_fields)
        if (unauthenticated or (stranger and reason != CLOSE_OTHER_PROTOCOL and reason not in QUIET)) and self.failure_log is not None:
            text = self.failure_log(c.peer, text)
        elif self.protocol_log is not None and reason == CLOSE_OTHER_PROTOCOL:
            text = self.protocol_log(c.peer, text)
        if text is not None and LOG.isEnabledFor(level):
            LOG.log(level, "%s closed: %s", c.name, text, extra={**c.log_fields, "line_kind": CLOSE_NAMES[reason]})
        try:
            self.handler.closed(c)
            if self.on_closed is not None:
                self.on_closed(c.connection_id)
        except Exception:
            LOG.exception("a callback failed after %s was closed", c.name, extra=c.log_fields)
        if not self.in_turn:
            self.graveyard = []
        return 0

    cdef int say_goodbye(self, Connection c) except -1:
        """Send close_notify if all responses were sent: without it, a client treats the stream as truncated."""
        cdef bytes records
        cdef Tls tls = c.tls
        if tls.library is None or tls.busy:
            return 0
        if tls.established and tls.error is None and c.output.sealed_bytes == 0 and c.output.queue.head == NULL \
                and (self.responses.current is not c or self.responses.out_length == 0):
            records = tls.shutdown()
            if records:
                send(c.fd, <const char*>records, len(records), MSG_NOSIGNAL | MSG_DONTWAIT)    # if the socket is full, there is none
        tls.drop()
        c.output.sealed_bytes = 0
        return 0

    cdef int fail(self, Connection c) except -1:
        """Log the exception that is being handled, and close the connection for which it was raised."""
        LOG.exception("closing %s because of an internal error", c.name, extra=c.log_fields)
        if self.responses.current is c:
            add(UNSENT_BYTES, self.responses.out_length)
            self.responses.executed_us = clock_us()
            self.responses.settle_times(c)
        self.responses.current = None
        self.responses.target = None
        self.responses.out_length = self.responses.out_base = self.sender.gathered.length = 0
        self.close_now(c, CLOSE_ERROR, "internal error, logged above")
        self.release_buffers(c)
        return 0

    cdef void release_buffers(self, Connection c) noexcept:
        add(UNUSED_BYTES_IN, c.input.unused_bytes)
        c.input.unused_bytes = 0
        self.pool.give(&c.input.part)
        self.pool.give(&c.input.held)
        if c.tls is not None:
            self.pool.give(&c.tls.unread)
