"""Receiving of requests: one recv takes all bytes that have arrived; frames are offered to the handler in order, without copying them.

Third layer of the data loop (connection.pyx lists the layers); runs in a worker's event loop. `DataLoop` supplies `end_turn` and
`update_interest`. No Python object is made for a frame. A connection owns no buffer unless it has a part of a frame, or frames that
are held back (`hold`). Input may be hostile: a frame's length is checked before memory is allocated for it.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset, strerror
from posix.uio cimport iovec, readv

from odradek._ext.net.buffers cimport Buffer
from odradek._ext.net.connection cimport (
    CLOSE_AUTHENTICATION,
    CLOSE_BAD_FRAME,
    CLOSE_EOF,
    CLOSE_HANDLER,
    CLOSE_OTHER_PROTOCOL,
    CLOSE_RESET,
    FRAME_CLOSE,
    FRAME_DEFER,
    FRAME_JOINED,
    FRAME_PENDING,
    HOLD_BACKPRESSURE,
    HOLD_DEFER,
    HOLD_HANDSHAKE,
    Connection,
)
from odradek._ext.net.late_requests cimport ended_by_peer, last_arrival_age_ms, waited_too_long
from odradek._ext.protocol.byte_order cimport load32
from odradek._ext.net.tls cimport TLS_FAILED, TLS_OK, TLS_WANTS, Tls, TlsResult
from odradek._ext.shm.metering cimport (
    BAD_FRAMES,
    FRAMES,
    LATE_REQUESTS,
    METER_KEY_UNKNOWN,
    SOCKET_BYTES_IN,
    TLS_1_2,
    TLS_HANDSHAKES,
    TLS_HANDSHAKE_US,
    TLS_RESUMED,
    add,
    clock_us,
)


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int socket, void* data, size_t n, int flags)
    int MSG_DONTWAIT


cdef enum:
    READ_A_TURN = 2 * 1024 * 1024      # bytes read from a connection before other connections have their turn
    OUT_DELIVERED = 256 * 1024         # responses of one read are sent before its end if they exceed this many bytes
    MAX_OUT_NODES = 4096               # queued spans and slices of a connection from which back-pressure holds it
    TLS_HANDSHAKE_RECORD = 0x16        # first byte of a connection that begins a TLS handshake; the second one is TLS_MAJOR
    TLS_MAJOR = 0x03
    STREAM_OPEN = 0                    # values of `stream_end`; others are errnos
    STREAM_ENDED = -1
    SMALLEST_FRAME = 8                 # api key, version, correlation id
    MOST_UNUSED_PARTS = 4              # a buffer is moved only to a request that needs at least one in so many parts of it


cdef object other_protocol(const uint8_t* data):
    """Return a message if the first four bytes of a connection belong to another protocol; None if they may be Kafka's."""
    if data[0] == 0x16 and data[1] == 0x03:
        return "the client speaks TLS, but this listener expects plaintext"
    for method in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"DELE", b"PATC", b"PRI "):
        if memcmp(data, <char*><bytes>method, 4) == 0:
            return "the client speaks HTTP, but this is a Kafka listener"
    return proxy_header(data, 4)


cdef object proxy_header(const uint8_t* data, int64_t n):
    """Return a message if the first bytes of a connection begin a header of the PROXY protocol, version 1 or 2. One byte may begin
    others too."""
    for beginning in (b"PROX", b"\r\n\r\n"):
        if n > 1 and memcmp(data, <char*><bytes>beginning, <size_t>min(n, <int64_t>4)) == 0:
            return (
                "a load balancer sends a header of the PROXY protocol, which the broker does not read: "
                "turn it off there (haproxy: remove send-proxy)"
            )
    return None


cdef object not_tls(const uint8_t* data, int64_t n):
    """Return why the first bytes of a connection are not TLS."""
    header = proxy_header(data, n)
    if header is not None:
        return header
    if n >= 4 and other_protocol(data) is not None:
        return "the client speaks HTTP without TLS, but this is a TLS listener of Kafka's protocol"
    return "the client speaks plaintext, but this listener expects TLS (security.protocol=SSL or SASL_SSL in the client's configuration)"


cdef class FrameHandler:

    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        raise NotImplementedError("a FrameHandler must define frame")

    cdef int flush(self, Connection connection) except -1:
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        return 0

    cdef int closed(self, Connection connection) except -1:
        return 0

    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept:
        return True

    cdef int64_t kept_bytes(self, Connection connection) except -1:
        return 0

    cdef int64_t forget(self, Connection connection) except -1:
        return 0


cdef class PythonFrameHandler(FrameHandler):
    """A FrameHandler in Python, for tests and tools. A subclass supplies on_frame(connection, bytes) -> FrameResult, and may
    override on_flush(connection), on_half_closed(connection) and on_closed(connection).
    """

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

    def on_flush(self, connection) -> None:
        """Called after all frames of a read were offered."""

    def on_half_closed(self, connection) -> None:
        """Called when the client has closed its direction of the connection."""

    def on_closed(self, connection) -> None:
        """Called when the connection is closed."""


cdef class FrameReader(ResponseSender):
    cdef int readable(self, Connection c) except -1:
        return self.read_frames(c) if c.tls is None else self.read_records(c)

    cdef int read_frames(self, Connection c) except -1:
        cdef int64_t budget = READ_A_TURN, n, requested, rest = 0, start = 0
        cdef iovec[2] parts
        c.input.received_us = self.turn_us
        while True:
            if c.input.part.data != NULL:
                rest = c.input.part_bytes - c.input.part.end
                parts[0].iov_base = c.input.part.data + c.input.part.end
                parts[0].iov_len = rest
                parts[1].iov_base = self.shared
                parts[1].iov_len = PEEK_BYTES if c.input.large else self.shared_bytes
                requested = parts[0].iov_len + parts[1].iov_len
                if c.tls is None:
                    n = readv(c.fd, parts, 2)
                else:
                    n = self.decrypt(c, <uint8_t*>parts[0].iov_base, rest, self.shared, parts[1].iov_len)
            else:
                start = c.input.size_have
                memcpy(self.shared, c.input.size_bytes, start)
                requested = (PEEK_BYTES if c.input.large else self.shared_bytes) - start
                if c.tls is None:
                    n = recv(c.fd, self.shared + start, requested, MSG_DONTWAIT)
                else:
                    n = self.decrypt(c, self.shared + start, requested, NULL, 0)
            if n <= 0:
                if c.tls is not None:
                    return 0          # `read_records` looks at the reason
                if n == 0:
                    return self.end_of_stream(c)
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    return 0
                return self.close_now(c, CLOSE_RESET, strerror(errno).decode())
            c.input.unused_bytes += n
            if self.unjudged is c:
                self.judge_unread(c)
                self.unjudged = None
            if c.tls is None:
                self.bytes_in += n
                add(SOCKET_BYTES_IN, n)
            c.last_activity_ms = self.now_ms
            if c.input.part.data == NULL:
                c.input.size_have = 0
                self.offer(c, self.shared, start + n, NULL, 0)
                if c.fd >= 0:
                    self.keep(c, self.shared + self.used_first, start + n - self.used_first)
            elif n < rest:
                c.input.part.end += n
                return 0
            else:
                c.input.part.end = c.input.part_bytes
                self.offer(c, c.input.part.data, c.input.part_bytes, self.shared, n - rest)
                if c.fd >= 0:
                    self.after_part(c, n - rest)
            self.end_turn(c)
            budget -= n
            c.input.received_us = self.clock
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
            self.push_records(c)           # those of the end of the handshake, if no response has sent them
            if c.fd >= 0 and not tls.busy:
                self.keep_records(c)
        except Exception:
            self.push_records(c)           # records are numbered: without those of the handshake, the client could not read the end
            raise
        finally:
            tls.reading = False
            self.source = self.source_end = NULL
            self.pool.give(&unread)
        if c.fd >= 0 and not c.state.eof:
            self.records_ended(c)
        if c.fd >= 0 and not c.frames.hold and tls.pending() and not c.state.eof:
            self.continue_later(c)
        if c.fd >= 0 and c.output.sealed_bytes:
            self.update_interest(c, False)     # a part of a handshake, or an answer of TLS, did not fit into the socket
        return 0

    cdef int64_t receive_records(self, Connection c) except -1:
        """Receive encrypted bytes into the shared buffer. Returns 0 if there are none for now, or no more; `stream_end` says which."""
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
        c.last_activity_ms = self.now_ms
        self.source = self.records
        self.source_end = self.records + n
        return n

    cdef int64_t decrypt(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1:
        """Fill `first`, then `second`, with plaintext. Returns its length: less than asked for if there is no more for now."""
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
            if result == TLS_WANTS:        # a record of TLS itself, which may ask for an answer
                self.collect_records(c)
                self.push_records(c)
                if c.fd < 0:
                    return 0
                tls.control_handled(c.output.sealed_bytes > 0)
        return done

    cdef int records_ended(self, Connection c) except -1:
        """The stream of records has ended, by close_notify, by an error of TLS or by the end of the connection: act on it."""
        if c.tls.error is not None:
            self.collect_records(c)        # the alert
            self.push_records(c)
            return self.close_now(c, CLOSE_AUTHENTICATION if not c.tls.established else CLOSE_BAD_FRAME, c.tls.error)
        if c.tls.ended:
            return self.end_of_stream(c)
        if self.stream_end == STREAM_OPEN:
            return 0
        if self.stream_end != STREAM_ENDED:
            return self.close_now(c, CLOSE_RESET, strerror(self.stream_end).decode())
        if c.tls.established:
            return self.end_of_stream(c)
        if c.tls.begun:
            return self.close_now(c, CLOSE_AUTHENTICATION, "the client ended the connection during the TLS handshake")
        return self.close_now(c, CLOSE_EOF, "the client closed it before a TLS handshake")

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
                    return self.close_now(c, CLOSE_OTHER_PROTOCOL, not_tls(self.source, self.source_end - self.source))
                tls.begun = True
            if tls.library is None:
                tls.open(&self.gathered)
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
        """Let a thread compute the next step of the handshake, which is long; nothing is read from the connection meanwhile.

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
                self.fail(c)

        tls.busy = True
        tls.step_us = 0
        c.frames.hold |= HOLD_HANDSHAKE        # EPOLLIN stays registered: most clients send nothing before the answer
        self.handshake_thread(step, done, tls.listener.slow_key)
        return 0

    cdef int continue_handshake(self, Connection c) except -1:
        """Go on after a step of the handshake that a thread has computed."""
        cdef Tls tls = c.tls
        self.after_handshake(c, TLS_OK if tls.established else TLS_WANTS if tls.error is None else TLS_FAILED)
        if c.fd >= 0:
            self.update_interest(c, False)
            if tls.pending():
                self.continue_later(c)
        self.flush_dirty()                 # `collect_records` has queued a flight that is larger than its buffer
        return 0

    cdef int after_handshake(self, Connection c, int result) except -1:
        """Send the answer of a step of the handshake; after the last one, take over who the client is."""
        cdef Tls tls = c.tls
        self.collect_records(c)
        if result != TLS_OK or not tls.reading:    # else `read_records` sends the ticket, with the response to a request that has arrived
            self.push_records(c)
        if c.fd < 0:
            return 0
        if result == TLS_FAILED:
            return self.close_now(c, CLOSE_AUTHENTICATION, f"the TLS handshake failed: {tls.error}")
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
                    return self.close_now(c, CLOSE_AUTHENTICATION, "the client's certificate has expired since its session began")
                try:
                    principal = tls.listener.principal_of(certificate)
                except ValueError as error:
                    return self.close_now(c, CLOSE_AUTHENTICATION, f"the client's certificate gives no principal: {error}")
                if tls.listener.authenticates:
                    c.principal = principal
        if tls.listener.authenticates:
            self.authenticated(c)
        return 0

    # --- frames ---

    cdef int end_of_stream(self, Connection c) except -1:
        c.state.eof = True
        if not c.state.peer_finished:
            c.state.peer_finished = True
            if c.pending_count:
                self.handler.half_closed(c)
        if c.fd < 0:
            return 0
        self.end_turn(c)                   # most often it closes the connection
        if c.fd >= 0:
            self.update_interest(c, True)
        return 0

    cdef int offer(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1:
        """Offer the frames in `first`, then those in `second`. Sets used_first and used_second to the bytes that were taken of each."""
        self.current = c
        self.out_length = self.out_base = 0
        self.began_us = self.clock
        self.api = METER_KEY_UNKNOWN
        c.frames.joined = c.frames.offered = False
        self.used_second = 0
        self.used_first = self.offer_frames(c, first, first_n)
        if second_n and c.fd >= 0 and self.used_first == first_n:
            self.used_second = self.offer_frames(c, second, second_n)
        if c.frames.offered and c.fd >= 0:
            self.handler.flush(c)
            if c.frames.joined and c.pending_count == 0:
                c.frames.resumed = True   # a deferred frame waited for the joined frames, which left no Pending
        if self.turn_kinds:
            self.executed_us = clock_us()
        return 0

    cdef int64_t offer_frames(self, Connection c, uint8_t* data, int64_t n) except -1:
        cdef int64_t at = 0, size
        cdef int result
        while n - at >= 4 and not c.frames.hold:
            size = <int64_t><int32_t>load32(data + at)
            if size < SMALLEST_FRAME or size > c.frames.most_bytes or not c.frames.greeted:
                if self.refuse(c, data + at, size):
                    break
            if n - at - 4 < size:
                break
            c.frames.resumed = False
            if c.frames.late and not self.handler.executes_late(data + at + 4, size):
                c.frames.skipped += 1
                add(LATE_REQUESTS, 1)
                at += 4 + size
                continue
            result = self.handler.frame(c, data + at + 4, size)
            if result != FRAME_DEFER:
                self.frames += 1
                add(FRAMES, 1)
                c.input.unused_bytes -= 4 + size
                if result != FRAME_PENDING:
                    self.executed(self.api)
            if c.fd < 0:
                break
            if result == FRAME_DEFER:
                c.frames.hold |= HOLD_DEFER
                break
            at += 4 + size
            c.frames.offered = c.frames.greeted = True
            c.input.large = size > self.shared_bytes // 4
            if result == FRAME_JOINED:
                c.frames.joined = True
            elif result == FRAME_CLOSE:
                self.begin_close(c, CLOSE_HANDLER, c.close_reason or "the handler of a request closed it")
                break
            if self.out_length > OUT_DELIVERED:
                self.deliver(c)
                if c.fd < 0:
                    break
            if self.queue_full(c):
                c.frames.hold |= HOLD_BACKPRESSURE
        return at

    cdef int keep(self, Connection c, uint8_t* data, int64_t n) except -1:
        """Keep `n` bytes that were not taken: a part of a frame, or, during a hold, all of them."""
        if n == 0 or c.state.closing:
            return 0
        if c.frames.hold:
            self.pool.take(&c.input.held, n)
            memcpy(c.input.held.data, data, n)
            c.input.held.end = n
        elif n < 4:
            memcpy(c.input.size_bytes, data, n)
            c.input.size_have = n
        else:
            c.input.part_bytes = 4 + <int64_t><int32_t>load32(data)
            c.input.large = c.input.part_bytes > self.shared_bytes // 4
            self.pool.take(&c.input.part, max(c.input.part_bytes, n))
            memcpy(c.input.part.data, data, n)
            c.input.part.end = n
            c.input.part_since_ms = self.now_ms
        return 0

    cdef int after_part(self, Connection c, int64_t extra) except -1:
        """Keep the bytes that were not taken of the completed `part`, and of the `extra` bytes after it in the shared buffer."""
        cdef Buffer part = c.input.part     # without data if `move_part` has moved it
        cdef int64_t rest = extra - self.used_second
        memset(&c.input.part, 0, sizeof(Buffer))
        if self.used_first == c.input.part_bytes:
            self.pool.give(&part)
            return self.keep(c, self.shared + self.used_second, rest)
        if c.state.closing:
            self.pool.give(&part)
            return 0
        c.input.held = part
        if rest:
            self.pool.take(&c.input.held, part.end + rest)
            memcpy(c.input.held.data, part.data, part.end)
            memcpy(c.input.held.data + part.end, self.shared, rest)
            c.input.held.end = part.end + rest
            self.pool.give(&part)
        return 0

    cdef bint move_part(self, Connection c, const uint8_t* data, int64_t size, Buffer* to) noexcept:
        cdef Buffer* part = &c.input.part
        if part.data == NULL or data < part.data or data >= part.data + part.end or size < part.capacity // MOST_UNUSED_PARTS:
            return False
        to[0] = part[0]
        memset(part, 0, sizeof(Buffer))
        return True

    cdef void judge_unread(self, Connection c) noexcept:
        """The client has ended the connection: set `late` if the unread requests have waited too long to be executed."""
        cdef int64_t age
        if not c.frames.late:
            age = last_arrival_age_ms(c.fd)
            c.frames.late = age >= 0 and waited_too_long(&self.standstill, self.now_ms - age, self.now_ms)

    cdef void judge_held(self, Connection c) noexcept:
        """Set `late` if the held frames have waited too long for other requests, and the client has ended the connection."""
        cdef int64_t read_ms = c.input.received_us // 1000
        if c.frames.late or not waited_too_long(&self.standstill, read_ms, self.now_ms):
            return
        c.frames.late = c.state.peer_finished or (read_ms <= self.standstill.resumed_ms and ended_by_peer(c.fd))

    cdef int offer_held(self, Connection c) except -1:
        cdef Buffer held
        self.judge_held(c)
        self.offer(c, c.input.held.data + c.input.held.start, c.input.held.end - c.input.held.start, NULL, 0)
        c.input.held.start += self.used_first
        if c.fd < 0 or (c.frames.hold and not c.state.closing and c.input.held.start < c.input.held.end):
            return 0
        held = c.input.held
        memset(&c.input.held, 0, sizeof(Buffer))
        try:
            self.keep(c, held.data + held.start, held.end - held.start)
        finally:
            self.pool.give(&held)
        return 0

    cdef bint refuse(self, Connection c, const uint8_t* data, int64_t size) except -1:
        """Return whether a frame of this length must not be read. If so, begin to close the connection."""
        text = None if c.frames.greeted else other_protocol(data)
        if text is not None:
            self.begin_close(c, CLOSE_OTHER_PROTOCOL, text)
            return True
        if (SMALLEST_FRAME if c.gate is None else 0) <= size <= c.frames.most_bytes:   # the tokens of a login have no header
            return False
        self.bad_frames += 1
        add(BAD_FRAMES, 1)
        self.begin_close(c, CLOSE_BAD_FRAME,
                         f"the client sent a frame of {size} bytes, allowed are {SMALLEST_FRAME} to {c.frames.most_bytes}")
        return True

    cdef bint queue_full(self, Connection c) noexcept:
        return (c.pending_count >= self.max_pending or c.output.queue.count >= MAX_OUT_NODES
                or c.output.queue.span_bytes + c.output.waiting_bytes >= self.max_queued_bytes)

    cdef void release_holds(self, Connection c) noexcept:
        if c.frames.hold & HOLD_BACKPRESSURE:
            if (c.pending_count <= self.max_pending // 2 and c.output.queue.count <= MAX_OUT_NODES // 2
                    and c.output.queue.span_bytes + c.output.waiting_bytes <= self.max_queued_bytes // 2):
                c.frames.hold &= ~HOLD_BACKPRESSURE
        if c.frames.resumed:
            c.frames.resumed = False
            c.frames.hold &= ~HOLD_DEFER

    # --- supplied by DataLoop ---

    cdef int end_turn(self, Connection c) except -1:
        raise NotImplementedError("DataLoop supplies end_turn")

    cdef int update_interest(self, Connection c, bint force) except -1:
        raise NotImplementedError("DataLoop supplies update_interest")

    cdef int continue_later(self, Connection c) except -1:
        raise NotImplementedError("DataLoop supplies continue_later")

    cdef int authenticated(self, Connection c) except -1:
        raise NotImplementedError("DataLoop supplies authenticated")

    cdef int fail(self, Connection c) except -1:
        raise NotImplementedError("DataLoop supplies fail")
