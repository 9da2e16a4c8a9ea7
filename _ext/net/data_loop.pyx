"""The loop over a worker's data connections: one epoll descriptor, which the worker's event loop watches.

Runs in a worker, in the thread of its event loop; nothing in this module is shared with another thread or process. `DataLoop` is
the top layer (connection.pyx lists the layers): it supplies `flush_dirty`, `begin_close` and `close_now` to `ResponseOutput`, and
`end_turn` and `update_interest` to `FrameReader`, and requires nothing of a subclass.

System calls are most of the cost of a small request. Therefore one recv takes all bytes that have arrived, one send takes the
responses to all of them, the registered epoll events change only where they must, and no Python object is made for a frame.

A turn handles one batch of events. For each ready connection it receives, offers the frames to the handler, and sends the
responses. Bad input closes its connection only; an exception of a handler closes the connection for which it was raised.
"""

import logging
from heapq import heappop, heappush
from collections import OrderedDict

from cpython.object cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport strerror
from posix.unistd cimport close, read, write

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport (
    CLOSE_ASKED,
    CLOSE_AUTHENTICATION,
    CLOSE_EOF,
    CLOSE_ERROR,
    CLOSE_IDLE,
    CLOSE_OTHER_PROTOCOL,
    CLOSE_RESET,
    HOLD_CLOSING,
    HOLD_STOPPING,
    HOLD_THROTTLE,
    OUT_ROOM,
    Connection,
    Pending,
)
from odradek._ext.net.frame_reading cimport PEEK_BYTES, RECORDS_BYTES, FrameHandler
from odradek._ext.net.late_requests cimport LATE_MS, beat, ended_by_peer, look_at_clock
from odradek._ext.net.output cimport drop_queue
from odradek._ext.net.tls cimport PLAIN_MOST, RECORD_BYTES, SEALED_MOST, Tls
from odradek._ext.shm.layout cimport coarse_ms
from odradek._ext.shm.metering cimport (
    CLOSED,
    CONNECTIONS_ACCEPTED,
    FAILED_AUTHENTICATIONS,
    METER_LISTENERS,
    QUEUED_BYTES,
    TURNS,
    TURN_US,
    UNAUTHENTICATED_CLOSED,
    UNSENT_BYTES,
    UNUSED_BYTES_IN,
    add,
    clock_us,
    own_page,
    software_closed,
    turn_clock,
)
from odradek._ext.shm.owners cimport network_of, owner_of


cdef extern from "<sys/epoll.h>" nogil:
    """
    #include <fcntl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <unistd.h>

    static int make_data_socket(int fd) {
        int flags = fcntl(fd, F_GETFL), one = 1;
        if (flags < 0) return -1;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);   /* fails on a Unix socket, which does not need it */
        return 0;
    }

    /* Whether the stream has ended, and all of its bytes were received. */
    static int nothing_unread(int fd) {
        char byte;
        return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    }
    """
    bint nothing_unread(int fd)
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll_fd, epoll_event* events, int room, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR
    int make_data_socket(int fd)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int socket, void* data, size_t n, int flags)
    ssize_t send(int socket, const void* data, size_t n, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK


cdef enum:
    EVENTS_A_TURN = 256
    SILENT_MS = 1000                  # a client that says nothing for so long during its handshake makes room for another one
    UNFAIR_SHARES = 2                 # an address with more than so many times the unauthenticated connections of another makes room for it
    CROWD_SOUGHT_MS = 100             # the address with most of them is looked for at most once in this time

LOG = logging.getLogger("odradek.connections")

CLOSE_NAMES = ("eof", "reset", "idle", "bad_frame", "other_protocol", "handler", "file", "error", "asked", "authentication")
cdef set QUIET = {CLOSE_EOF, CLOSE_RESET, CLOSE_IDLE, CLOSE_ASKED}


cdef bint ended_while_throttled(Connection c) noexcept:
    """Whether the connection is throttled, its client sends no more, and no request and no response is left."""
    return (c.frames.hold & HOLD_THROTTLE and c.pending_count == 0 and c.input.held.data == NULL and c.output.queue.head == NULL
            and c.output.sealed_bytes == 0 and (c.tls is None or not c.tls.pending()) and nothing_unread(c.fd))


cdef class DataLoop(FrameReader):
    """All data connections of a worker.

    :param handler: executes the frames. :param max_request_bytes: socket.request.max.bytes. :param idle_ms: connections.max.idle.ms,
        negative: connections are never closed for being idle.
    :param max_pending, max_queued_bytes: back-pressure: a connection with so many pending responses, or so many unsent bytes of
        responses in memory, is not read until the client has taken half of them.
    :param retained_bytes: maximum bytes of free receive buffers that are kept.
    :param cold_reader: called like page_cache.ColdReader; None: the loop itself waits for pages that are not in the page cache.
    :param on_closed: called with the id of each closed connection.
    """

    def __cinit__(self):
        self.epoll_fd = self.again_fd = -1
        self.shared = self.out = self.records = self.gathered.data = self.plain_out = NULL

    def __init__(self, FrameHandler handler not None, *, int64_t max_request_bytes=104857600, int64_t idle_ms=600000,
                 int max_pending=100, int64_t max_queued_bytes=1048576, int64_t receive_buffer_bytes=524288,
                 int64_t retained_bytes=33554432, cold_reader=None, on_closed=None):
        if self.epoll_fd >= 0:
            raise RuntimeError("a DataLoop was initialised twice")
        if receive_buffer_bytes < 2 * PEEK_BYTES:
            raise ValueError(f"receive_buffer_bytes={receive_buffer_bytes} is too small, at least {2 * PEEK_BYTES} are needed")
        self.handler = handler
        self.max_request_bytes = max_request_bytes
        self.idle_ms = idle_ms
        self.max_pending = max_pending
        self.max_queued_bytes = max_queued_bytes
        self.cold_reader = cold_reader
        self.on_closed = on_closed
        self.pool = BufferPool(retained_bytes)
        self.connections = {}
        self.dirty = []
        self.graveyard = []
        self.throttled = {}
        self.throttle_ends = []
        self.unread = []
        self.unauthenticated = OrderedDict()
        self.unauthenticated_of = {}
        self.crowd = {}
        self.max_unauthenticated = self.max_unauthenticated_of_address = 1 << 30
        self.authentication_timeout_ms = 10000
        self.shared_bytes = receive_buffer_bytes
        self.shared = <uint8_t*>malloc(receive_buffer_bytes)
        self.out_room = OUT_ROOM
        self.out = <uint8_t*>malloc(OUT_ROOM)
        if self.shared == NULL or self.out == NULL:
            raise MemoryError("no memory for the shared buffers")
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1 failed")
        self.now_ms = coarse_ms()

    def __dealloc__(self):
        if self.epoll_fd >= 0:
            close(self.epoll_fd)
        if self.again_fd >= 0:
            close(self.again_fd)
        free(self.shared)
        free(self.out)
        free(self.records)
        free(self.gathered.data)
        free(self.plain_out)

    def fileno(self):
        """The epoll descriptor: `loop.add_reader(data_loop.fileno(), data_loop.on_events)`."""
        return self.epoll_fd

    @property
    def closes(self):
        """Number of closed connections, by reason."""
        return {name: self.closes_by_reason[i] for i, name in enumerate(CLOSE_NAMES)}

    @property
    def drained(self):
        """Whether the responses of all executed frames are sent."""
        cdef Connection c
        for c in self.connections.values():
            if c.pending_count or c.output.queue.head != NULL or c.output.sealed_bytes:
                return False
        return True

    def add(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared=False):
        """Serve the connected socket `fd`. The DataLoop owns it from now on: it closes the socket if this raises.

        :param prepared: the socket is non-blocking and has TCP_NODELAY, as those that the acceptor accepts.
        :raises OSError: the system cannot register the socket, for lack of memory for instance. :raises ValueError: the id is in use.
        """
        try:
            if connection_id in self.connections:
                raise ValueError(f"connection id {connection_id} is in use")
            return self.begin(fd, connection_id, listener_index, peer, prepared)
        except BaseException:
            close(fd)
            raise

    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared):
        cdef Connection c = Connection.__new__(Connection)
        cdef epoll_event event
        c.data_loop = self
        c.fd = fd
        c.connection_id = connection_id
        c.listener_index = listener_index
        c.peer = peer
        c.owner = owner_of(peer)
        self.now_ms = coarse_ms()
        c.last_activity_ms = c.metering.counted_ms = c.opened_ms = self.now_ms
        c.metering.software = -1
        c.frames.hold = HOLD_STOPPING if self.stopping else 0
        c.frames.most_bytes = self.max_request_bytes
        c.state.interest = event.events = EPOLLRDHUP if self.stopping else EPOLLIN | EPOLLRDHUP
        event.data.ptr = <void*><PyObject*>c
        if self.tls_listeners is not None and self.tls_listeners[listener_index] is not None:
            c.tls = Tls(self.tls_listeners[listener_index])
        self.connections[connection_id] = c     # before EPOLL_CTL_ADD: events point to the connection and hold no reference
        if (not prepared and make_data_socket(fd) < 0) or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            error = errno
            c.fd = -1
            del self.connections[connection_id]
            raise OSError(error, strerror(error).decode())
        add(CONNECTIONS_ACCEPTED, 1)
        if 0 <= listener_index < METER_LISTENERS:
            own_page().listeners[listener_index].open += 1
            own_page().listeners[listener_index].accepted += 1
        if c.tls is not None:
            self.admit(c)
        return c

    # --- TLS and authentication ---

    def use_tls(self, listeners):
        """Serve TLS. New connections use these settings; open ones keep those that they have.

        :param listeners: a TlsListener, or None for a plain one, by index of the listener.
        """
        cdef epoll_event event
        if self.records == NULL and any(listener is not None for listener in listeners):
            self.records = <uint8_t*>malloc(RECORDS_BYTES)
            self.gathered.room = SEALED_MOST + 2 * RECORD_BYTES
            self.gathered.data = <uint8_t*>malloc(self.gathered.room)
            self.plain_out = <uint8_t*>malloc(PLAIN_MOST)
            if self.records == NULL or self.gathered.data == NULL or self.plain_out == NULL:
                raise MemoryError("no memory for the shared buffers of TLS")
            self.again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
            event.events = EPOLLIN
            event.data.ptr = NULL
            if self.again_fd < 0 or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.again_fd, &event) < 0:
                raise OSError(errno, "eventfd failed")
        self.tls_listeners = list(listeners)

    cdef int admit(self, Connection c) except -1:
        """Count a connection that has not authenticated; at a limit, make room by closing an older one, or close this one."""
        cdef Connection oldest
        cdef uint8_t byte
        cdef dict of_network = self.unauthenticated_of.setdefault(network_of(c.peer.rpartition(":")[0]), {})
        self.unauthenticated[c] = self.now_ms
        of_network[c] = None
        if len(of_network) > self.max_unauthenticated_of_address:
            add(UNAUTHENTICATED_CLOSED, 1)
            return self.close_now(c, CLOSE_AUTHENTICATION,
                                  f"{len(of_network) - 1} connections of this address have not authenticated yet, which is the limit")
        if len(self.unauthenticated) > self.max_unauthenticated:
            add(UNAUTHENTICATED_CLOSED, 1)
            oldest = next(iter(self.unauthenticated))
            if self.now_ms - oldest.last_activity_ms >= SILENT_MS and not (oldest.tls is not None and oldest.tls.busy) \
                    and recv(oldest.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0:
                return self.close_now(oldest, CLOSE_AUTHENTICATION, "it had not authenticated when too many connections had not")
            oldest = self.oldest_of_crowd(UNFAIR_SHARES * len(of_network))
            if oldest is not None:
                return self.close_now(oldest, CLOSE_AUTHENTICATION,
                                      "it had not authenticated when too many connections had not, most of them of its address")
            return self.close_now(c, CLOSE_AUTHENTICATION,
                                  f"{self.max_unauthenticated} connections have not authenticated yet, which is the limit")
        return 0

    cdef Connection oldest_of_crowd(self, int64_t fair):
        """The oldest unauthenticated connection of the address that has most of them; None if it has at most `fair`."""
        if self.now_ms - self.crowd_sought_ms >= CROWD_SOUGHT_MS:
            self.crowd_sought_ms = self.now_ms
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

    cdef int authenticated(self, Connection c) except -1:
        return self.forget_unauthenticated(c)

    def await_authentication(self, Connection c not None):
        """Count a connection of a listener without TLS whose client must log in: the limits hold for it until `note_authenticated`."""
        if c.fd >= 0 and c not in self.unauthenticated:
            self.admit(c)

    def note_authenticated(self, Connection c not None):
        """The client has logged in. After a TLS handshake that is the whole authentication this is noted without a call."""
        self.forget_unauthenticated(c)

    @property
    def unauthenticated_count(self):
        """Number of connections that have not authenticated yet."""
        return len(self.unauthenticated)

    def sweep_unauthenticated(self, int64_t now_ms):
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

    cdef int continue_later(self, Connection c) except -1:
        """Go on with the connection's unread records in the next turn: epoll does not know of them."""
        cdef uint64_t one = 1
        if not c.tls.listed:
            c.tls.listed = True
            self.unread.append(c)
        if not self.again:
            self.again = True
            if write(self.again_fd, &one, sizeof(one)) < 0:
                raise OSError(errno, "cannot write to an eventfd")
        return 0

    cdef int read_on(self) except -1:
        cdef Connection c
        cdef list batch = self.unread
        cdef uint64_t ones
        self.unread = []
        self.again = False
        read(self.again_fd, &ones, sizeof(ones))
        for c in batch:
            c.tls.listed = False
            if c.fd < 0:
                continue
            try:
                if not c.frames.hold and not c.state.eof:
                    self.read_records(c)
            except Exception:
                self.fail(c)
        return 0

    cdef int say_goodbye(self, Connection c) except -1:
        """Send close_notify, if the responses before it were sent: a client takes a stream without it for cut off."""
        cdef bytes records
        cdef Tls tls = c.tls
        if tls.library is None or tls.busy:
            return 0
        if tls.established and tls.error is None and c.output.sealed_bytes == 0 and c.output.queue.head == NULL \
                and (self.current is not c or self.out_length == 0):
            records = tls.shutdown()
            if records:
                send(c.fd, <const char*>records, len(records), MSG_NOSIGNAL | MSG_DONTWAIT)    # if the socket is full, there is none
        tls.drop()
        c.output.sealed_bytes = 0
        return 0

    def close(self, Connection c not None, reason="closed by the broker"):
        """Close the connection at once and drop its unsent responses. `reason` is logged."""
        self.close_now(c, CLOSE_ASKED, reason)

    def close_after_responses(self, Connection c not None, reason):
        """Read no more, and close the connection as soon as its responses are sent: at the end of this turn, or in the next
        `flush_dirty`. `reason` is logged."""
        self.begin_close(c, CLOSE_ASKED, reason)
        self.mark_dirty(c)

    def close_all(self, reason="the broker stops"):
        """Close every connection at once."""
        for c in list(self.connections.values()):
            self.close_now(c, CLOSE_ASKED, reason)

    def tick(self):
        """Called every half second by the loop's timer. Missing calls show that the process stood still (late_requests.pxd)."""
        beat(&self.standstill, coarse_ms())

    def close_ended(self, connections):
        """Close those of `connections` whose clients have closed the connection, or their own direction of it."""
        cdef Connection c
        for c in connections:
            if c.fd >= 0 and (c.state.peer_finished or ended_by_peer(c.fd)):
                self.close_now(c, CLOSE_EOF, "the client closed it while one of its requests waited for the coordinator")

    def count_connections(self):
        """Count, for metrics, how long the connections have been open, and the bytes that are not sent yet. Called periodically."""
        cdef Connection c
        cdef Pending pending
        cdef int64_t now = coarse_ms(), queued = 0
        turn_clock()
        for c in self.connections.values():
            c.count_time(now)
            queued += c.output.queue.span_bytes + c.output.queue.file_bytes
            pending = c.pending_head
            while pending is not None:
                queued += pending.answer.span_bytes + pending.answer.file_bytes + pending.after.span_bytes + pending.after.file_bytes
                pending = pending.next
        own_page().words[QUEUED_BYTES] = <uint64_t>queued

    # --- limits ---

    def stop_reading(self):
        """Execute no further frame on any connection; continue to send responses. `drained` is true when all are sent."""
        cdef Connection c
        self.stopping = True
        for c in list(self.connections.values()):
            c.frames.hold |= HOLD_STOPPING
            try:
                self.update_interest(c, True)
            except OSError:
                self.fail(c)

    def sweep_idle(self, int64_t now_ms):
        """Close the connections that sent and received nothing for `idle_ms`, have no pending response and are not throttled. Return their
        number."""
        cdef Connection c
        cdef int count = 0
        if self.idle_ms < 0:
            return 0
        for c in list(self.connections.values()):
            if now_ms - c.last_activity_ms > self.idle_ms and c.pending_count == 0 and not c.frames.hold & HOLD_THROTTLE:
                self.close_now(c, CLOSE_IDLE, f"idle for {now_ms - c.last_activity_ms} ms")
                count += 1
        return count

    def close_least_used(self, int protected_listener):
        """Close the connection that was idle for the longest time, but none of this listener. Return whether there was one."""
        cdef Connection c, oldest = None
        for c in self.connections.values():
            if c.listener_index != protected_listener and (oldest is None or c.last_activity_ms < oldest.last_activity_ms):
                oldest = c
        if oldest is None:
            return False
        self.close_now(oldest, CLOSE_ASKED, "a connection of a broker exceeds max.connections, and this one was idle for the longest time")
        return True

    def release_throttled(self, int64_t now_ms):
        """Resume the connections whose throttle time is over. Return when the next throttle time ends, or -1."""
        cdef Connection c
        while self.throttle_ends and (<int64_t>self.throttle_ends[0][0] <= now_ms or self.throttle_ends[0][1] not in self.throttled):
            _, connection_id = heappop(self.throttle_ends)
            c = self.throttled.get(connection_id)
            if c is None:
                continue
            if c.throttled_until_ms > now_ms:       # it was throttled for longer meanwhile
                heappush(self.throttle_ends, (c.throttled_until_ms, connection_id))
                continue
            del self.throttled[connection_id]
            c.frames.hold &= ~HOLD_THROTTLE
            c.frames.resumed = True             # a frame may have been deferred because of the throttle (Charges.holds)
            c.last_activity_ms = max(c.last_activity_ms, now_ms)
            self.mark_dirty(c)
        self.flush_dirty()
        return self.throttle_ends[0][0] if self.throttle_ends else -1

    def forget_quotas(self):
        """No quota exists any more: requests are not charged until `Charges` looks them up again."""
        cdef Connection c
        for c in self.connections.values():
            c.quotas.limited = False
            c.quotas.version = 0

    # --- turns ---

    def on_events(self):
        """Handle a bounded number of ready connections. The event loop calls again while the epoll descriptor is readable."""
        cdef epoll_event[EVENTS_A_TURN] events
        cdef int i, n
        cdef Connection c
        if self.in_turn:
            raise RuntimeError("on_events was called within a turn of the data loop")
        n = epoll_wait(self.epoll_fd, events, EVENTS_A_TURN, 0)
        self.now_ms = coarse_ms()
        look_at_clock(&self.standstill, self.now_ms)
        turn_clock()
        self.turn_us = self.clock = clock_us()
        self.in_turn = True
        try:
            if self.unread:
                self.read_on()
            for i in range(n):
                if events[i].data.ptr == NULL:     # again_fd
                    continue
                c = <Connection><PyObject*>events[i].data.ptr
                if c.fd < 0:
                    continue
                try:
                    self.handle_event(c, events[i].events)
                except Exception:
                    self.fail(c)
            if self.dirty:
                self.settle_dirty()
        finally:
            self.in_turn = False
            self.slice_owner = None
            self.end_clock()
            if self.graveyard:
                self.graveyard = []

    cpdef int flush_dirty(self) except -1:
        if self.in_turn or not self.dirty:
            return 0
        self.now_ms = coarse_ms()
        look_at_clock(&self.standstill, self.now_ms)
        turn_clock()
        self.turn_us = self.clock = clock_us()
        self.in_turn = True
        try:
            self.settle_dirty()
        finally:
            self.in_turn = False
            self.slice_owner = None
            self.end_clock()
            self.graveyard = []
        return 0

    cdef int settle_dirty(self) except -1:
        cdef Connection c
        cdef list batch
        while self.dirty:
            batch = self.dirty
            self.dirty = []
            for c in batch:
                c.state.dirty = False
                if c.fd < 0:
                    continue
                try:
                    self.end_turn(c)
                except Exception:
                    self.fail(c)
        return 0

    cdef void end_clock(self) noexcept:
        add(TURNS, 1)
        add(TURN_US, clock_us() - self.turn_us)

    cdef int handle_event(self, Connection c, uint32_t events) except -1:
        if events & (EPOLLERR | EPOLLHUP) and (c.frames.hold or c.state.eof or not events & EPOLLIN):
            return self.close_now(c, CLOSE_RESET, "the client or the network reset it")
        if events & EPOLLOUT:
            c.output.blocked = False
            self.end_turn(c)
            if c.fd < 0:
                return 0
        if events & EPOLLIN and not c.frames.hold and not c.state.eof:
            if c.state.peer_finished or events & EPOLLRDHUP:
                if c.tls is None:
                    self.unjudged = c          # most often nothing is unread, and the connection is closed without a look at its age
                else:
                    self.judge_unread(c)
            self.readable(c)
            self.unjudged = None
            return 0
        if events & EPOLLRDHUP and not c.state.peer_finished:
            c.state.peer_finished = True
            self.handler.half_closed(c)
            if c.fd >= 0 and ended_while_throttled(c):
                return self.close_now(c, CLOSE_EOF, "the client closed it while it was throttled")
        if c.fd >= 0:
            self.update_interest(c, True)
        return 0

    cdef int end_turn(self, Connection c) except -1:
        """Send responses, continue with held frames, close the connection if it is finished, and update the awaited events."""
        while c.fd >= 0:
            self.deliver(c)
            self.settle_times(c)
            self.current = None
            self.release_holds(c)
            if c.fd < 0 or c.frames.hold or c.input.held.data == NULL:
                break
            self.offer_held(c)
        if c.fd < 0:
            if self.current is c:
                add(UNSENT_BYTES, self.out_length)
                self.settle_times(c)
            self.current = None
            self.out_length = self.out_base = 0
            add(UNSENT_BYTES, c.output.queue.span_bytes + c.output.queue.file_bytes)
            drop_queue(&c.output.queue)        # responses written after the connection was closed
            self.release_buffers(c)
            return 0
        self.current = None
        if c.tls is not None and not c.tls.reading and not c.frames.hold and not c.state.eof and c.tls.pending():
            self.continue_later(c)
        if c.pending_count == 0 and c.output.queue.head == NULL and c.output.sealed_bytes == 0:
            if c.state.closing:
                return self.close_now(c, c.state.closing - 1, c.close_reason)
            if c.state.eof and c.input.held.data == NULL:
                return self.close_now(c, CLOSE_EOF, "the client closed it")
            if c.state.peer_finished and ended_while_throttled(c):
                return self.close_now(c, CLOSE_EOF, "the client closed it while it was throttled")
        return self.update_interest(c, False)

    cdef int update_interest(self, Connection c, bint force) except -1:
        """Register the epoll events that are of use. Superfluous read interest is removed only with `force`, after such an event."""
        cdef epoll_event event
        cdef uint32_t changed
        event.events = EPOLLOUT if c.output.blocked and (c.output.queue.head != NULL or c.output.sealed_bytes) else 0
        if not c.frames.hold and not c.state.eof:
            event.events |= EPOLLIN
        if not c.state.peer_finished:
            event.events |= EPOLLRDHUP
        changed = event.events ^ c.state.interest
        if changed & EPOLLOUT or changed & event.events & EPOLLIN or (force and changed):
            event.data.ptr = <void*><PyObject*>c
            if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, c.fd, &event) < 0:
                raise OSError(errno, "epoll_ctl failed")
            c.state.interest = event.events
        return 0

    # --- closing of a connection ---

    cdef int begin_close(self, Connection c, int reason, object text) except -1:
        """Read no more, and close the connection as soon as its responses are sent."""
        if not c.state.closing:
            c.state.closing = 1 + reason
            c.close_reason = text
            c.frames.hold |= HOLD_CLOSING
        return 0

    cdef int close_now(self, Connection c, int reason, object text) except -1:
        cdef epoll_event event
        cdef Pending pending
        cdef bint unauthenticated, stranger = False
        if c.fd < 0:
            return 0
        if c.tls is not None and c.tls.reading and reason != CLOSE_RESET:
            self.push_records(c)               # without them, the client could not read close_notify
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
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, c.fd, &event)    # needed if another process holds the socket open
        close(c.fd)
        c.fd = -1
        c.close_reason = text
        self.closes_by_reason[reason] += 1
        add(CLOSED + reason, 1)
        if 0 <= c.listener_index < METER_LISTENERS and own_page().listeners[c.listener_index].open:
            own_page().listeners[c.listener_index].open -= 1
        software_closed(c.metering.software)
        c.metering.software = -1
        c.count_time(coarse_ms())
        add(UNSENT_BYTES, c.output.queue.span_bytes + c.output.queue.file_bytes)
        self.graveyard.append(c)               # events of this turn may point to it, and callers may hold no reference to it
        del self.connections[c.connection_id]
        self.throttled.pop(c.connection_id, None)
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
        if self.current is not c:              # else its frames may be in use; the end of the turn releases the buffers
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
            LOG.log(level, "%s closed: %s", c.name, text, extra=c.log_fields)
        try:
            self.handler.closed(c)
            if self.on_closed is not None:
                self.on_closed(c.connection_id)
        except Exception:
            LOG.exception("a callback failed after %s was closed", c.name, extra=c.log_fields)
        if not self.in_turn:
            self.graveyard = []
        return 0

    cdef int fail(self, Connection c) except -1:
        """Log the exception that is being handled, and close the connection for which it was raised."""
        LOG.exception("closing %s because of an internal error", c.name, extra=c.log_fields)
        if self.current is c:
            add(UNSENT_BYTES, self.out_length)
            self.executed_us = clock_us()
            self.settle_times(c)
        self.current = None
        self.target = None
        self.out_length = self.out_base = self.gathered.length = 0
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
