"""The loop over a worker's data connections: one epoll descriptor, which the worker's event loop watches.

Runs in a worker, in the thread of its event loop; nothing in this module is shared with another thread or process. `DataLoop` is
the top layer (connection.pyx lists the layers): it supplies `flush_dirty` to `ResponseOutput`, and `end_turn`, `update_interest` and
`continue_later` to `FrameReader`, and requires nothing of a subclass.

System calls are most of the cost of a small request. Therefore one recv takes all bytes that have arrived, one send takes the
responses to all of them, the registered epoll events change only where they must, and no Python object is made for a frame.

A turn handles one batch of events. For each ready connection it receives, offers the frames to the handler, and sends the
responses. Bad input closes its connection only; an exception of a handler closes the connection for which it was raised.
"""

from cpython.object cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport strerror
from posix.unistd cimport close, read, write

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport CLOSE_EOF, CLOSE_RESET, HOLD_STOPPING, HOLD_THROTTLE, OUT_ROOM, Connection
from odradek._ext.net.frame_reading cimport PEEK_BYTES, RECORDS_BYTES, FrameHandler
from odradek._ext.net.late_requests cimport beat, look_at_clock
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.output cimport drop_queue
from odradek._ext.net.tls cimport PLAIN_MOST, RECORD_BYTES, SEALED_MOST, Tls
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.metering cimport (
    CONNECTIONS_ACCEPTED,
    METER_LISTENERS,
    TURNS,
    TURN_US,
    UNSENT_BYTES,
    add,
    clock_us,
    own_page,
    turn_clock,
)
from odradek._ext.shm.owners cimport owner_of


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
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR
    int make_data_socket(int fd)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK


cdef enum:
    EVENTS_A_TURN = 256


cdef bint ended_while_throttled(Connection c) noexcept:
    """Whether the connection is throttled, its client sends no more, and no request and no response is left."""
    return (c.frames.hold & HOLD_THROTTLE and c.pending_count == 0 and c.input.held.data == NULL and c.output.queue.head == NULL
            and c.output.sealed_bytes == 0 and (c.tls is None or not c.tls.pending()) and nothing_unread(c.fd))


cdef class DataLoop(OpenConnections):
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
        self.again_fd = -1
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
        self.dirty = []
        self.throttled = {}
        self.throttle_ends = []
        self.unread = []
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
        if self.again_fd >= 0:
            close(self.again_fd)
        free(self.shared)
        free(self.out)
        free(self.records)
        free(self.gathered.data)
        free(self.plain_out)

    def fileno(self) -> int:
        """The epoll descriptor: `loop.add_reader(data_loop.fileno(), data_loop.on_events)`."""
        return self.epoll_fd

    def add(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared=False) -> Connection:
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

    # --- TLS ---

    def use_tls(self, listeners) -> None:
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

    def tick(self) -> None:
        """Called every half second by the loop's timer. Missing calls show that the process stood still (late_requests.pxd)."""
        beat(&self.standstill, coarse_ms())

    def stop_reading(self) -> None:
        """Execute no further frame on any connection; continue to send responses. `drained` is true when all are sent."""
        cdef Connection c
        self.stopping = True
        for c in list(self.connections.values()):
            c.frames.hold |= HOLD_STOPPING
            try:
                self.update_interest(c, True)
            except OSError:
                self.fail(c)

    # --- turns ---

    def on_events(self) -> None:
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
