"""The engine under a worker's data connections: one epoll descriptor, which the worker's event loop watches.

Runs in a worker, in the thread of its event loop; nothing here is shared with another thread or process. System
calls are what a small request costs, hence: one recv takes all that has arrived, one send takes the responses to all of
it, the interest in events changes only where it must, and no Python object is made for a frame.

A turn is one batch of events. For each ready connection: receive, offer the frames to the handler, deliver what it
wrote. A connection owns no buffer unless it holds part of a frame, or frames that must wait (`hold`). Bad input closes its
connection and nothing else; an exception of a handler closes the connection it was raised for.
"""

import logging

cimport cython
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EPIPE, ETIMEDOUT, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset, strerror

from broker._ext.buffers cimport Buffer, BufferPool
from broker._ext.output cimport (
    FILE_CHUNK,
    SENT_BLOCKED,
    SENT_COLD,
    SENT_ENOUGH,
    SENT_ERROR,
    SENT_SHORT_FILE,
    COPIED_SLICE,
    OutNode,
    OutQueue,
    SendState,
    add_copy,
    add_file,
    add_framed,
    add_part,
    drop_queue,
    join_queues,
    send_queue,
)
from broker._ext.metering cimport (
    BAD_FRAMES,
    CLOSED,
    CONNECTIONS_ACCEPTED,
    FRAMES,
    METER_KEY_NONE,
    METER_KEY_UNKNOWN,
    METER_LISTENERS,
    QUEUED_BYTES,
    SENDFILE_BYTES,
    SOCKET_BYTES_IN,
    SOCKET_BYTES_OUT,
    TOPIC_NONE,
    TURNS,
    TURN_US,
    UNSENT_BYTES,
    UNUSED_BYTES_IN,
    USAGE_BYTES_IN,
    USAGE_BYTES_OUT,
    USAGE_CONNECTION_MS,
    USAGE_ERRORS,
    USAGE_REQUESTS,
    USAGE_THROTTLE_MS,
    add,
    api_index,
    clock_us,
    count_error,
    count_request,
    count_times,
    find_client,
    is_client,
    own_page,
    software_closed,
    software_opened,
    still_client,
    turn_clock,
    usage_of,
)
from broker._ext.page_cache cimport read_resident


cdef extern from "<sys/epoll.h>" nogil:
    """
    #include <fcntl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #include <unistd.h>

    static int make_data_socket(int fd) {
        int flags = fcntl(fd, F_GETFL), one = 1;
        if (flags < 0) return -1;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);   /* refused by a Unix socket, which needs it not */
        return 0;
    }
    static int64_t coarse_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    """
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    struct iovec:
        void* iov_base
        size_t iov_len
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll_fd, epoll_event* events, int room, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR
    ssize_t recv(int socket, void* data, size_t n, int flags)
    ssize_t send(int socket, const void* data, size_t n, int flags)
    ssize_t readv(int fd, const iovec* parts, int count)
    int close(int fd)
    int MSG_DONTWAIT, MSG_NOSIGNAL
    int make_data_socket(int fd)
    int64_t coarse_ms()


cdef enum:
    EVENTS_A_TURN = 256
    READ_A_TURN = 2 * 1024 * 1024      # bytes of one connection, then the others have their turn
    SEND_A_TURN = 4 * 1024 * 1024
    PEEK_BYTES = 4096                  # received behind a large frame: likely the head of another, to be read in place
    OUT_ROOM = 128 * 1024
    OUT_DELIVERED = 256 * 1024         # responses are sent at the latest when there are so many bytes
    MAX_OUT_NODES = 4096
    SMALLEST_FRAME = 8                 # api key, version, correlation id

LOG = logging.getLogger("broker.net.connection")

cdef bytes ANONYMOUS = b"User:ANONYMOUS"

CLOSE_NAMES = ("eof", "reset", "idle", "bad_frame", "other_protocol", "handler", "file", "error", "asked")
cdef set QUIET = {CLOSE_EOF, CLOSE_RESET, CLOSE_IDLE, CLOSE_ASKED}


cdef inline int64_t load_size(const uint8_t* data) noexcept nogil:
    return <int32_t>((<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3])


cdef object other_protocol(const uint8_t* data):
    """What the first four bytes of a connection say if they are not Kafka's; None if they may be."""
    if data[0] == 0x16 and data[1] == 0x03:
        return "the peer speaks TLS, this listener does not"
    for method in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"DELE", b"PATC", b"PRI "):
        if memcmp(data, <char*><bytes>method, 4) == 0:
            return "the peer speaks HTTP, this is a Kafka listener"
    return None


@cython.freelist(256)
cdef class Pending:
    def complete(self, parts=()):
        """Answer with `parts`: bytes-like objects, which must not change any more, and FileSlices. Once only.

        Does nothing if the connection is gone. Sent by the next DataLoop.flush_dirty().
        """
        if self.done:
            raise RuntimeError("a response was completed twice")
        if self.cancelled:
            return
        try:
            for part in parts:
                add_part(&self.answer, part)
        except BaseException:
            drop_queue(&self.answer)
            raise
        self.count_answer()
        self.answered()

    def failed(self, int code):
        """The response says that the request failed, by Kafka's error code."""
        still_client(&self.client)
        count_error(self.api, code)
        usage_of(self.client.number, TOPIC_NONE, self.api).values[USAGE_ERRORS] += 1

    cdef int complete_bytes(self, const uint8_t* data, int64_t length) except -1:
        if self.done:
            raise RuntimeError("a response was completed twice")
        if not self.cancelled:
            add_copy(&self.answer, data, length)
            self.count_answer()
            self.answered()
        return 0

    cdef int complete_framed(self, const uint8_t* data, int64_t length) except -1:
        if self.done:
            raise RuntimeError("a response was completed twice")
        if not self.cancelled:
            add_framed(&self.answer, data, length)
            self.count_answer()
            self.answered()
        return 0

    cdef void count_answer(self) noexcept:
        still_client(&self.client)
        usage_of(self.client.number, TOPIC_NONE, self.api).values[USAGE_BYTES_OUT] += <uint64_t>(
            self.answer.span_bytes + self.answer.file_bytes)

    cdef int answered(self) except -1:
        self.done = True
        self.answered_us = clock_us()
        if not self.cancelled:
            self.connection.waiting_bytes += self.answer.span_bytes
            self.connection.data_loop.mark_dirty(self.connection)
        return 0

    cdef int begin(self) except -1:
        cdef DataLoop loop = self.connection.data_loop
        if self.done or loop.target is not None:
            raise RuntimeError("a response was begun twice, or amid another")
        self.saved_base = loop.out_base
        loop.out_base = loop.out_length
        loop.target = self
        return 0

    cdef int finish(self) except -1:
        cdef DataLoop loop = self.connection.data_loop
        loop.spill()
        loop.out_base = self.saved_base
        loop.target = None
        if self.cancelled:
            add(UNSENT_BYTES, self.answer.span_bytes + self.answer.file_bytes)
            drop_queue(&self.answer)
        return self.answered()

    cdef int abandon(self) except -1:
        cdef DataLoop loop = self.connection.data_loop
        loop.out_length = loop.out_base
        loop.out_base = self.saved_base
        loop.target = None
        drop_queue(&self.answer)
        return 0

    def __dealloc__(self):
        drop_queue(&self.answer)
        drop_queue(&self.after)


cdef class Connection:
    """One client's connection. Made by DataLoop.add."""

    cpdef Pending reserve(self):
        """The place of a response behind all others so far."""
        cdef Pending pending = Pending.__new__(Pending)
        self.attach(pending)
        return pending

    cdef int attach(self, Pending pending) except -1:
        """Give `pending`, which is new, the place behind all responses so far."""
        cdef DataLoop loop = self.data_loop
        if pending.connection is not None:
            raise RuntimeError("a response was reserved twice")
        pending.connection = self
        pending.api = loop.api if loop.current is self else METER_KEY_UNKNOWN
        pending.client = self.client
        pending.received_us = self.received_us
        pending.began_us = loop.began_us
        pending.attached_us = clock_us()
        if self.fd < 0:
            pending.cancelled = True
            return 0
        if loop.current is self:
            if loop.target is not None:
                raise RuntimeError("a response was reserved amid another")
            if self.pending_head is not None:
                loop.spill()
            else:
                loop.out_base = loop.out_length      # what was written so far leaves at once
        if self.pending_tail is None:
            self.pending_head = pending
        else:
            self.pending_tail.next = pending
        self.pending_tail = pending
        self.pending_count += 1
        return 0

    def resume(self):
        """Offer a deferred frame again, at the end of this turn or by the next DataLoop.flush_dirty().

        Not from within the FrameHandler.frame that defers it.
        """
        self.resumed = True
        self.data_loop.mark_dirty(self)

    def throttle(self, int64_t until_ms):
        """Offer no further frame until DataLoop.release_throttled is called at or after `until_ms`."""
        cdef int64_t before = self.throttled_until_ms
        if self.fd < 0 or until_ms <= before:
            return
        self.throttled_until_ms = until_ms
        if not self.hold & HOLD_THROTTLE:
            self.hold |= HOLD_THROTTLE
            self.data_loop.throttled.append(self)
        still_client(&self.client)
        usage_of(self.client.number, TOPIC_NONE, METER_KEY_NONE).values[USAGE_THROTTLE_MS] += <uint64_t>max(
            until_ms - max(before, coarse_ms()), <int64_t>0)

    def runs(self, str name, str version):
        """The client says which software it is."""
        software_closed(self.software)
        self.software = -1
        self.client_software_name = name
        self.client_software_version = version
        if self.fd >= 0:
            self.software = software_opened(self.listener_index, name.encode(), version.encode())

    def failed(self, int api_key, int code):
        """A request of the connection is answered with Kafka's error code, at once."""
        still_client(&self.client)
        count_error(api_index(api_key), code)
        usage_of(self.client.number, TOPIC_NONE, api_index(api_key)).values[USAGE_ERRORS] += 1

    cdef int counted_client(self, const uint8_t* client_id, int64_t length) except -1:
        """Make `client` that of a request with this client id."""
        cdef bytes principal
        if self.principal is self.counted_principal and is_client(&self.client, client_id, length):
            return 0
        principal = ANONYMOUS if self.principal is None else (<str>self.principal).encode()
        find_client(<const char*>principal, len(principal), client_id, length, &self.client)
        self.counted_principal = self.principal
        return 0

    cdef int count_frame(self, int api, int version, int64_t size) except -1:
        """A request of `size` bytes that are nobody's records is executed."""
        cdef uint64_t* values = usage_of(self.client.number, TOPIC_NONE, api).values
        values[USAGE_REQUESTS] += 1
        values[USAGE_BYTES_IN] += <uint64_t>size
        count_request(api, version)
        return 0

    cdef int count_time(self, int64_t now_ms) except -1:
        """Count how long the connection has been open, to its client, or to `other` if it ends before it said who it is."""
        cdef int64_t passed = now_ms - self.counted_ms
        if passed <= 0 or (not still_client(&self.client) and self.fd >= 0 and not self.greeted):
            return 0
        usage_of(self.client.number, TOPIC_NONE, METER_KEY_NONE).values[USAGE_CONNECTION_MS] += <uint64_t>passed
        self.counted_ms = now_ms
        return 0

    @property
    def muted(self):
        """Whether no frame is offered at present, whatever the reason."""
        return self.hold != 0

    @property
    def buffered_bytes(self):
        """Received bytes that are kept: part of a frame, and frames that wait."""
        return self.size_have + (self.part.end if self.part.data != NULL else 0) + self.held.end - self.held.start

    @property
    def queued_bytes(self):
        """Bytes of responses in memory that are not sent yet (file slices not counted)."""
        return self.out.span_bytes + self.waiting_bytes

    def __dealloc__(self):
        drop_queue(&self.out)

    def __repr__(self):
        return f"<Connection {self.connection_id} of {self.peer}>"


cdef class FrameHandler:
    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        raise NotImplementedError("a FrameHandler must define frame")

    cdef int flush(self, Connection connection) except -1:
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        return 0

    cdef int closed(self, Connection connection) except -1:
        return 0


cdef class PythonFrameHandler(FrameHandler):
    """A FrameHandler in Python, for tests and tools: define on_frame(connection, bytes) -> FrameResult, and as needed
    on_flush(connection), on_half_closed(connection), on_closed(connection)."""

    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        return self.on_frame(connection, (<char*>data)[:size])

    cdef int flush(self, Connection connection) except -1:
        self.on_flush(connection)
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        self.on_half_closed(connection)
        return 0

    cdef int closed(self, Connection connection) except -1:
        self.on_closed(connection)
        return 0

    def on_flush(self, connection):
        """All frames of a read were offered."""

    def on_half_closed(self, connection):
        """The peer sends no more."""

    def on_closed(self, connection):
        """The connection is gone."""


cdef class DataLoop:
    """All data connections of a worker.

    handler: what executes the frames. max_request_bytes: socket.request.max.bytes. idle_ms: connections.max.idle.ms,
    negative for never. max_pending, max_queued_bytes: a connection that is owed so many responses, or bytes of them in
    memory, is not read until it took half. retained_bytes: free receive memory kept. cold_reader: called like
    page_cache.ColdReader; None: a cold page is waited for. on_closed: called with the connection's id.
    """

    def __cinit__(self):
        self.epoll_fd = -1
        self.shared = self.out = NULL

    def __init__(self, FrameHandler handler not None, *, int64_t max_request_bytes=104857600, int64_t idle_ms=600000,
                 int max_pending=100, int64_t max_queued_bytes=1048576, int64_t receive_buffer_bytes=524288,
                 int64_t retained_bytes=33554432, cold_reader=None, on_closed=None):
        if self.epoll_fd >= 0:
            raise RuntimeError("a DataLoop is initialised once")
        if receive_buffer_bytes < 2 * PEEK_BYTES:
            raise ValueError(f"a receive buffer of {receive_buffer_bytes} bytes is too small")
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
        self.throttled = []
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
        free(self.shared)
        free(self.out)

    def fileno(self):
        """The epoll descriptor: `loop.add_reader(data_loop.fileno(), data_loop.on_events)`."""
        return self.epoll_fd

    @property
    def closes(self):
        """How many connections were closed, by reason."""
        return {name: self.closes_by_reason[i] for i, name in enumerate(CLOSE_NAMES)}

    @property
    def drained(self):
        """Whether no connection is owed anything by a frame that was executed."""
        cdef Connection c
        for c in self.connections.values():
            if c.pending_count or c.out.head != NULL:
                return False
        return True

    def add(self, int fd, int64_t connection_id, int listener_index, str peer):
        """Serve the connected socket `fd`, which belongs to the DataLoop from now on, also if OSError is raised."""
        cdef Connection c = Connection.__new__(Connection)
        cdef epoll_event event
        if connection_id in self.connections:
            close(fd)
            raise ValueError(f"connection {connection_id} exists already")
        c.data_loop = self
        c.fd = fd
        c.connection_id = connection_id
        c.listener_index = listener_index
        c.peer = peer
        self.now_ms = coarse_ms()
        c.last_activity_ms = c.counted_ms = self.now_ms
        c.software = -1
        c.hold = HOLD_STOPPING if self.stopping else 0
        c.interest = event.events = EPOLLRDHUP if self.stopping else EPOLLIN | EPOLLRDHUP
        event.data.ptr = <void*><PyObject*>c
        if make_data_socket(fd) < 0 or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0:
            error = errno
            c.fd = -1
            close(fd)
            raise OSError(error, f"cannot serve the connection of {peer}: {strerror(error).decode()}")
        self.connections[connection_id] = c
        add(CONNECTIONS_ACCEPTED, 1)
        if 0 <= listener_index < METER_LISTENERS:
            own_page().listeners[listener_index].open += 1
            own_page().listeners[listener_index].accepted += 1
        return c

    def close(self, Connection c not None, reason="closed by the broker"):
        """Close at once; what is owed is dropped. `reason` goes to the log."""
        self.close_now(c, CLOSE_ASKED, reason)

    def close_all(self, reason="the broker stops"):
        """Close every connection at once."""
        for c in list(self.connections.values()):
            self.close_now(c, CLOSE_ASKED, reason)

    def count_connections(self):
        """Once in a while: count how long the connections have been open, and what waits to be sent."""
        cdef Connection c
        cdef Pending pending
        cdef int64_t now = coarse_ms(), queued = 0
        turn_clock()
        for c in self.connections.values():
            c.count_time(now)
            queued += c.out.span_bytes + c.out.file_bytes
            pending = c.pending_head
            while pending is not None:
                queued += pending.answer.span_bytes + pending.answer.file_bytes + pending.after.span_bytes + pending.after.file_bytes
                pending = pending.next
        own_page().words[QUEUED_BYTES] = <uint64_t>queued

    # --- counting requests ---

    cdef void executed(self, int api) noexcept:
        """A request of the read at hand is executed; its times follow when it is answered."""
        if self.turn_counts[api] == 0:
            self.turn_apis[self.turn_kinds] = api
            self.turn_kinds += 1
        self.turn_counts[api] += 1

    cdef void not_executed(self, int api) noexcept:
        """One that was joined waits after all."""
        cdef int i
        if self.turn_counts[api]:
            self.turn_counts[api] -= 1
        if self.turn_counts[api] == 0:
            for i in range(self.turn_kinds):
                if self.turn_apis[i] == api:
                    self.turn_kinds -= 1
                    self.turn_apis[i] = self.turn_apis[self.turn_kinds]
                    return

    cdef void settle_times(self, Connection c) noexcept:
        """Count the times of the read at hand, whose responses were just sent, or put into the queue."""
        cdef int i, api
        if self.turn_kinds == 0:
            return
        self.clock = clock_us()
        for i in range(self.turn_kinds):
            api = self.turn_apis[i]
            count_times(api, self.turn_counts[api], self.began_us - c.received_us, self.executed_us - self.began_us, 0,
                        self.clock - self.executed_us)
            self.turn_counts[api] = 0
        self.turn_kinds = 0

    cdef void end_clock(self) noexcept:
        add(TURNS, 1)
        add(TURN_US, clock_us() - self.turn_us)

    def stop_reading(self):
        """Execute no further frame on any connection; responses go on being sent. See `drained`."""
        cdef Connection c
        self.stopping = True
        for c in self.connections.values():
            c.hold |= HOLD_STOPPING
            self.update_interest(c, True)

    def sweep_idle(self, int64_t now_ms):
        """Close the connections on which nothing moved for `idle_ms` and that wait for no response; how many."""
        cdef Connection c
        cdef int count = 0
        if self.idle_ms < 0:
            return 0
        for c in list(self.connections.values()):
            if now_ms - c.last_activity_ms > self.idle_ms and c.pending_count == 0:
                self.close_now(c, CLOSE_IDLE, f"idle for {now_ms - c.last_activity_ms} ms")
                count += 1
        return count

    def release_throttled(self, int64_t now_ms):
        """Go on with the connections whose throttle time is over; when the next one's is, or -1."""
        cdef Connection c
        cdef int64_t following = -1
        cdef list waiting = []
        for c in self.throttled:
            if c.fd < 0:
                continue
            if c.throttled_until_ms <= now_ms:
                c.hold &= ~HOLD_THROTTLE
                self.mark_dirty(c)
            else:
                waiting.append(c)
                if following < 0 or c.throttled_until_ms < following:
                    following = c.throttled_until_ms
        self.throttled = waiting
        self.flush_dirty()
        return following

    # --- writing responses ---

    cdef uint8_t* out_reserve(self, int64_t length) except NULL:
        """Room for `length` bytes, valid until the next out_reserve; out_commit says how many were written."""
        cdef int64_t room = max(self.out_room, <int64_t>OUT_ROOM)       # there is none where memory was short
        cdef uint8_t* grown
        if self.current is None and self.target is None:
            raise RuntimeError("a response was written while no connection is at hand")
        if self.out_length + length > self.out_room:
            while self.out_length + length > room:
                room *= 2
            grown = <uint8_t*>realloc(self.out, room)
            if grown == NULL:
                raise MemoryError(f"no memory for a response of {length} bytes")
            self.out = grown
            self.out_room = room
        return self.out + self.out_length

    cdef void out_commit(self, int64_t length) noexcept:
        self.out_length += length

    cdef int out_bytes(self, const uint8_t* data, int64_t length) except -1:
        memcpy(self.out_reserve(length), data, length)
        self.out_length += length
        return 0

    cdef OutQueue* out_queue(self) noexcept:
        """Where what was written last belongs."""
        if self.target is not None:
            return &self.target.answer
        if self.current.pending_tail is not None:
            return &self.current.pending_tail.after
        return &self.current.out

    cdef int spill(self) except -1:
        """Move what was written since `out_base` to its queue."""
        cdef int64_t length = self.out_length - self.out_base
        if length == 0:
            return 0
        add_copy(self.out_queue(), self.out + self.out_base, length)
        if self.target is None and self.current.pending_tail is not None:
            self.current.waiting_bytes += length
        self.out_length = self.out_base
        return 0

    cdef int out_file(self, object owner, int fd, int64_t position, int64_t length) except -1:
        cdef OutQueue* queue
        cdef int64_t before
        if self.current is None and self.target is None:
            raise RuntimeError("a response was written while no connection is at hand")
        if length <= COPIED_SLICE:
            if length <= 0 or read_resident(fd, self.out_reserve(length), length, position) == length:
                self.out_length += max(length, <int64_t>0)
                return 0
        self.spill()
        queue = self.out_queue()
        before = queue.span_bytes
        add_file(queue, owner, fd, position, length)
        if self.target is None and self.current.pending_tail is not None:
            self.current.waiting_bytes += queue.span_bytes - before
        return 0

    def write(self, data):
        """Append bytes to the responses of the connection at hand; from within a handler."""
        cdef const uint8_t[::1] view = data
        if view.shape[0]:
            self.out_bytes(&view[0], view.shape[0])

    def write_file(self, file_slice):
        """Append a FileSlice to the responses of the connection at hand; from within a handler."""
        self.out_file(file_slice.file, file_slice.fd, file_slice.position, file_slice.length)

    cdef int deliver(self, Connection c) except -1:
        """Send what may leave now: responses just written, and Pendings that are done, up to the first that is not."""
        cdef int64_t n, sent
        cdef int result = 0
        cdef Pending pending, following
        if self.current is c:
            if c.pending_head is not None:
                self.spill()
            n = self.out_length
            self.out_length = self.out_base = 0
            if n and c.fd >= 0:
                if c.out.head != NULL or (c.pending_head is not None and c.pending_head.done):
                    add_copy(&c.out, self.out, n)
                else:
                    sent = send(c.fd, self.out, n, MSG_NOSIGNAL | MSG_DONTWAIT)
                    if sent < 0 and errno != EAGAIN and errno != EINTR:
                        add(UNSENT_BYTES, n)
                        return self.close_now(c, CLOSE_RESET, strerror(errno).decode())
                    sent = max(sent, <int64_t>0)
                    self.bytes_out += sent
                    add(SOCKET_BYTES_OUT, sent)
                    if sent < n:
                        add_copy(&c.out, self.out + sent, n - sent)
                        c.blocked = True
            elif n:
                add(UNSENT_BYTES, n)
            if self.out_room > 8 * OUT_ROOM:
                free(self.out)
                self.out_room = OUT_ROOM
                self.out = <uint8_t*>malloc(OUT_ROOM)
                if self.out == NULL:
                    self.out_room = 0
                    raise MemoryError("no memory for the shared output buffer")
        following = None
        if c.pending_head is not None and c.pending_head.done:
            following = c.pending_head
            while c.pending_head is not None and c.pending_head.done:
                pending = c.pending_head
                c.waiting_bytes -= pending.answer.span_bytes + pending.after.span_bytes
                join_queues(&c.out, &pending.answer)
                join_queues(&c.out, &pending.after)
                c.pending_head = pending.next
                c.pending_count -= 1
            pending.next = None
            if c.pending_head is None:
                c.pending_tail = None
                c.hold &= ~HOLD_DEFER
        if c.out.head != NULL and not c.blocked and not c.cold:
            result = self.pump(c)
        if following is not None:
            self.clock = clock_us()
        while following is not None:
            pending = following
            count_times(pending.api, 1, pending.began_us - pending.received_us, pending.attached_us - pending.began_us,
                        pending.answered_us - pending.attached_us, self.clock - pending.answered_us)
            following = pending.next
            pending.next = None
        return result

    cdef int pump(self, Connection c) except -1:
        cdef int64_t sent = 0, from_files = 0
        cdef int error = 0
        cdef bint look_up = self.cold_reader is not None
        cdef SendState state = send_queue(&c.out, c.fd, SEND_A_TURN, look_up, &sent, &from_files, &error)
        if sent:
            self.bytes_out += sent
            self.sendfile_bytes += from_files
            add(SOCKET_BYTES_OUT, sent)
            add(SENDFILE_BYTES, from_files)
            c.last_activity_ms = self.now_ms
        if state == SENT_BLOCKED or state == SENT_ENOUGH:
            c.blocked = True          # after a full budget the socket reports itself writable in the next turn
        elif state == SENT_COLD:
            self.read_cold(c)
        elif state == SENT_SHORT_FILE:
            self.close_now(c, CLOSE_FILE, "a file ended before the length promised to the client")
        elif state == SENT_ERROR:
            text = strerror(error).decode()
            if error in (EPIPE, ECONNRESET, ETIMEDOUT, ECONNABORTED):
                self.close_now(c, CLOSE_RESET, text)
            else:
                self.file_failed(c, error)
                self.close_now(c, CLOSE_FILE, f"sending failed: {text}")
        return 0

    cdef int file_failed(self, Connection c, int number) except -1:
        """Tell whose business the file is that the head of the connection's queue comes from."""
        cdef OutNode* node = c.out.head
        if self.on_file_error is not None and node != NULL and node.fd >= 0:
            self.on_file_error(node.fd, number)
        return 0

    cdef int read_cold(self, Connection c) except -1:
        cdef OutNode* node = c.out.head
        cdef int64_t length = min(node.length, <int64_t>FILE_CHUNK)
        cdef int64_t end = node.position + length

        def warmed(error=None):
            c.cold = False
            if c.fd < 0:
                return
            if error is not None:
                self.file_failed(c, error.errno)
                self.close_now(c, CLOSE_FILE, f"reading for a response failed: {error}")
                return
            c.out.head.warm_until = end
            self.mark_dirty(c)
            self.flush_dirty()

        c.cold = True
        self.cold_reader(<object>node.owner, node.fd, node.position, length, warmed)
        return 0

    # --- turns ---

    def on_events(self):
        """Handle what is ready, bounded; the loop calls again while the epoll descriptor is readable."""
        cdef epoll_event[EVENTS_A_TURN] events
        cdef int i, n
        cdef Connection c
        if self.in_turn:
            raise RuntimeError("a turn was begun within a turn")
        n = epoll_wait(self.epoll_fd, events, EVENTS_A_TURN, 0)
        self.now_ms = coarse_ms()
        turn_clock()
        self.turn_us = self.clock = clock_us()
        self.in_turn = True
        try:
            for i in range(n):
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
            self.end_clock()
            if self.graveyard:
                self.graveyard = []

    cpdef int flush_dirty(self) except -1:
        if self.in_turn or not self.dirty:
            return 0
        self.now_ms = coarse_ms()
        turn_clock()
        self.turn_us = self.clock = clock_us()
        self.in_turn = True
        try:
            self.settle_dirty()
        finally:
            self.in_turn = False
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
                c.dirty = False
                if c.fd < 0:
                    continue
                try:
                    self.end_turn(c)
                except Exception:
                    self.fail(c)
        return 0

    cdef void mark_dirty(self, Connection c):
        if not c.dirty and c.fd >= 0:
            c.dirty = True
            self.dirty.append(c)

    cdef int handle_event(self, Connection c, uint32_t events) except -1:
        if events & (EPOLLERR | EPOLLHUP) and (c.hold or c.eof or not events & EPOLLIN):
            return self.close_now(c, CLOSE_RESET, "the peer is gone")
        if events & EPOLLOUT:
            c.blocked = False
            self.end_turn(c)
            if c.fd < 0:
                return 0
        if events & EPOLLIN and not c.hold and not c.eof:
            return self.readable(c)
        if events & EPOLLRDHUP and not c.peer_finished:
            c.peer_finished = True
            self.handler.half_closed(c)
        if c.fd >= 0:
            self.update_interest(c, True)
        return 0

    cdef int readable(self, Connection c) except -1:
        cdef int64_t budget = READ_A_TURN, n, asked, rest, start
        cdef iovec[2] parts
        c.received_us = self.turn_us
        while True:
            if c.part.data != NULL:
                rest = c.part_bytes - c.part.end
                parts[0].iov_base = c.part.data + c.part.end
                parts[0].iov_len = rest
                parts[1].iov_base = self.shared
                parts[1].iov_len = PEEK_BYTES if c.large else self.shared_bytes
                asked = parts[0].iov_len + parts[1].iov_len
                n = readv(c.fd, parts, 2)
            else:
                start = c.size_have
                memcpy(self.shared, c.size_bytes, start)
                asked = (PEEK_BYTES if c.large else self.shared_bytes) - start
                n = recv(c.fd, self.shared + start, asked, MSG_DONTWAIT)
            if n <= 0:
                if n == 0:
                    return self.end_of_stream(c)
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    return 0
                return self.close_now(c, CLOSE_RESET, strerror(errno).decode())
            self.bytes_in += n
            c.unused_bytes += n
            add(SOCKET_BYTES_IN, n)
            c.last_activity_ms = self.now_ms
            if c.part.data == NULL:
                c.size_have = 0
                self.offer(c, self.shared, start + n, NULL, 0)
                if c.fd >= 0:
                    self.keep(c, self.shared + self.used_first, start + n - self.used_first)
            elif n < rest:
                c.part.end += n
                return 0
            else:
                c.part.end = c.part_bytes
                self.offer(c, c.part.data, c.part_bytes, self.shared, n - rest)
                if c.fd >= 0:
                    self.after_part(c, n - rest)
            self.end_turn(c)
            budget -= n
            c.received_us = self.clock
            if c.fd < 0 or c.hold or n < asked or budget <= 0:
                return 0

    cdef int end_of_stream(self, Connection c) except -1:
        c.eof = True
        if not c.peer_finished:
            c.peer_finished = True
            if c.pending_count:
                self.handler.half_closed(c)
        if c.fd < 0:
            return 0
        self.update_interest(c, True)
        return self.end_turn(c)

    cdef int offer(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1:
        """Offer the frames in `first`, then those in `second`; used_first, used_second say how much was taken."""
        self.current = c
        self.out_length = self.out_base = 0
        self.began_us = self.clock
        self.api = METER_KEY_UNKNOWN
        c.joined = c.offered = False
        self.used_second = 0
        self.used_first = self.offer_frames(c, first, first_n)
        if second_n and c.fd >= 0 and self.used_first == first_n:
            self.used_second = self.offer_frames(c, second, second_n)
        if c.offered and c.fd >= 0:
            self.handler.flush(c)
            if c.joined and c.pending_count == 0:
                c.resumed = True          # what was deferred waited for those, and they left nothing pending
        if self.turn_kinds:
            self.executed_us = clock_us()
        return 0

    cdef int64_t offer_frames(self, Connection c, uint8_t* data, int64_t n) except -1:
        cdef int64_t at = 0, size
        cdef int result
        while n - at >= 4 and not c.hold:
            size = load_size(data + at)
            if size < SMALLEST_FRAME or size > self.max_request_bytes or not c.greeted:
                if self.refuse(c, data + at, size):
                    break
            if n - at - 4 < size:
                break
            c.resumed = False
            result = self.handler.frame(c, data + at + 4, size)
            if result != FRAME_DEFER:
                self.frames += 1
                add(FRAMES, 1)
                c.unused_bytes -= 4 + size
                if result != FRAME_PENDING:
                    self.executed(self.api)
            if c.fd < 0:
                break
            if result == FRAME_DEFER:
                c.hold |= HOLD_DEFER
                break
            at += 4 + size
            c.offered = c.greeted = True
            c.large = size > self.shared_bytes // 4
            if result == FRAME_JOINED:
                c.joined = True
            elif result == FRAME_CLOSE:
                self.begin_close(c, CLOSE_HANDLER, c.close_reason or "closed by the request's handler")
                break
            if self.out_length > OUT_DELIVERED:
                self.deliver(c)
                if c.fd < 0:
                    break
            if self.queue_full(c):
                c.hold |= HOLD_BACKPRESSURE
        return at

    cdef int keep(self, Connection c, uint8_t* data, int64_t n) except -1:
        """Keep `n` bytes that were not taken: part of a frame, or whatever there is during a hold."""
        if n == 0 or c.closing:
            return 0
        if c.hold:
            self.pool.take(&c.held, n)
            memcpy(c.held.data, data, n)
            c.held.end = n
        elif n < 4:
            memcpy(c.size_bytes, data, n)
            c.size_have = n
        else:
            c.part_bytes = 4 + load_size(data)
            c.large = c.part_bytes > self.shared_bytes // 4
            self.pool.take(&c.part, max(c.part_bytes, n))
            memcpy(c.part.data, data, n)
            c.part.end = n
        return 0

    cdef int after_part(self, Connection c, int64_t extra) except -1:
        """Keep what was not taken of a completed part and of the `extra` bytes behind it in the shared buffer."""
        cdef Buffer part = c.part
        cdef int64_t rest = extra - self.used_second
        memset(&c.part, 0, sizeof(Buffer))
        if self.used_first == part.end:
            self.pool.give(&part)
            return self.keep(c, self.shared + self.used_second, rest)
        if c.closing:
            self.pool.give(&part)
            return 0
        c.held = part
        if rest:
            self.pool.take(&c.held, part.end + rest)
            memcpy(c.held.data, part.data, part.end)
            memcpy(c.held.data + part.end, self.shared, rest)
            c.held.end = part.end + rest
            self.pool.give(&part)
        return 0

    cdef int offer_held(self, Connection c) except -1:
        cdef Buffer held
        self.offer(c, c.held.data + c.held.start, c.held.end - c.held.start, NULL, 0)
        c.held.start += self.used_first
        if c.fd < 0 or (c.hold and not c.closing and c.held.start < c.held.end):
            return 0
        held = c.held
        memset(&c.held, 0, sizeof(Buffer))
        try:
            self.keep(c, held.data + held.start, held.end - held.start)
        finally:
            self.pool.give(&held)
        return 0

    cdef bint refuse(self, Connection c, const uint8_t* data, int64_t size) except -1:
        """Whether a frame of this length must not be read: then the connection is about to close."""
        text = None if c.greeted else other_protocol(data)
        if text is not None:
            self.begin_close(c, CLOSE_OTHER_PROTOCOL, text)
            return True
        if SMALLEST_FRAME <= size <= self.max_request_bytes:
            return False
        self.bad_frames += 1
        add(BAD_FRAMES, 1)
        self.begin_close(c, CLOSE_BAD_FRAME,
                         f"frame of {size} bytes, {SMALLEST_FRAME} to {self.max_request_bytes} are allowed")
        return True

    # --- states of a connection ---

    cdef bint queue_full(self, Connection c) noexcept:
        return (c.pending_count >= self.max_pending or c.out.count >= MAX_OUT_NODES
                or c.out.span_bytes + c.waiting_bytes >= self.max_queued_bytes)

    cdef void release_holds(self, Connection c) noexcept:
        if c.hold & HOLD_BACKPRESSURE:
            if (c.pending_count <= self.max_pending // 2 and c.out.count <= MAX_OUT_NODES // 2
                    and c.out.span_bytes + c.waiting_bytes <= self.max_queued_bytes // 2):
                c.hold &= ~HOLD_BACKPRESSURE
        if c.resumed:
            c.resumed = False
            c.hold &= ~HOLD_DEFER

    cdef int end_turn(self, Connection c) except -1:
        """Deliver, go on with frames that were held, close if that was the last, and wait for the right events."""
        while c.fd >= 0:
            self.deliver(c)
            self.settle_times(c)
            self.current = None
            self.release_holds(c)
            if c.fd < 0 or c.hold or c.held.data == NULL:
                break
            self.offer_held(c)
        if c.fd < 0:
            if self.current is c:
                add(UNSENT_BYTES, self.out_length)
                self.settle_times(c)
            self.current = None
            self.out_length = self.out_base = 0
            add(UNSENT_BYTES, c.out.span_bytes + c.out.file_bytes)
            drop_queue(&c.out)                 # written after it was closed
            self.release_buffers(c)
            return 0
        self.current = None
        if c.pending_count == 0 and c.out.head == NULL:
            if c.closing:
                return self.close_now(c, c.closing - 1, c.close_reason)
            if c.eof and c.held.data == NULL:
                return self.close_now(c, CLOSE_EOF, "the peer closed it")
        return self.update_interest(c, False)

    cdef int update_interest(self, Connection c, bint force) except -1:
        """Wait for what is of use. Superfluous reading interest goes only if `force`, when such an event came."""
        cdef epoll_event event
        cdef uint32_t changed
        event.events = EPOLLOUT if c.blocked and c.out.head != NULL else 0
        if not c.hold and not c.eof:
            event.events |= EPOLLIN
        if not c.peer_finished:
            event.events |= EPOLLRDHUP
        changed = event.events ^ c.interest
        if changed & EPOLLOUT or changed & event.events & EPOLLIN or (force and changed):
            event.data.ptr = <void*><PyObject*>c
            if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, c.fd, &event) < 0:
                raise OSError(errno, "epoll_ctl failed")
            c.interest = event.events
        return 0

    cdef int begin_close(self, Connection c, int reason, object text) except -1:
        """Read no more; close as soon as nothing is owed."""
        if not c.closing:
            c.closing = 1 + reason
            c.close_reason = text
            c.hold |= HOLD_CLOSING
        return 0

    cdef int close_now(self, Connection c, int reason, object text) except -1:
        cdef epoll_event event
        cdef Pending pending
        if c.fd < 0:
            return 0
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, c.fd, &event)    # another process may hold the socket open yet
        close(c.fd)
        c.fd = -1
        c.close_reason = text
        self.closes_by_reason[reason] += 1
        add(CLOSED + reason, 1)
        if 0 <= c.listener_index < METER_LISTENERS and own_page().listeners[c.listener_index].open:
            own_page().listeners[c.listener_index].open -= 1
        software_closed(c.software)
        c.software = -1
        c.count_time(coarse_ms())
        add(UNSENT_BYTES, c.out.span_bytes + c.out.file_bytes)
        del self.connections[c.connection_id]
        self.graveyard.append(c)               # this turn's events may still point to it
        drop_queue(&c.out)
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
        c.waiting_bytes = 0
        if self.current is not c:              # else its frames may be in use; the turn's end releases them
            self.release_buffers(c)
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        LOG.log(level, "connection %d of %s closed: %s", c.connection_id, c.peer, text)
        try:
            self.handler.closed(c)
            if self.on_closed is not None:
                self.on_closed(c.connection_id)
        except Exception:
            LOG.exception("after the connection %d of %s was closed", c.connection_id, c.peer)
        if not self.in_turn:
            self.graveyard = []
        return 0

    cdef int fail(self, Connection c) except -1:
        """The border of a connection: an exception was raised for it and is being handled."""
        LOG.exception("connection %d of %s", c.connection_id, c.peer)
        if self.current is c:
            add(UNSENT_BYTES, self.out_length)
            self.executed_us = clock_us()
            self.settle_times(c)
        self.current = None
        self.target = None
        self.out_length = self.out_base = 0
        self.close_now(c, CLOSE_ERROR, "an error in the broker, logged above")
        self.release_buffers(c)
        return 0

    cdef void release_buffers(self, Connection c) noexcept:
        add(UNUSED_BYTES_IN, c.unused_bytes)
        c.unused_bytes = 0
        self.pool.give(&c.part)
        self.pool.give(&c.held)
