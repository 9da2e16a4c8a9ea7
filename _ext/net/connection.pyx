"""A client's connection, the places of its responses (`Pending`), and the writing of responses (`ResponseOutput`).

Runs in a worker, in the thread of its event loop; nothing in this module is shared with another thread or process.

A worker has one object that serves all its connections, `data_loop.DataLoop`. It consists of parts, of which each calls those before
it: `ResponseOutput` (gathers responses), `socket_events` (epoll), `sending` (sends responses), `frame_reading` (offers requests to the
handler), `open_connections` (limits, closing), `turns` (the end of a turn), `receiving` (receives requests) and `data_loop` (new
connections, events). Calls in the other direction go through two hooks, by `Connection.close_now` and `Connection.flush_dirty`.
"""

from heapq import heapify, heappush

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from odradek._ext.net.output cimport COPIED_SLICE, OutQueue, add_copy, add_file, add_framed, add_part, drop_queue
from odradek._ext.protocol.api_versions cimport API_VERSIONS, API_VERSIONS_NEWEST
from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.shm.atomics cimport count_64, shared_u64
from odradek._ext.shm.client_quotas cimport QUOTA_REQUEST, quota_add, quota_charge
from odradek._ext.shm.clock cimport coarse_ms, monotonic_ms
from odradek._ext.shm.meter_tables cimport meter_state
from odradek._ext.shm.metering cimport (
    METER_KEY_NONE,
    METER_KEY_UNKNOWN,
    TOPIC_NONE,
    UNSENT_BYTES,
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
    count_usage,
    find_client,
    is_client,
    software_closed,
    software_opened,
    still_client,
    usage_of,
)
from odradek._ext.storage.page_cache cimport read_resident


cdef enum:
    SHARED_SLICE = 2048
    SPARE_THROTTLE_ENDS = 64
    APIS_WITH_POSITION = 128
    VERSIONS_WITH_POSITION = 32
    MOST_UNUSED_PARTS = 4              # a buffer is moved only to a request that needs at least one in so many parts of it

cdef bytes ANONYMOUS = b"User:ANONYMOUS"


SHOWN_CHARACTERS = 300


def client_name(str peer not None, client_id: str | None) -> str:
    """A client's name for log lines: "127.0.0.1:40000 (client id app)". Unprintable characters, which could forge a line, are escaped,
    and only the first 300 characters of the client id are shown: it may have 32,767.

    :param peer: its address and port. :param client_id: from its last request; None if no request was read, or it had no client id.
    """
    if client_id is None:
        return f"{peer} (no client id)"
    if not client_id:
        return f"{peer} (empty client id)"
    shown = "".join([c if c.isprintable() else f"\\x{ord(c):02x}" for c in client_id[:SHOWN_CHARACTERS]])
    if len(client_id) > SHOWN_CHARACTERS:
        shown += "..."
    return f"{peer} (client id {shown})"


# Position of the throttle time in a response, from the beginning of its header (negative: from its end), by API and version; 0: it
# has none at a fixed place.
cdef signed char[APIS_WITH_POSITION][VERSIONS_WITH_POSITION] positions


def set_throttle_positions(table) -> None:
    """Set where responses contain their throttle time: {(API key, version): bytes from the beginning of the response's header, or
    negative: from its end}. Raises ValueError for an API or a version for which there is no room."""
    for (key, version), position in table.items():
        if not (0 <= key < APIS_WITH_POSITION and 0 <= version < VERSIONS_WITH_POSITION):
            raise ValueError(f"there is no room for the position of API {key}, version {version}")
        positions[key][version] = position


cdef int64_t throttle_at(int api_key, int version, const uint8_t* data, int64_t length) noexcept:
    cdef int64_t at
    if api_key == API_VERSIONS:             # behind a list, in which no element has tagged fields
        if version < 1 or version > API_VERSIONS_NEWEST or length < 10:     # newer ones are answered with an error in version 0
            return -1
        if version < 3:
            return length - 4
        at = 6
        while at < length and data[at] & 0x80:
            at += 1
        if at > 8:
            return -1
        at = 7 + 7 * (<int64_t>data[6] - 1) if at == 6 else 8 + 7 * ((data[6] & 0x7F | <int64_t>data[7] << 7) - 1) if at == 7 else -1
    elif 0 <= api_key < APIS_WITH_POSITION and 0 <= version < VERSIONS_WITH_POSITION and positions[api_key][version]:
        at = positions[api_key][version]
        if at < 0:
            at += length
    else:
        return -1
    return at if 0 <= at <= length - 4 else -1


def with_throttle_time(bytes response not None, int api_key, int version, int64_t wait_ms) -> bytes:
    """Return a response, with its header and without its length, with this throttle time; unchanged if it has no place for it."""
    cdef int64_t at = throttle_at(api_key, version, <const uint8_t*><const char*>response, len(response))
    cdef uint8_t[4] raw
    if at < 0:
        return response
    store32(raw, <uint32_t>wait_ms)
    return response[:at] + (<const char*>raw)[:4] + response[at + 4:]


@cython.freelist(256)
cdef class Pending:

    def complete(self, parts=()) -> None:
        """Answer with `parts`: bytes-like objects, which must not change any more, and FileSlices. May be called once.

        Does nothing if the connection is closed. The next `data_loop.flush_dirty()` sends the answer.
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

    def failed(self, int code) -> None:
        """Count an error for metrics: the response contains this error code of Kafka."""
        still_client(&self.client)
        count_error(self.api, code)
        count_usage(self.client.number, TOPIC_NONE, self.api, USAGE_ERRORS, 1)

    def spent(self, int64_t us) -> None:
        """Add time that another thread or process, or a later turn of the loop, spent on the request, for its client's quota."""
        self.spent_us += us

    @property
    def timed(self) -> bool:
        """Whether the client has a quota for request time."""
        return self.time_quota.key != 0

    @property
    def version(self) -> int:
        """The version of the request; known if the client has a quota."""
        return self.api_version

    def charge(self) -> int:
        """Charge the time that was spent on the request to its client's quota, once. Return the throttle time in ms: the connection is
        muted so long, and the response must contain it."""
        return self.charge_time()

    cdef int64_t charge_time(self) except -1:
        cdef int64_t wait_ms
        if self.time_quota.key == 0 or self.cancelled:
            return 0
        wait_ms = quota_charge(&self.time_quota, QUOTA_REQUEST, self.spent_us, monotonic_ms())
        self.connection.throttle_for(wait_ms)
        self.time_quota.key = 0
        return wait_ms

    cdef int complete_framed(self, const uint8_t* data, int64_t length) except -1:
        cdef int64_t wait_ms, at
        if self.done:
            raise RuntimeError("a response was completed twice")
        if not self.cancelled:
            add_framed(&self.answer, data, length)
            wait_ms = self.charge_time()
            if wait_ms > self.least_wait_ms:
                at = throttle_at(self.api_key, self.api_version, data, length)
                if at >= 0:
                    store32(self.answer.tail.data + 4 + at, <uint32_t>wait_ms)
            self.count_answer()
            self.answered()
        return 0

    cdef void count_answer(self) noexcept:
        still_client(&self.client)
        count_usage(self.client.number, TOPIC_NONE, self.api, USAGE_BYTES_OUT,
                    self.answer.span_bytes + self.answer.file_bytes)

    cdef int answered(self) except -1:
        self.done = True
        self.answered_us = clock_us()
        if not self.cancelled:
            self.connection.output.waiting_bytes += self.answer.span_bytes
            self.connection.responses.mark_dirty(self.connection)
        return 0

    cdef int begin(self) except -1:
        cdef ResponseOutput loop = self.connection.responses
        if self.done or loop.target is not None:
            raise RuntimeError("a response was begun that is complete, or while another response is being written")
        self.saved_base = loop.out_base
        loop.out_base = loop.out_length
        loop.target = self
        return 0

    cdef int finish(self) except -1:
        cdef ResponseOutput loop = self.connection.responses
        try:
            loop.spill()
        except BaseException:
            self.abandon()
            raise
        loop.out_base = self.saved_base
        loop.target = None
        if self.cancelled:
            add(UNSENT_BYTES, self.answer.span_bytes + self.answer.file_bytes)
            drop_queue(&self.answer)
        return self.answered()

    cdef int abandon(self) except -1:
        cdef ResponseOutput loop = self.connection.responses
        loop.out_length = loop.out_base
        loop.out_base = self.saved_base
        loop.target = None
        drop_queue(&self.answer)
        return 0

    def __dealloc__(self):
        drop_queue(&self.answer)
        drop_queue(&self.after)


cdef class Connection:
    """One client's connection. DataLoop.add creates it."""

    cpdef Pending reserve(self):
        """Reserve the place of a response after all earlier responses."""
        cdef Pending pending = Pending.__new__(Pending)
        self.attach(pending)
        return pending

    cdef int attach(self, Pending pending) except -1:
        """Reserve for `pending`, which is new, the place after all earlier responses."""
        cdef ResponseOutput loop = self.responses
        if pending.connection is not None:
            raise RuntimeError("a response was reserved twice")
        pending.connection = self
        pending.api = loop.api if loop.current is self else METER_KEY_UNKNOWN
        pending.client = self.metering.client
        pending.received_us = self.input.received_us
        pending.began_us = loop.began_us
        pending.attached_us = clock_us()
        pending.unwanted = self.frames.skipped > 0
        if self.quotas.limited and loop.current is self:
            pending.time_quota = self.quotas.request
            pending.api_key = self.quotas.api_key
            pending.api_version = self.quotas.api_version
            if pending.time_quota.key:
                pending.spent_us = max(pending.attached_us - max(self.quotas.mark_us, loop.began_us), <int64_t>0)
                self.quotas.mark_us = pending.attached_us
        if self.fd < 0:
            pending.cancelled = True
            return 0
        if loop.current is self:
            if loop.target is not None:
                raise RuntimeError("a response was reserved while another response is being written")
            if self.pending_head is not None:
                loop.spill()
            else:
                loop.out_base = loop.out_length      # the responses written so far precede it, and are sent at once
        if self.pending_tail is None:
            self.pending_head = pending
        else:
            self.pending_tail.next = pending
        self.pending_tail = pending
        self.pending_count += 1
        return 0

    def resume(self) -> None:
        """Offer a deferred frame again, at the end of this turn or in the next `data_loop.flush_dirty()`.

        The FrameHandler.frame that defers the frame must not call it.
        """
        self.frames.resumed = True
        self.responses.mark_dirty(self)

    def throttle(self, int64_t until_ms) -> None:
        """Offer no further frame until DataLoop.release_throttled is called at or after `until_ms`."""
        cdef int64_t before = self.throttled_until_ms
        cdef ResponseOutput loop = self.responses
        if self.fd < 0 or until_ms <= before:
            return
        self.throttled_until_ms = until_ms
        if not self.frames.hold & HOLD_THROTTLE:
            self.frames.hold |= HOLD_THROTTLE
            loop.throttled[self.connection_id] = self
            heappush(loop.throttle_ends, (until_ms, self.connection_id))
            if len(loop.throttle_ends) > 2 * len(loop.throttled) + SPARE_THROTTLE_ENDS:     # most connections were closed meanwhile
                loop.throttle_ends = [((<Connection>c).throttled_until_ms, number) for number, c in loop.throttled.items()]
                heapify(loop.throttle_ends)
            if loop.on_throttle is not None:
                loop.on_throttle(until_ms)
        still_client(&self.metering.client)
        count_usage(self.metering.client.number, TOPIC_NONE, METER_KEY_NONE, USAGE_THROTTLE_MS,
                    max(until_ms - max(before, coarse_ms()), <int64_t>0))

    cdef int throttle_for(self, int64_t wait_ms) except -1:
        """Throttle the connection for this time; 0 has no effect."""
        if wait_ms:
            self.throttle(monotonic_ms() + wait_ms)
        return 0

    def limit_frames(self, int64_t most_bytes) -> None:
        """Set the maximum size of the frames that follow; -1: socket.request.max.bytes."""
        self.frames.most_bytes = self.frames.configured_bytes if most_bytes < 0 else min(most_bytes, self.frames.configured_bytes)

    # --- its end ---

    cdef int begin_close(self, int reason, object text) except -1:
        if not self.state.closing:
            self.state.closing = 1 + reason
            self.close_reason = text
            self.frames.hold |= HOLD_CLOSING
        return 0

    cdef int close_now(self, int reason, object text) except -1:
        return self.responses.close_hook(self.data_loop, self, reason, text)

    def close(self, reason="closed by the broker") -> None:
        """Close the connection at once and drop its unsent responses. `reason` is logged."""
        self.close_now(CLOSE_ASKED, reason)

    def close_after_responses(self, reason) -> None:
        """Read no more, and close the connection as soon as its responses are sent: at the end of this turn, or in the next
        `flush_dirty`. `reason` is logged."""
        self.begin_close(CLOSE_ASKED, reason)
        self.responses.mark_dirty(self)

    cdef int flush_dirty(self) except -1:
        return self.responses.flush_hook(self.data_loop)

    cdef bint move_part(self, const uint8_t* data, int64_t size, Buffer* to) noexcept:
        cdef Buffer* part = &self.input.part
        if part.data == NULL or data < part.data or data >= part.data + part.end or size < part.capacity // MOST_UNUSED_PARTS:
            return False
        to[0] = part[0]
        memset(part, 0, sizeof(Buffer))
        return True

    # --- counting ---

    def runs(self, str name, str version) -> None:
        """Keep and count the client's software name and version, which its ApiVersions request states."""
        software_closed(self.metering.software)
        self.metering.software = -1
        self.client_software_name = name
        self.client_software_version = version
        if self.fd >= 0:
            self.metering.software = software_opened(self.listener_index, name.encode(), version.encode())

    def failed(self, int api_key, int code) -> None:
        """Count an error for metrics: a request of the connection is answered at once, with this error code of Kafka."""
        still_client(&self.metering.client)
        count_error(api_index(api_key), code)
        count_usage(self.metering.client.number, TOPIC_NONE, api_index(api_key), USAGE_ERRORS, 1)

    cdef int counted_client(self, const uint8_t* client_id, int64_t length) except -1:
        """Set `client` to the metering entry of the connection's principal and this client id (length -1: none)."""
        cdef bytes principal
        if self.principal is self.counted_principal and is_client(&self.metering.client, client_id, length):
            return 0
        self.keep_client_id(client_id, length)
        principal = ANONYMOUS if self.principal is None else (<str>self.principal).encode()
        meter_state().owner = self.owner
        find_client(<const char*>principal, len(principal), client_id, length, &self.metering.client)
        self.counted_principal = self.principal
        return 0

    cdef int keep_client_id(self, const uint8_t* client_id, int64_t length) except -1:
        if length < 0:
            self.client_id = None
            return 0
        length = min(length, <int64_t>CLIENT_ID_KEPT)
        if self.client_id is None or len(self.client_id) != length or memcmp(<const char*>self.client_id, client_id, length) != 0:
            self.client_id = PyBytes_FromStringAndSize(<const char*>client_id, length)
        return 0

    cdef int count_frame(self, int api, int version, int64_t size) except -1:
        """Count an executed request of `size` bytes, none of which are records (records are counted by topic)."""
        cdef shared_u64* values = usage_of(self.metering.client.number, TOPIC_NONE, api).values
        count_64(&values[USAGE_REQUESTS], 1)
        count_64(&values[USAGE_BYTES_IN], <uint64_t>size)
        count_request(api, version)
        return 0

    cdef int count_time(self, int64_t now_ms) except -1:
        """Count the time that the connection has been open: for its client, or for `other` if it is closed before its first request."""
        cdef int64_t passed = now_ms - self.metering.counted_ms
        if passed <= 0 or (not still_client(&self.metering.client) and self.fd >= 0 and not self.frames.greeted):
            return 0
        count_usage(self.metering.client.number, TOPIC_NONE, METER_KEY_NONE, USAGE_CONNECTION_MS, passed)
        self.metering.counted_ms = now_ms
        return 0

    @property
    def name(self) -> str:
        """The connection's name for log lines: its number, the client's address, and the client id of its last request."""
        client_id = None if self.client_id is None else self.client_id.decode("utf-8", "replace")
        return f"connection {self.connection_id} from {client_name(self.peer, client_id)}"

    @property
    def log_fields(self) -> dict[str, Any]:
        """The connection's number, client address and client id as attributes of a log record: `extra` of a logging call."""
        return {
            "connection_id": self.connection_id,
            "client_address": self.peer,
            "client_id": None if self.client_id is None else self.client_id.decode("utf-8", "replace"),
        }

    @property
    def muted(self) -> bool:
        """Whether frames of the connection are held back at present, for any reason (`Hold`)."""
        return self.frames.hold != 0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that are kept: a part of a frame, and frames that are held back."""
        cdef ConnectionInput* received = &self.input
        return received.size_have + (received.part.end if received.part.data != NULL else 0) + received.held.end - received.held.start

    @property
    def queued_bytes(self) -> int:
        """Bytes of unsent responses in memory (file slices not counted)."""
        return self.output.queue.span_bytes + self.output.waiting_bytes

    def __dealloc__(self):
        drop_queue(&self.output.queue)

    def __repr__(self) -> str:
        return f"<{self.name}>"


cdef class ResponseOutput:
    """Gathers the responses on a worker's connections, and counts the requests that they answer. See the pxd for what it owns.

    :param cold_reader: called like page_cache.ColdReader; None: the loop itself waits for pages that are not in the page cache.
    """

    def __cinit__(self, cold_reader=None):
        self.cold_reader = cold_reader
        self.dirty = []
        self.throttled = {}
        self.throttle_ends = []
        self.now_ms = coarse_ms()
        self.out = <uint8_t*>malloc(OUT_ROOM)
        if self.out == NULL:
            raise MemoryError("no memory for the shared output buffer")
        self.out_room = OUT_ROOM

    def __dealloc__(self):
        free(self.out)

    cdef int shrink(self) except -1:
        """Free the gathering buffer if it became much larger than usual. Called when it is empty."""
        if self.out_room > 8 * OUT_ROOM:
            free(self.out)
            self.out_room = OUT_ROOM
            self.out = <uint8_t*>malloc(OUT_ROOM)
            if self.out == NULL:
                self.out_room = 0
                raise MemoryError("no memory for the shared output buffer")
        return 0

    cdef uint8_t* out_reserve(self, int64_t length) except NULL:
        """Return room for `length` bytes, valid until the next out_reserve. The caller passes the number of written bytes to out_commit."""
        cdef int64_t room = max(self.out_room, <int64_t>OUT_ROOM)       # out_room is 0 after memory ran out
        cdef uint8_t* grown
        if self.current is None and self.target is None:
            raise RuntimeError("a response was written outside of a handler's call and of a Pending's begin and finish")
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
        """The queue to which the bytes written since `out_base` belong."""
        if self.target is not None:
            return &self.target.answer
        if self.current.pending_tail is not None:
            return &self.current.pending_tail.after
        return &self.current.output.queue

    cdef int spill(self) except -1:
        """Move the bytes written since `out_base` to their queue."""
        cdef int64_t length = self.out_length - self.out_base
        if length == 0:
            return 0
        add_copy(self.out_queue(), self.out + self.out_base, length)
        if self.target is None and self.current.pending_tail is not None:
            self.current.output.waiting_bytes += length
        self.out_length = self.out_base
        return 0

    cdef int out_file(self, object owner, int fd, int64_t position, int64_t length) except -1:
        cdef OutQueue* queue
        cdef int64_t before
        if self.current is None and self.target is None:
            raise RuntimeError("a response was written outside of a handler's call and of a Pending's begin and finish")
        if length <= COPIED_SLICE:
            if 0 < length <= SHARED_SLICE and self.target is not None:
                if owner is not self.slice_owner or position != self.slice_position or length != self.slice_length:
                    self.slice_owner = None
                    if read_resident(fd, self.slice, length, position) == length:
                        self.slice_owner, self.slice_position, self.slice_length = owner, position, length
                if self.slice_owner is not None:
                    return self.out_bytes(self.slice, length)
            elif length <= 0 or read_resident(fd, self.out_reserve(length), length, position) == length:
                self.out_length += max(length, <int64_t>0)
                return 0
        self.spill()
        queue = self.out_queue()
        before = queue.span_bytes
        add_file(queue, owner, fd, position, length)
        if self.target is None and self.current.pending_tail is not None:
            self.current.output.waiting_bytes += queue.span_bytes - before
        return 0

    def write(self, data) -> None:
        """Append bytes to the responses of the current connection. For handlers."""
        cdef ByteView view = ByteView(data)
        if view.size:
            self.out_bytes(view.data, view.size)

    def write_file(self, file_slice) -> None:
        """Append a FileSlice to the responses of the current connection. For handlers."""
        self.out_file(file_slice.file, file_slice.fd, file_slice.position, file_slice.length)

    cdef void mark_dirty(self, Connection c):
        if not c.state.dirty and c.fd >= 0:
            c.state.dirty = True
            self.dirty.append(c)

    # --- counting requests ---

    cdef void executed(self, int api) noexcept:
        """Count an executed request of the current read; `settle_times` adds its times."""
        if self.turn_counts[api] == 0:
            self.turn_apis[self.turn_kinds] = api
            self.turn_kinds += 1
        self.turn_counts[api] += 1

    cdef void not_executed(self, int api) noexcept:
        """Uncount a joined request (FRAME_JOINED) of the current read: it became a delayed operation instead."""
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
        """Count the times of the current read's requests, whose responses were just sent or queued."""
        cdef int i, api
        if self.turn_kinds == 0:
            return
        self.clock = clock_us()
        if c.quotas.limited and c.quotas.request_of_client.key:     # the time of sending, unchecked, as in Kafka
            quota_add(&c.quotas.request_of_client, max(self.clock - max(c.quotas.mark_us, self.began_us), <int64_t>0), self.clock // 1000)
            c.quotas.mark_us = self.clock
        for i in range(self.turn_kinds):
            api = self.turn_apis[i]
            count_times(api, self.turn_counts[api], self.began_us - c.input.received_us, self.executed_us - self.began_us, 0,
                        self.clock - self.executed_us)
            self.turn_counts[api] = 0
        self.turn_kinds = 0
