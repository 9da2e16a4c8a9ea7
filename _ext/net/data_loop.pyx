"""The loop over a worker's data connections: one epoll descriptor, which the worker's event loop watches.

Runs in a worker, in the thread of its event loop; nothing in this module is shared with another thread or process.

System calls are most of the cost of a small request. Therefore one recv takes all bytes that have arrived, one send takes the
responses to all of them, the registered epoll events change only where they must, and no Python object is made for a frame.

A turn handles one batch of events. For each ready connection it receives, offers the frames to the handler, and sends the
responses. Bad input closes its connection only; an exception of a handler closes the connection for which it was raised.

`DataLoop` makes the parts of the loop (connection.pyx lists them). The constructor of a part receives the parts that it calls.
"""

from heapq import heappop, heappush

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport strerror
from posix.unistd cimport close

from odradek._ext.net.buffers cimport BufferPool
from odradek._ext.net.connection cimport CLOSE_EOF, CLOSE_RESET, HOLD_STOPPING, HOLD_THROTTLE, Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport PEEK_BYTES, FrameHandler, FrameReader
from odradek._ext.net.late_requests cimport beat
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.receiving cimport RequestReceiver
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, SocketEvents, epoll_event
from odradek._ext.net.tls cimport Tls
from odradek._ext.net.turns cimport Turns, ended_while_throttled
from odradek._ext.shm.atomics cimport count_64
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.metering cimport CONNECTIONS_ACCEPTED, METER_LISTENERS, add, own_page
from odradek._ext.shm.owners cimport owner_of


cdef enum:
    EVENTS_A_TURN = 256


cdef int close_connection(object loop, Connection c, int reason, object text) except -1:
    """`ResponseOutput.close_hook`."""
    cdef OpenConnections connections = (<DataLoop>loop).connections
    return connections.close_now(c, reason, text)


cdef int flush_loop(object loop) except -1:
    """`ResponseOutput.flush_hook`."""
    cdef Turns turns = (<DataLoop>loop).turns
    return turns.flush_dirty()


cdef class DataLoop:
    """All data connections of a worker.

    :param handler: executes the frames. :param max_request_bytes: socket.request.max.bytes. :param idle_ms: connections.max.idle.ms,
        negative: connections are never closed for being idle.
    :param max_pending, max_queued_bytes: back-pressure: no request is read from a connection with so many pending responses, or
        so many unsent bytes of responses in memory, until half of them are sent.
    :param retained_bytes: maximum bytes of free receive buffers that are kept.
    :param cold_reader: called like page_cache.ColdReader; None: the loop itself waits for pages that are not in the page cache.
    :param on_closed: called with the id of each closed connection.
    """

    def __init__(self, FrameHandler handler not None, *, int64_t max_request_bytes=104857600, int64_t idle_ms=600000,
                 int max_pending=100, int64_t max_queued_bytes=1048576, int64_t receive_buffer_bytes=524288,
                 int64_t retained_bytes=33554432, cold_reader=None, on_closed=None):
        if self.turns is not None:
            raise RuntimeError("a DataLoop was initialised twice")
        if receive_buffer_bytes < 2 * PEEK_BYTES:
            raise ValueError(f"receive_buffer_bytes={receive_buffer_bytes} is too small, at least {2 * PEEK_BYTES} are needed")
        self.max_request_bytes = max_request_bytes
        self.pool = BufferPool(retained_bytes)
        self.responses = ResponseOutput(cold_reader)
        self.responses.close_hook = close_connection
        self.responses.flush_hook = flush_loop
        self.events = SocketEvents()
        self.sender = ResponseSender(self.responses)
        self.frames = FrameReader(self.responses, self.sender, handler, self.pool, receive_buffer_bytes=receive_buffer_bytes,
                                  max_pending=max_pending, max_queued_bytes=max_queued_bytes)
        self.connections = OpenConnections(self.responses, self.sender, self.frames, self.events, idle_ms, on_closed)
        self.turns = Turns(self.responses, self.sender, self.frames, self.events, self.connections)
        self.receiver = RequestReceiver(self.responses, self.sender, self.frames, self.events, self.connections, self.turns)

    def fileno(self) -> int:
        """The epoll descriptor: `loop.add_reader(data_loop.fileno(), data_loop.on_events)`."""
        return self.events.epoll_fd

    def add(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared=False) -> Connection:
        """Serve the connected socket `fd`. The DataLoop owns it from now on, and closes it if this method raises.

        :param prepared: the socket is non-blocking and has TCP_NODELAY, like those from the acceptor.
        :raises OSError: the system cannot register the socket, for lack of memory for instance. :raises ValueError: the id is in use.
        """
        try:
            if connection_id in self.connections.by_id:
                raise ValueError(f"connection id {connection_id} is in use")
            return self.begin(fd, connection_id, listener_index, peer, prepared)
        except BaseException:
            close(fd)
            raise

    cdef Connection begin(self, int fd, int64_t connection_id, int listener_index, str peer, bint prepared):
        cdef Connection c = Connection.__new__(Connection)
        cdef int error
        c.data_loop = self
        c.responses = self.responses
        c.pool = self.pool
        c.fd = fd
        c.connection_id = connection_id
        c.listener_index = listener_index
        c.peer = peer
        c.owner = owner_of(peer)
        c.last_activity_ms = c.metering.counted_ms = c.opened_ms = self.responses.now_ms = coarse_ms()
        c.metering.software = -1
        c.frames.hold = HOLD_STOPPING if self.stopping else 0
        c.frames.most_bytes = c.frames.configured_bytes = self.max_request_bytes
        if self.tls_listeners is not None and self.tls_listeners[listener_index] is not None:
            c.tls = Tls(self.tls_listeners[listener_index])
        self.connections.by_id[connection_id] = c     # before `register`: events point to the connection and hold no reference
        error = self.events.register(c, EPOLLRDHUP if self.stopping else EPOLLIN | EPOLLRDHUP, prepared)
        if error:
            c.fd = -1
            del self.connections.by_id[connection_id]
            raise OSError(error, strerror(error).decode())
        add(CONNECTIONS_ACCEPTED, 1)
        if 0 <= listener_index < METER_LISTENERS:
            count_64(&own_page().listeners[listener_index].open, 1)
            count_64(&own_page().listeners[listener_index].accepted, 1)
        if c.tls is not None:
            self.connections.admit(c)
        return c

    def use_tls(self, listeners) -> None:
        """Serve TLS. New connections use these settings; open ones keep those that they have.

        :param listeners: a TlsListener, or None for a plain one, by index of the listener.
        """
        if any(listener is not None for listener in listeners):
            self.receiver.begin_tls()
            self.sender.begin_tls()
            self.events.begin_tls()
        self.tls_listeners = list(listeners)

    def tick(self) -> None:
        """Called every half second by a timer. A missing call shows that the process was stopped (late_requests.pxd)."""
        beat(&self.frames.standstill, coarse_ms())

    def stop_reading(self) -> None:
        """Execute no further frame on any connection; continue to send responses. `OpenConnections.drained`: all are sent."""
        cdef Connection c
        self.stopping = True
        for c in list(self.connections.by_id.values()):
            c.frames.hold |= HOLD_STOPPING
            try:
                self.events.update_interest(c, True)
            except OSError:
                self.connections.fail(c)

    def release_throttled(self, int64_t now_ms) -> int:
        """Resume the connections whose throttle time has ended. Return the end of the next throttle time in ms; -1: none."""
        cdef Connection c
        cdef ResponseOutput responses = self.responses
        while responses.throttle_ends and (<int64_t>responses.throttle_ends[0][0] <= now_ms
                                           or responses.throttle_ends[0][1] not in responses.throttled):
            _, connection_id = heappop(responses.throttle_ends)
            c = responses.throttled.get(connection_id)
            if c is None:
                continue
            if c.throttled_until_ms > now_ms:       # it was throttled for longer meanwhile
                heappush(responses.throttle_ends, (c.throttled_until_ms, connection_id))
                continue
            del responses.throttled[connection_id]
            c.frames.hold &= ~HOLD_THROTTLE
            c.frames.resumed = True             # a frame may have been deferred because of the throttle (Charges.holds)
            c.last_activity_ms = max(c.last_activity_ms, now_ms)
            responses.mark_dirty(c)
        self.turns.flush_dirty()
        return responses.throttle_ends[0][0] if responses.throttle_ends else -1

    # --- turns ---

    def on_events(self) -> None:
        """Handle a bounded number of ready connections. The event loop calls this while the epoll descriptor is readable."""
        cdef epoll_event[EVENTS_A_TURN] events
        cdef int i, n
        cdef Connection c
        if self.connections.in_turn:
            raise RuntimeError("on_events was called within a turn of the data loop")
        n = self.events.ready(events, EVENTS_A_TURN)
        self.turns.begin()
        try:
            if self.events.unread:
                self.read_on()
            for i in range(n):
                if events[i].data.ptr == NULL:     # the eventfd of `SocketEvents.unread`
                    continue
                c = <Connection><PyObject*>events[i].data.ptr
                if c.fd < 0:
                    continue
                try:
                    self.handle_event(c, events[i].events)
                except Exception:
                    self.connections.fail(c)
            if self.responses.dirty:
                self.turns.settle_dirty()
        finally:
            self.turns.finish()

    def flush_dirty(self) -> None:
        """Send the responses of completed Pendings. Every callback that completes Pendings calls this at its end. Within a
        turn it does nothing: the end of the turn sends them."""
        self.turns.flush_dirty()

    cdef int read_on(self) except -1:
        """Continue with the connections whose TLS records were not all read in the last turn."""
        cdef Connection c
        for c in self.events.take_unread():
            c.tls.listed = False
            if c.fd < 0:
                continue
            try:
                if not c.frames.hold and not c.state.eof:
                    self.receiver.read_records(c)
            except Exception:
                self.connections.fail(c)
        return 0

    cdef int handle_event(self, Connection c, uint32_t events) except -1:
        if events & (EPOLLERR | EPOLLHUP) and (c.frames.hold or c.state.eof or not events & EPOLLIN):
            return self.connections.close_now(c, CLOSE_RESET, "the client or the network reset it")
        if events & EPOLLOUT:
            self.sender.unblock(c)
            self.turns.end_turn(c)
            if c.fd < 0:
                return 0
        if events & EPOLLIN and not c.frames.hold and not c.state.eof:
            if c.state.peer_finished or events & EPOLLRDHUP:
                if c.tls is None:
                    self.receiver.unjudged = c     # most often no byte is unread, and `judge_unread` is not needed
                else:
                    self.frames.judge_unread(c)
            self.receiver.readable(c)
            self.receiver.unjudged = None
            return 0
        if events & EPOLLRDHUP and not c.state.peer_finished:
            c.state.peer_finished = True
            self.frames.handler.half_closed(c)
            if c.fd >= 0 and ended_while_throttled(c):
                return self.connections.close_now(c, CLOSE_EOF, "the client closed it while it was throttled")
        if c.fd >= 0:
            self.events.update_interest(c, True)
        return 0
