"""Receiving of requests: one recv takes all bytes that have arrived, and `FrameReader` offers their frames to the handler.

Runs in a worker's event loop. The bytes of a TLS connection are decrypted into the same buffers; a thread computes the long steps of
its handshake.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strerror
from posix.uio cimport iovec, readv

from odradek._ext.net.buffers cimport Buffer
from odradek._ext.net.connection cimport (
    CLOSE_AUTHENTICATION,
    CLOSE_BAD_FRAME,
    CLOSE_EOF,
    CLOSE_OTHER_PROTOCOL,
    CLOSE_RESET,
    HOLD_HANDSHAKE,
    Connection,
    ResponseOutput,
)
from odradek._ext.net.frame_reading cimport PEEK_BYTES, FrameReader
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.other_protocols cimport not_tls
from odradek._ext.net.sending cimport ResponseSender
from odradek._ext.net.socket_events cimport SocketEvents
from odradek._ext.net.tls cimport TLS_FAILED, TLS_OK, TLS_WANTS, Tls, TlsResult
from odradek._ext.net.turns cimport Turns
from odradek._ext.shm.metering cimport SOCKET_BYTES_IN, TLS_1_2, TLS_HANDSHAKES, TLS_HANDSHAKE_US, TLS_RESUMED, add


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int socket, void* data, size_t n, int flags)
    int MSG_DONTWAIT


cdef enum:
    READ_A_TURN = 2 * 1024 * 1024      # maximum bytes read from a connection before other connections have their turn
    RECORDS_BYTES = 256 * 1024         # encrypted bytes received at once
    TLS_HANDSHAKE_RECORD = 0x16        # first byte of a connection that begins a TLS handshake; the second one is TLS_MAJOR
    TLS_MAJOR = 0x03
    STREAM_OPEN = 0                    # values of `stream_end`; others are errnos
    STREAM_ENDED = -1


cdef class RequestReceiver:

    def __cinit__(self, ResponseOutput responses not None, ResponseSender sender not None, FrameReader frames not None,
                  SocketEvents events not None, OpenConnections connections not None, Turns turns not None):
        self.responses = responses
        self.sender = sender
        self.frames = frames
        self.pool = frames.pool
        self.events = events
        self.connections = connections
        self.turns = turns

    def __dealloc__(self):
        free(self.records)

    cdef int begin_tls(self) except -1:
        """Allocate the buffer for encrypted bytes."""
        if self.records == NULL:
            self.records = <uint8_t*>malloc(RECORDS_BYTES)
            if self.records == NULL:
                raise MemoryError("no memory for the shared buffers of TLS")
        return 0

    cdef int readable(self, Connection c) except -1:
        return self.read_frames(c) if c.tls is None else self.read_records(c)

    cdef int read_frames(self, Connection c) except -1:
        cdef int64_t budget = READ_A_TURN, n, requested, rest = 0, start = 0
        cdef iovec[2] parts
        c.input.received_us = self.responses.turn_us
        while True:
            if c.input.part.data != NULL:
                rest = c.input.part_bytes - c.input.part.end
                parts[0].iov_base = c.input.part.data + c.input.part.end
                parts[0].iov_len = rest
                parts[1].iov_base = self.frames.shared
                parts[1].iov_len = PEEK_BYTES if c.input.large else self.frames.shared_bytes
                requested = parts[0].iov_len + parts[1].iov_len
                if c.tls is None:
                    n = readv(c.fd, parts, 2)
                else:
                    n = self.decrypt(c, <uint8_t*>parts[0].iov_base, rest, self.frames.shared, parts[1].iov_len)
            else:
                start = c.input.size_have
                memcpy(self.frames.shared, c.input.size_bytes, start)
                requested = (PEEK_BYTES if c.input.large else self.frames.shared_bytes) - start
                if c.tls is None:
                    n = recv(c.fd, self.frames.shared + start, requested, MSG_DONTWAIT)
                else:
                    n = self.decrypt(c, self.frames.shared + start, requested, NULL, 0)
            if n <= 0:
                if c.tls is not None:
                    return 0          # `read_records` looks at the reason
                if n == 0:
                    return self.end_of_stream(c)
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    return 0
                return self.connections.close_now(c, CLOSE_RESET, strerror(errno).decode())
            c.input.unused_bytes += n
            if self.unjudged is c:
                self.frames.judge_unread(c)
                self.unjudged = None
            if c.tls is None:
                self.bytes_in += n
                add(SOCKET_BYTES_IN, n)
            c.last_activity_ms = self.responses.now_ms
            if c.input.part.data == NULL:
                c.input.size_have = 0
                self.frames.offer(c, self.frames.shared, start + n, NULL, 0)
                if c.fd >= 0:
                    self.frames.keep(c, self.frames.shared + self.frames.used_first, start + n - self.frames.used_first)
            elif n < rest:
                c.input.part.end += n
                return 0
            else:
                c.input.part.end = c.input.part_bytes
                self.frames.offer(c, c.input.part.data, c.input.part_bytes, self.frames.shared, n - rest)
                if c.fd >= 0:
                    self.frames.after_part(c, n - rest)
            self.turns.end_turn(c)
            budget -= n
            c.input.received_us = self.responses.clock
            if c.fd < 0 or c.frames.hold or n < requested or budget <= 0:
                return 0

    # --- TLS ---

    cdef int read_records(self, Connection c) except -1:
        cdef Tls tls = c.tls
        cdef Buffer unread
        if tls.busy:
            return 0
        unread = tls.unread
        memset(&tls.unread, 0, sizeof(Buffer))
        self.source = unread.data + unread.start
        self.source_end = unread.data + unread.end
        self.records_left = READ_A_TURN
        self.stream_end = STREAM_OPEN
        tls.reading = True
        try:
            if not tls.established:
                self.shake_hands(c)
            if c.fd >= 0 and tls.established and not c.frames.hold and not c.state.eof:
                self.read_frames(c)
            self.sender.push_records(c)    # those of the end of the handshake, if no response has sent them
            if c.fd >= 0 and not tls.busy:
                self.keep_records(c)
        except Exception:
            self.sender.push_records(c)    # records are numbered: without those of the handshake, the client could not read the end
            raise
        finally:
            tls.reading = False
            self.source = self.source_end = NULL
            self.pool.give(&unread)
        if c.fd >= 0 and not c.state.eof:
            self.records_ended(c)
        if c.fd >= 0 and not c.frames.hold and tls.pending() and not c.state.eof:
            self.events.continue_later(c)
        if c.fd >= 0 and c.output.sealed_bytes:
            self.events.update_interest(c, False)  # records of TLS did not fit into the socket
        return 0

    cdef int64_t receive_records(self, Connection c) except -1:
        """Receive encrypted bytes into the shared buffer. Returns 0 if none has arrived, or if none will (`stream_end`)."""
        cdef int64_t n
        if self.records_left <= 0 or self.stream_end != STREAM_OPEN:
            return 0
        while True:
            n = recv(c.fd, self.records, RECORDS_BYTES, MSG_DONTWAIT)
            if n >= 0 or errno != EINTR:
                break
        if n < 0:
            if errno != EAGAIN:
                self.stream_end = errno
            return 0
        if n == 0:
            self.stream_end = STREAM_ENDED
            return 0
        self.bytes_in += n
        add(SOCKET_BYTES_IN, n)
        self.records_left = self.records_left - n if n == RECORDS_BYTES else 0    # epoll reports what arrives after a short read
        c.last_activity_ms = self.responses.now_ms
        self.source = self.records
        self.source_end = self.records + n
        return n

    cdef int64_t decrypt(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1:
        """Fill `first`, then `second`, with plaintext. Returns its length: less than the room if no more has arrived."""
        cdef Tls tls = c.tls
        cdef int64_t done = 0, part
        cdef TlsResult result
        while done < first_n + second_n and tls.error is None and not tls.ended:
            if not tls.ready:
                if self.source == self.source_end and self.receive_records(c) == 0:
                    break
                self.source += tls.feed(self.source, self.source_end - self.source)
                if not tls.ready:
                    continue
            if done < first_n:
                result = tls.read(first + done, first_n - done, &part)
            else:
                result = tls.read(second + (done - first_n), second_n - (done - first_n), &part)
            done += part
            if result == TLS_WANTS:        # a record of TLS itself, to which TLS may respond
                self.sender.collect_records(c)
                self.sender.push_records(c)
                if c.fd < 0:
                    return 0
                tls.control_handled(c.output.sealed_bytes > 0)
        return done

    cdef int records_ended(self, Connection c) except -1:
        """Act on the end of the records: close_notify, an error of TLS, or the end of the connection. Else do nothing."""
        if c.tls.error is not None:
            self.sender.collect_records(c)     # the alert
            self.sender.push_records(c)
            return self.connections.close_now(c, CLOSE_AUTHENTICATION if not c.tls.established else CLOSE_BAD_FRAME, c.tls.error)
        if c.tls.ended:
            return self.end_of_stream(c)
        if self.stream_end == STREAM_OPEN:
            return 0
        if self.stream_end != STREAM_ENDED:
            return self.connections.close_now(c, CLOSE_RESET, strerror(self.stream_end).decode())
        if c.tls.established:
            return self.end_of_stream(c)
        if c.tls.begun:
            return self.connections.close_now(c, CLOSE_AUTHENTICATION, "the client ended the connection during the TLS handshake")
        return self.connections.close_now(c, CLOSE_EOF, "the client closed it before a TLS handshake")

    cdef int keep_records(self, Connection c) except -1:
        """Keep the received bytes that are not fed to TLS yet."""
        cdef int64_t n = self.source_end - self.source
        if n > 0 and not c.state.closing:
            self.pool.take(&c.tls.unread, n)
            memcpy(c.tls.unread.data, self.source, n)
            c.tls.unread.end = n
        return 0

    cdef int shake_hands(self, Connection c) except -1:
        cdef Tls tls = c.tls
        cdef int result
        while not tls.established and c.fd >= 0:
            if self.source == self.source_end and self.receive_records(c) == 0:
                return 0
            if not tls.begun:
                if self.source[0] != TLS_HANDSHAKE_RECORD or (self.source_end - self.source > 1 and self.source[1] != TLS_MAJOR):
                    return self.connections.close_now(c, CLOSE_OTHER_PROTOCOL, not_tls(self.source, self.source_end - self.source))
                tls.begun = True
            if tls.library is None:
                tls.open(&self.sender.gathered)
            self.source += tls.feed(self.source, self.source_end - self.source)
            if not tls.ready or tls.may_wait():
                continue
            if not tls.step_is_short():
                self.keep_records(c)
                return self.delegate_handshake(c)
            result = tls.compute_handshake()
            add(TLS_HANDSHAKE_US, tls.step_us)
            self.after_handshake(c, result)
        return 0

    cdef int delegate_handshake(self, Connection c) except -1:
        """Pass the next step of the handshake, which is long, to a thread; meanwhile nothing is read from the connection.

        A connection has at most one step in the thread's queue, so the limits of unauthenticated connections bound it.
        """
        cdef Tls tls = c.tls

        def step():
            if c.fd >= 0:                      # else it was closed while it waited in the queue
                tls.compute_handshake()
            return False

        def done(error):
            tls.busy = False
            c.frames.hold &= ~HOLD_HANDSHAKE
            add(TLS_HANDSHAKE_US, tls.step_us)
            if c.fd < 0:
                tls.drop()
                return
            try:
                if error is not None:
                    raise error
                self.continue_handshake(c)
            except Exception:                  # else the connection would stay open without the client's principal
                self.connections.fail(c)

        tls.busy = True
        tls.step_us = 0
        c.frames.hold |= HOLD_HANDSHAKE        # EPOLLIN stays registered: most clients send nothing before the response
        self.handshake_thread(step, done, tls.listener.slow_key)
        return 0

    cdef int continue_handshake(self, Connection c) except -1:
        """Continue after a step of the handshake that a thread has computed."""
        cdef Tls tls = c.tls
        self.after_handshake(c, TLS_OK if tls.established else TLS_WANTS if tls.error is None else TLS_FAILED)
        if c.fd >= 0:
            self.events.update_interest(c, False)
            if tls.pending():
                self.events.continue_later(c)
        self.turns.flush_dirty()           # `collect_records` has queued a flight that is larger than its buffer
        return 0

    cdef int after_handshake(self, Connection c, int result) except -1:
        """Send the records that a step of the handshake produced; after the last step, set the principal of the client."""
        cdef Tls tls = c.tls
        self.sender.collect_records(c)
        if result != TLS_OK or not tls.reading:    # else `read_records` sends the ticket, with the response to a request that has arrived
            self.sender.push_records(c)
        if c.fd < 0:
            return 0
        if result == TLS_FAILED:
            return self.connections.close_now(c, CLOSE_AUTHENTICATION, f"the TLS handshake failed: {tls.error}")
        if result != TLS_OK:
            return 0
        add(TLS_HANDSHAKES, 1)
        if tls.library.version() == "TLSv1.2":
            add(TLS_1_2, 1)
        if tls.library.session_reused:
            add(TLS_RESUMED, 1)
        if tls.listener.asks_certificate:
            certificate = tls.peer()
            if certificate is not None:
                if tls.library.session_reused and tls.expired():
                    return self.connections.close_now(c, CLOSE_AUTHENTICATION,
                                                      "the client's certificate has expired since its session began")
                try:
                    principal = tls.listener.principal_of(certificate)
                except ValueError as error:
                    return self.connections.close_now(c, CLOSE_AUTHENTICATION, f"the client's certificate gives no principal: {error}")
                if tls.listener.authenticates:
                    c.principal = principal
        if tls.listener.authenticates:
            self.connections.forget_unauthenticated(c)
        return 0

    # --- the end of the stream ---

    cdef int end_of_stream(self, Connection c) except -1:
        c.state.eof = True
        if not c.state.peer_finished:
            c.state.peer_finished = True
            if c.pending_count:
                self.frames.handler.half_closed(c)
        if c.fd < 0:
            return 0
        self.turns.end_turn(c)         # most often it closes the connection
        if c.fd >= 0:
            self.events.update_interest(c, True)
        return 0
