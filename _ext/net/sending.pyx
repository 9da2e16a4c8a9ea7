"""Sending of responses: at once if the socket takes them, otherwise from the connection's queue.

Runs in a worker's event loop. One send call sends the responses to all requests of one read. Pages of a file that are not in the page
cache are read by the cold reader, outside of the loop, before they are sent, so that no other connection waits for them.
"""

from libc.errno cimport EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EPIPE, ETIMEDOUT, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strerror

from odradek._ext.net.connection cimport CLOSE_BAD_FRAME, CLOSE_FILE, CLOSE_RESET, HOLD_DEFER, Connection, Pending, ResponseOutput
from odradek._ext.net.output cimport (
    FILE_CHUNK,
    SENT_BLOCKED,
    SENT_COLD,
    SENT_ENOUGH,
    SENT_ERROR,
    SENT_SHORT_FILE,
    OutNode,
    SendState,
    add_copy,
    drop_queue,
    gather_queue,
    join_queues,
    send_queue,
)
from odradek._ext.net.tls cimport PLAIN_MOST, RECORD_BYTES, SEALED_MOST, Tls
from odradek._ext.shm.metering cimport SENDFILE_BYTES, SOCKET_BYTES_OUT, UNSENT_BYTES, add, clock_us, count_times


cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int socket, const void* data, size_t n, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL


cdef enum:
    SEND_A_TURN = 4 * 1024 * 1024      # maximum bytes sent on a connection before other connections have their turn
    ENCRYPT_A_TURN = 1024 * 1024       # maximum bytes encrypted on a connection before other connections have their turn
    WARM_MS = 1000                     # this long after the last sent byte, pages that were in the page cache may have been evicted


cdef inline int send_written(ResponseSender sender, Connection c) except -1:
    """Send the responses that were gathered during the connection's turn, or queue what must follow other responses."""
    cdef int64_t n, sent
    cdef ResponseOutput output = sender.responses
    if c.pending_head is not None:
        output.spill()
    n = output.out_length
    output.out_length = output.out_base = 0
    if n and c.fd >= 0:
        if c.output.queue.head != NULL or (c.pending_head is not None and c.pending_head.done):
            add_copy(&c.output.queue, output.out, n)
        elif c.tls is not None:
            sent = sender.send_encrypted(c, output.out, n)
            if c.fd < 0:
                return 0
            add_copy(&c.output.queue, output.out + sent, n - sent)
        else:
            sent = send(c.fd, output.out, n, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0 and errno != EAGAIN and errno != EINTR:
                add(UNSENT_BYTES, n)
                return c.close_now(CLOSE_RESET, strerror(errno).decode())
            sent = max(sent, <int64_t>0)
            sender.bytes_out += sent
            add(SOCKET_BYTES_OUT, sent)
            if sent < n:
                add_copy(&c.output.queue, output.out + sent, n - sent)
                c.output.blocked = True
    elif n:
        add(UNSENT_BYTES, n)
    return output.shrink()


cdef inline Pending queue_completed(Connection c):
    """Queue the responses of the completed Pendings, up to the first incomplete one, and remove these from the connection.

    Return the first of them, which are linked by `next`; None if there are none.
    """
    cdef Pending first = c.pending_head, pending
    if first is None or not first.done:
        return None
    while c.pending_head is not None and c.pending_head.done:
        pending = c.pending_head
        c.output.waiting_bytes -= pending.answer.span_bytes + pending.after.span_bytes
        if pending.unwanted:
            add(UNSENT_BYTES, pending.answer.span_bytes + pending.answer.file_bytes)
            drop_queue(&pending.answer)
        join_queues(&c.output.queue, &pending.answer)
        join_queues(&c.output.queue, &pending.after)
        c.pending_head = pending.next
        c.pending_count -= 1
    pending.next = None
    if c.pending_head is None:
        c.pending_tail = None
        c.frames.hold &= ~HOLD_DEFER
    return first


cdef inline void count_completed(Pending first, int64_t sent_us) noexcept:
    """Count the times of the requests whose responses were sent at `sent_us`: `first`, and those linked to it. Unlinks them."""
    cdef Pending following = first, pending
    while following is not None:
        pending = following
        count_times(pending.api, 1, pending.began_us - pending.received_us, pending.attached_us - pending.began_us,
                    pending.answered_us - pending.attached_us, sent_us - pending.answered_us)
        following = pending.next
        pending.next = None


cdef class ResponseSender:

    def __cinit__(self, ResponseOutput responses not None):
        self.responses = responses

    def __dealloc__(self):
        free(self.gathered.data)
        free(self.plain_out)

    cdef int begin_tls(self) except -1:
        """Allocate the buffers that connections with TLS share."""
        if self.gathered.data == NULL:
            self.gathered.room = SEALED_MOST + 2 * RECORD_BYTES
            self.gathered.data = <uint8_t*>malloc(self.gathered.room)
        if self.plain_out == NULL:
            self.plain_out = <uint8_t*>malloc(PLAIN_MOST)
        if self.gathered.data == NULL or self.plain_out == NULL:
            raise MemoryError("no memory for the shared buffers of TLS")
        return 0

    cdef int deliver(self, Connection c) except -1:
        """Send what may be sent now: responses just written, and those of the Pendings before the first incomplete one."""
        cdef int result = 0
        cdef Pending completed
        if self.responses.current is c:
            send_written(self, c)
        completed = queue_completed(c)
        if c.output.queue.head != NULL and not c.output.blocked and not c.output.cold:
            result = self.pump(c) if c.tls is None else self.pump_encrypted(c)
        elif c.output.sealed_bytes and not c.output.blocked:
            result = self.pump_encrypted(c)
        if completed is not None:
            self.responses.clock = clock_us()
            count_completed(completed, self.responses.clock)
        return result

    cdef void unblock(self, Connection c) noexcept:
        """The socket takes bytes again. If its client did not read for long, look at the page cache again."""
        cdef OutNode* node = c.output.queue.head
        c.output.blocked = False
        if node != NULL and self.responses.now_ms - c.last_activity_ms > WARM_MS:
            node.warm_until = node.position

    cdef int pump(self, Connection c) except -1:
        cdef int64_t sent = 0, from_files = 0
        cdef int error = 0
        cdef bint look_up = self.responses.cold_reader is not None
        cdef SendState state = send_queue(&c.output.queue, c.fd, SEND_A_TURN, look_up, &sent, &from_files, &error)
        if sent:
            self.bytes_out += sent
            self.sendfile_bytes += from_files
            add(SOCKET_BYTES_OUT, sent)
            add(SENDFILE_BYTES, from_files)
            c.last_activity_ms = self.responses.now_ms
            c.output.sent_bytes += sent
        if state == SENT_BLOCKED or state == SENT_ENOUGH:
            c.output.blocked = True          # after SENT_ENOUGH, epoll reports the socket as writable in the next turn
        elif state == SENT_COLD:
            self.read_cold(c)
        elif state == SENT_SHORT_FILE:
            c.close_now(CLOSE_FILE, "a file ended before the length announced to the client")
        elif state == SENT_ERROR:
            text = strerror(error).decode()
            if error in (EPIPE, ECONNRESET, ETIMEDOUT, ECONNABORTED):
                c.close_now(CLOSE_RESET, text)
            else:
                self.file_failed(c, error)
                c.close_now(CLOSE_FILE, f"cannot send a response: {text}")
        return 0

    cdef int64_t send_encrypted(self, Connection c, const uint8_t* data, int64_t n) except -1:
        cdef int64_t at = 0, piece
        cdef Tls tls = c.tls
        if tls.error is not None:     # damaged records follow the request; `records_ended` closes the connection
            add(UNSENT_BYTES, n)
            return n
        while at < n and c.output.sealed_bytes == 0:
            while at < n and self.gathered.length < SEALED_MOST:
                piece = min(n - at, <int64_t>RECORD_BYTES)
                tls.write(data + at, piece)
                at += piece
                self.collect_records(c)
                if tls.error is not None:
                    c.close_now(CLOSE_BAD_FRAME, tls.error)
                    return at
            self.push_records(c)
            if c.fd < 0:
                break
        return at

    cdef int collect_records(self, Connection c) except -1:
        """Append the records that TLS wants to send to the gathered ones."""
        cdef Tls tls = c.tls
        cdef bytes records = tls.take()
        cdef int64_t n = 0 if records is None else len(records)
        if n == 0:                    # those of the native layer are among the gathered ones already
            return 0
        if n > self.gathered.room - self.gathered.length:                  # a long chain of certificates
            self.push_records(c)
            if c.fd >= 0:
                add_copy(&tls.sealed, <const uint8_t*><const char*>records, n)
                c.output.sealed_bytes = tls.sealed.span_bytes
                self.responses.mark_dirty(c)
            return 0
        memcpy(self.gathered.data + self.gathered.length, <const char*>records, n)
        self.gathered.length += n
        return 0

    cdef int push_records(self, Connection c) except -1:
        """Send the gathered records, or queue them behind those that the socket did not take."""
        cdef int64_t n = self.gathered.length, sent = 0
        self.gathered.length = 0
        if n == 0 or c.fd < 0:
            return 0
        if c.output.sealed_bytes == 0:
            sent = send(c.fd, self.gathered.data, n, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0 and errno != EAGAIN and errno != EINTR:
                add(UNSENT_BYTES, n)
                return c.close_now(CLOSE_RESET, strerror(errno).decode())
            sent = max(sent, <int64_t>0)
            self.bytes_out += sent
            add(SOCKET_BYTES_OUT, sent)
            c.output.sent_bytes += sent
        if sent < n:
            add_copy(&c.tls.sealed, self.gathered.data + sent, n - sent)
            c.output.sealed_bytes = c.tls.sealed.span_bytes
            c.output.blocked = True
        return 0

    cdef int pump_encrypted(self, Connection c) except -1:
        """`pump` of a TLS connection: encrypts the queue's next bytes only after the socket has taken all encrypted ones."""
        cdef int64_t sent, from_files = 0, n, encrypted, budget = ENCRYPT_A_TURN
        cdef int error = 0
        cdef bint look_up = self.responses.cold_reader is not None
        cdef SendState state
        while c.fd >= 0:
            if c.output.sealed_bytes:
                sent = 0
                state = send_queue(&c.tls.sealed, c.fd, SEND_A_TURN, False, &sent, &from_files, &error)
                c.output.sealed_bytes = c.tls.sealed.span_bytes
                if sent:
                    self.bytes_out += sent
                    add(SOCKET_BYTES_OUT, sent)
                    c.last_activity_ms = self.responses.now_ms
                    c.output.sent_bytes += sent
                if state == SENT_ERROR:
                    return c.close_now(CLOSE_RESET, strerror(error).decode())
                if c.output.sealed_bytes:
                    c.output.blocked = True
                    return 0
            if c.output.queue.head == NULL or c.output.cold:
                return 0
            if budget <= 0:
                c.output.blocked = True      # epoll reports the socket as writable in the next turn
                return 0
            state = gather_queue(&c.output.queue, self.plain_out, PLAIN_MOST, look_up, &n, &error)
            if n:
                encrypted = self.send_encrypted(c, self.plain_out, n)
                if c.fd < 0:
                    return 0
                c.last_activity_ms = self.responses.now_ms
                budget -= n
                if encrypted < n:            # PLAIN_MOST bytes are encrypted before the first send
                    raise RuntimeError(f"TLS encrypted {encrypted} of {n} gathered bytes")
            if state == SENT_COLD:
                return self.read_cold(c)
            if state == SENT_SHORT_FILE:
                return c.close_now(CLOSE_FILE, "a file ended before the length announced to the client")
            if state == SENT_ERROR:
                self.file_failed(c, error)
                return c.close_now(CLOSE_FILE, f"cannot read a file for a response: {strerror(error).decode()}")
        return 0

    cdef int file_failed(self, Connection c, int number) except -1:
        """Report the errno of a failed read or send to `on_file_error`, with the file at the head of the connection's queue."""
        cdef OutNode* node = c.output.queue.head
        if self.on_file_error is not None and node != NULL and node.fd >= 0:
            self.on_file_error(node.fd, number)
        return 0

    cdef int read_cold(self, Connection c) except -1:
        cdef OutNode* node = c.output.queue.head
        cdef int64_t length = min(node.length, <int64_t>FILE_CHUNK)
        cdef int64_t end = node.position + length

        def warmed(error=None):
            c.output.cold = False
            if c.fd < 0:
                return
            if error is not None:
                self.file_failed(c, error.errno)
                c.close_now(CLOSE_FILE, f"cannot read a file for a response: {error}")
                return
            c.output.queue.head.warm_until = end
            self.responses.mark_dirty(c)
            c.flush_dirty()

        c.output.cold = True
        self.responses.cold_reader(<object>node.owner, node.fd, node.position, length, warmed)
        return 0
