"""Turns of the data loop. The end of a connection's turn sends its responses, continues with its held frames, and closes it if it is
finished.

Runs in a worker, in the thread of its event loop.
"""

from odradek._ext.net.connection cimport CLOSE_EOF, HOLD_THROTTLE, Connection, ResponseOutput
from odradek._ext.net.frame_reading cimport FrameReader
from odradek._ext.net.late_requests cimport look_at_clock
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.output cimport drop_queue
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.metering cimport TURNS, TURN_US, UNSENT_BYTES, add, clock_us, turn_clock


cdef extern from "<sys/socket.h>" nogil:
    """
    #include <sys/socket.h>

    /* Whether the stream has ended, and all of its bytes were received. */
    static int nothing_unread(int fd) {
        char byte;
        return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    }
    """
    bint nothing_unread(int fd)


cdef bint ended_while_throttled(Connection c) noexcept:
    return (c.frames.hold & HOLD_THROTTLE and c.pending_count == 0 and c.input.held.data == NULL and c.output.queue.head == NULL
            and c.output.sealed_bytes == 0 and (c.tls is None or not c.tls.pending()) and nothing_unread(c.fd))


cdef class Turns:

    def __cinit__(self, ResponseOutput responses not None, ResponseSender sender not None, FrameReader frames not None,
                  SocketEvents events not None, OpenConnections connections not None):
        self.responses = responses
        self.sender = sender
        self.frames = frames
        self.events = events
        self.connections = connections

    cdef int begin(self) except -1:
        """Begin a turn of the loop: read the clocks."""
        cdef ResponseOutput responses = self.responses
        responses.now_ms = coarse_ms()
        look_at_clock(&self.frames.standstill, responses.now_ms)
        turn_clock()
        responses.turn_us = responses.clock = clock_us()
        self.connections.in_turn = True
        return 0

    cdef void finish(self) noexcept:
        """Finish a turn of the loop, also after an exception."""
        self.connections.in_turn = False
        self.responses.slice_owner = None
        add(TURNS, 1)
        add(TURN_US, clock_us() - self.responses.turn_us)
        if self.connections.graveyard:
            self.connections.graveyard = []

    cdef int flush_dirty(self) except -1:
        """Send the responses of completed Pendings, in a turn without events. Within a turn, this does nothing."""
        if self.connections.in_turn or not self.responses.dirty:
            return 0
        self.begin()
        try:
            self.settle_dirty()
        finally:
            self.finish()
        return 0

    cdef int settle_dirty(self) except -1:
        cdef Connection c
        cdef list batch
        while self.responses.dirty:
            batch = self.responses.dirty
            self.responses.dirty = []
            for c in batch:
                c.state.dirty = False
                if c.fd < 0:
                    continue
                try:
                    self.end_turn(c)
                except Exception:
                    self.connections.fail(c)
        return 0

    cdef int end_turn(self, Connection c) except -1:
        """Send responses, continue with held frames, close the connection if it is finished, and update its epoll events."""
        while c.fd >= 0:
            self.sender.deliver(c)
            self.responses.settle_times(c)
            self.responses.current = None
            self.frames.release_holds(c)
            if c.fd < 0 or c.frames.hold or c.input.held.data == NULL:
                break
            self.frames.offer_held(c)
        if c.fd < 0:
            if self.responses.current is c:
                add(UNSENT_BYTES, self.responses.out_length)
                self.responses.settle_times(c)
            self.responses.current = None
            self.responses.out_length = self.responses.out_base = 0
            add(UNSENT_BYTES, c.output.queue.span_bytes + c.output.queue.file_bytes)
            drop_queue(&c.output.queue)        # responses written after the connection was closed
            self.connections.release_buffers(c)
            return 0
        self.responses.current = None
        if c.tls is not None and not c.tls.reading and not c.frames.hold and not c.state.eof and c.tls.pending():
            self.events.continue_later(c)
        if c.pending_count == 0 and c.output.queue.head == NULL and c.output.sealed_bytes == 0:
            if c.state.closing:
                return self.connections.close_now(c, c.state.closing - 1, c.close_reason)
            if c.state.eof and c.input.held.data == NULL:
                return self.connections.close_now(c, CLOSE_EOF, "the client closed it")
            if c.state.peer_finished and ended_while_throttled(c):
                return self.connections.close_now(c, CLOSE_EOF, "the client closed it while it was throttled")
        return self.events.update_interest(c, False)
