"""One replica fetcher: its partitions, its connection to the leader, and the loop that fetches; see replica_connection.pxd.

A fetcher belongs to one thread of the replicator. Only `wake` and the counters may be used by other threads. The thread calls `run`,
which works without the GIL until the thread must decide something. A request that is under way stays under way meanwhile: its
response is received by a later call, and ignored for partitions that changed since.
"""

import logging

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from posix.time cimport nanosleep, timespec
from posix.unistd cimport close, read, write

from odradek._ext.protocol.api_versions cimport API_VERSIONS
from odradek._ext.protocol.byte_order cimport load32, store32
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init, write_bytes, write_int16, write_int32
from odradek._ext.partition.flusher cimport SharedFlusher
from odradek._ext.replication.device_waits cimport DeviceLook, go_on_without, look_at_device
from odradek._ext.replication.fetched_partitions cimport DEVICE_READY, FetchedPartition, FetchedPartitions
from odradek._ext.replication.replica_requests cimport FETCH_OF_REPLICA, FETCH_OLDEST, FetchSettings, build_fetch, refresh_unsent
from odradek._ext.replication.replica_responses cimport FetchResponse, take_response
from odradek._ext.replication.throttled_partitions cimport hold_throttled
from odradek._ext.shm.brokers cimport own_epoch
from odradek._ext.shm.clock cimport monotonic_ms


cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLIN
    int POLLOUT
    int poll(pollfd* fds, unsigned long count, int timeout)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t send(int fd, const void* data, size_t size, int flags)
    ssize_t recv(int fd, void* data, size_t size, int flags)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int initial, int flags)


LOG = logging.getLogger("odradek.replication")

cdef enum:
    CONTINUE = -1                 # in addition to FetchOutcome
    FIRST_RESPONSE_ROOM = 1 << 16
    KEPT_ROOM = 1 << 20           # of the receive buffer after many small responses
    SMALL_RESPONSES = 20
    LOOK_EVERY_MS = 1000
    BUSY_PAUSE_NS = 500000
    LONGEST_WAIT_MS = 60000
    SMALLEST_RESPONSE = 17
    SMALLEST_NUDGE_RESPONSE = 6
    NUDGE_CORRELATION = -1        # those of Fetch requests are positive
    LEAST_PROGRESS = 16384        # bytes of a response that give the rest of it another time-out
    DEVICE_PATIENCE_MS = 20       # how long a request waits for the device of the partitions of the last response
    DEVICE_WAIT_MS = 50           # how long the leader may wait for records while a partition waits for the device
    TLS_WANTS_READ = -1           # results of TlsSocket
    TLS_WANTS_WRITE = -2
    TLS_ERROR = 71                # EPROTO: the reason is in TlsSocket.lost_by


cdef class ReplicaConnection(FetchedPartitions):
    """Fetches its partitions from one leader.

    :param client_id: of the requests. :param replica_id: the id of this broker. The other parameters are those of the keys
    `replica.fetch.*` and `replica.socket.timeout.ms`.
    :param flusher: a SharedFlusher, for logs with flush.messages; None: only other processes sync them. :raises OSError: no descriptor is
    left.
    """

    def __cinit__(self, client_id, int replica_id, *, int max_wait_ms, int min_bytes, int max_bytes, int partition_max_bytes,
                  int timeout_ms, SharedFlusher flusher=None):
        self.flusher = flusher
        buffer_init(&self.request)
        self.fd = -1
        self.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.wake_fd < 0:
            raise OSError(errno, "cannot create an event descriptor for a replica fetcher")
        self.client_id = client_id.encode()
        self.client_id_data = <const uint8_t*>PyBytes_AS_STRING(self.client_id)
        self.client_id_bytes = <int16_t>len(self.client_id)
        self.settings.replica_id = replica_id
        self.settings.max_wait_ms = max_wait_ms
        self.settings.min_bytes = min_bytes
        self.settings.max_bytes = max_bytes
        self.settings.partition_max_bytes = self.settings.throttled_max_bytes = partition_max_bytes
        self.timeout_ms = max(timeout_ms, max_wait_ms)

    def __dealloc__(self):
        buffer_free(&self.request)
        free(self.response)
        if self.wake_fd >= 0:
            close(self.wake_fd)

    def wake(self) -> None:
        """Make `run` return FETCH_WOKEN. May be called by any thread."""
        cdef uint64_t increment = 1
        write(self.wake_fd, &increment, 8)

    def connected(self, int fd, int newest_version, tls=None) -> None:
        """Use a connection to the leader, which stays the caller's. The next request begins a new fetch session.

        :param tls: the TlsSocket of an encrypted connection.
        :param newest_version: of Fetch, which the leader serves; versions above the newest one of this fetcher are not used.
        :raises ValueError: the version is too old.
        """
        if newest_version < FETCH_OLDEST:
            raise ValueError(f"Fetch version {newest_version} is too old: replication needs version {FETCH_OLDEST} or newer")
        self.disconnected()
        self.fd = fd
        self.version = <int16_t>min(newest_version, <int>FETCH_OF_REPLICA)
        if tls is not None:
            tls.begin()
            self.tls = tls
            self.has_tls = True

    def finish(self) -> None:
        """Let `run` return FETCH_IDLE when the response that is under way has arrived, instead of sending another request. The leader
        is asked to answer soon."""
        if not self.finishing:
            self.finishing = True
            self.news = True

    def disconnected(self) -> None:
        """Forget the connection, and the response that is under way."""
        self.fd = -1
        self.version = 0
        self.deadline_ms = 0
        self.request_sent = 0
        self.response_bytes = 0
        self.session.epoch = 0
        self.nudged = False
        self.finishing = False
        self.tls = None
        self.has_tls = self.tls_ready = False
        self.tls_wants = 0
        self.forget_session()

    def activate(self, uint32_t place, int64_t from_offset=-1) -> bool:
        """See `FetchedPartitions.activate`. A response that the leader holds back for records is asked for."""
        self.news = True
        return FetchedPartitions.activate(self, place, from_offset)

    def run(self, int64_t until_ms) -> int:
        """Fetch until something is to be decided, or until a monotonic time in ms. Returns a FetchOutcome.

        Call `connected` first. After FETCH_LOST, FETCH_TIMED_OUT, FETCH_MALFORMED and FETCH_NO_MEMORY the connection is useless.
        """
        cdef int outcome
        with nogil:
            outcome = self.run_loop(until_ms)
        return outcome

    def rest(self, int64_t until_ms) -> int:
        """Wait for `wake` until a monotonic time in ms, without a connection. Returns FETCH_WOKEN or FETCH_TIME."""
        cdef int outcome = CONTINUE
        with nogil:
            while outcome == CONTINUE:
                outcome = self.wait(0, monotonic_ms(), until_ms)
        return outcome

    @property
    def responses(self) -> int:
        return self.totals.responses

    @property
    def records_bytes(self) -> int:
        """Bytes of records that were appended."""
        return self.totals.records_bytes

    @property
    def unknown(self) -> int:
        """Parts of responses for partitions that this fetcher does not fetch."""
        return self.totals.unknown

    @property
    def under_way(self) -> bool:
        """Whether a response is under way."""
        return self.deadline_ms != 0

    @property
    def held(self) -> int:
        """The number of partitions that the throttle keeps out of requests now."""
        return self.held_count

    @property
    def waits_for_device(self) -> bool:
        """Whether a partition may wait for a sync: then the end of a flush must be followed by `wake`. May be read by any thread."""
        return self.awaits_device

    @property
    def active(self) -> int:
        """The number of partitions that are fetched."""
        return self.active_count

    # -- without the GIL --------------------------------------------------------------------------------------------

    cdef int run_loop(self, int64_t until_ms) noexcept nogil:
        cdef int outcome = CONTINUE
        cdef int64_t now
        if self.deadline_ms != 0 and self.awaits_device and self.await_device():
            self.news = True            # the end of a flush has woken this thread: fetch the partition soon
        while outcome == CONTINUE:
            now = monotonic_ms()
            if self.event_count:
                return FETCH_EVENTS
            if now >= self.look_ms:
                self.look_ms = now + LOOK_EVERY_MS
                self.refresh_all()
                continue
            if self.deadline_ms == 0:
                if self.active_count == 0 or self.finishing:
                    return FETCH_IDLE
                if now >= until_ms:
                    return FETCH_TIME           # also if responses follow each other without a pause
                outcome = self.begin_request(now, until_ms)
            elif self.request_sent < self.request.size:
                outcome = self.send_rest(now, until_ms)
            elif self.news and not self.nudged:
                outcome = self.build_nudge()
            elif self.tls_ready:
                outcome = self.receive()
            else:
                outcome = self.wait(self.tls_wants if self.tls_wants else <int16_t>POLLIN, now, min(until_ms, self.look_ms))
                if outcome == FETCH_TIME and now < until_ms:
                    outcome = CONTINUE          # only to look
                elif outcome == CONTINUE:
                    outcome = self.receive()
        return outcome

    cdef int begin_request(self, int64_t now, int64_t until_ms) noexcept nogil:
        """Build the next request, unless the throttle or the device holds all partitions: then wait until one may be released. Wait a
        short time for the device in any case if the last response brought records that must be on it."""
        cdef int outcome
        cdef uint32_t held
        cdef int64_t hold_ms, end_ms = min(until_ms, self.look_ms)
        self.settings.throttled_max_bytes = self.settings.partition_max_bytes
        hold_ms = hold_throttled(self, &self.settings.throttled_max_bytes, now)
        refresh_unsent(self)
        held = self.held_count if hold_ms else 0
        if self.awaits_device:
            self.await_device()
            held += self.device_waiting
        if (held == 0 or held < self.active_count) and now >= self.device_until_ms:
            return self.send_request(now, hold_ms)
        if self.event_count:
            return CONTINUE
        if hold_ms:
            end_ms = min(end_ms, now + hold_ms)
        if now < self.device_until_ms:
            end_ms = min(end_ms, self.device_until_ms)
        outcome = self.wait(0, now, end_ms)
        return CONTINUE if outcome == FETCH_TIME and monotonic_ms() < until_ms else outcome

    cdef bint await_device(self) noexcept nogil:
        """Look at the partitions that wait for the device, and request their syncs. Returns whether fewer wait than at the last look."""
        cdef DeviceLook found
        cdef bint fewer
        look_at_device(self, &found)
        fewer = found.waiting < self.device_waiting
        self.device_waiting = found.waiting
        if not found.fresh:
            self.device_until_ms = 0
        elif self.device_until_ms == 0:
            self.device_until_ms = monotonic_ms() + DEVICE_PATIENCE_MS
        if self.awaits_device and self.flusher is not None:
            self.request_syncs()
        return fewer

    cdef void request_syncs(self) noexcept with gil:
        """Request the syncs of all partitions that wait for the device. Without memory, the cleaner syncs them within a second."""
        cdef SharedFlusher flusher = self.flusher
        cdef FetchedPartition* fetched
        cdef uint32_t place
        try:
            for place in range(self.partitions_used):
                fetched = &self.partitions[place]
                if fetched.used and fetched.active and fetched.device != DEVICE_READY:
                    flusher.request(fetched.slot)
        except MemoryError as error:
            LOG.error("cannot request the sync of replicated records: %s; the cleaner syncs them within a second", error)

    cdef int send_request(self, int64_t now, int64_t hold_ms) noexcept nogil:
        """Build the next request. It is sent by `send_rest`.

        :param hold_ms: the leader may wait for records no longer, because a partition may be fetched again then; 0: no limit.
        """
        cdef FetchSettings settings = self.settings
        if hold_ms:
            settings.max_wait_ms = <int32_t>min(<int64_t>settings.max_wait_ms, hold_ms)
        if self.awaits_device:
            settings.max_wait_ms = min(settings.max_wait_ms, <int32_t>DEVICE_WAIT_MS)
            go_on_without(self)
        self.device_until_ms = 0
        self.news = False
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        self.sent_version = self.version if self.nameless == 0 else FETCH_OLDEST
        build_fetch(&self.request, self, &settings, &self.session, self.sent_version, self.correlation_id,
                    self.client_id_data, self.client_id_bytes, own_epoch())
        if self.request.error:
            buffer_free(&self.request)
            return FETCH_NO_MEMORY
        self.request_sent = 0
        self.response_bytes = 0
        self.deadline_ms = now + self.timeout_ms
        self.wanted_bytes = LEAST_PROGRESS
        return CONTINUE

    cdef int build_nudge(self) noexcept nogil:
        """Build a request of which only the arrival counts: a leader that holds the response to the Fetch back answers it then, so that
        the next Fetch can name the new partitions. Kafka's leader answers it after the Fetch, without an effect. The Fetch is sent, so
        its buffer is free."""
        self.news = False
        self.request.size = 0
        write_int32(&self.request, 0)
        write_int16(&self.request, API_VERSIONS)
        write_int16(&self.request, 0)
        write_int32(&self.request, NUDGE_CORRELATION)
        write_int16(&self.request, self.client_id_bytes)
        write_bytes(&self.request, self.client_id_data, self.client_id_bytes)
        if self.request.error:
            buffer_free(&self.request)
            return FETCH_NO_MEMORY
        store32(self.request.data, <uint32_t>(self.request.size - 4))
        self.request_sent = 0
        self.nudged = True
        return CONTINUE

    cdef int send_rest(self, int64_t now, int64_t until_ms) noexcept nogil:
        cdef ssize_t n
        if self.has_tls:
            n = self.tls_send(<const uint8_t*>self.request.data + self.request_sent, self.request.size - self.request_sent)
            if n == -EAGAIN:
                return self.wait(self.tls_wants, now, until_ms)
            if n < 0:
                return self.lost(<int>-n)
        else:
            n = send(self.fd, self.request.data + self.request_sent, self.request.size - self.request_sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL)
        if n >= 0:
            self.request_sent += n
            return CONTINUE
        if errno == EINTR:
            return CONTINUE
        if errno == EAGAIN:
            return self.wait(<int16_t>POLLOUT, now, until_ms)
        return self.lost(errno)

    cdef int lost(self, int error) noexcept nogil:
        self.error = error
        return FETCH_LOST

    cdef int wait(self, int16_t wanted, int64_t now, int64_t until_ms) noexcept nogil:
        """Wait for the connection, until a time. CONTINUE: it is ready, or nothing has happened. `wanted` 0: without a connection."""
        cdef pollfd[2] fds
        cdef int64_t end = until_ms
        cdef int ready
        cdef uint64_t counter
        if wanted and self.deadline_ms < end:
            end = self.deadline_ms
        fds[0].fd = self.wake_fd
        fds[0].events = <short>POLLIN
        fds[0].revents = 0
        fds[1].fd = self.fd
        fds[1].events = wanted
        fds[1].revents = 0
        ready = poll(fds, 2 if wanted else 1, <int>max(<int64_t>0, min(end - now, <int64_t>LONGEST_WAIT_MS)))
        if ready > 0:
            if fds[0].revents:
                read(self.wake_fd, &counter, 8)
                return FETCH_WOKEN
            return CONTINUE
        now = monotonic_ms()
        if ready == 0 and wanted and self.deadline_ms <= now:
            if self.response_bytes < self.wanted_bytes:
                return FETCH_TIMED_OUT
            self.deadline_ms = now + self.timeout_ms        # a slow line: the same request would be late again, for ever
            self.wanted_bytes = self.response_bytes + LEAST_PROGRESS
        return FETCH_TIME if now >= until_ms else CONTINUE

    cdef int receive(self) noexcept nogil:
        """Receive what has arrived; take the response if it is complete."""
        cdef int64_t size = 4
        cdef ssize_t n
        if self.response_bytes >= 4:
            size = 4 + <int64_t><int32_t>load32(self.response)
        if self.make_room(size) != 0:
            self.error = ENOMEM
            return FETCH_NO_MEMORY
        if self.response_bytes < 4 and not self.nudged:
            size = self.response_room       # one call receives the length and the beginning, or a whole small response
        n = self.receive_some(self.response + self.response_bytes, min(size, self.response_room) - self.response_bytes)
        if n < 0:
            return CONTINUE if n == -EINTR or n == -EAGAIN else self.lost(<int>-n)
        if n == 0:
            return self.lost(0)
        self.response_bytes += n
        if self.response_bytes < 4:
            return CONTINUE
        size = <int64_t><int32_t>load32(self.response)
        if size < (SMALLEST_NUDGE_RESPONSE if self.nudged else SMALLEST_RESPONSE) or self.response_bytes > 4 + size:
            return FETCH_MALFORMED
        if self.response_bytes < 4 + size:
            return CONTINUE
        if self.nudged and <int32_t>load32(self.response + 4) == NUDGE_CORRELATION:
            self.nudged = False
            self.response_bytes = 0
            return CONTINUE
        return self.take()

    cdef ssize_t receive_some(self, uint8_t* room, int64_t size) noexcept nogil:
        """Returns the number of bytes, 0 at the end of the connection, or a negative errno."""
        cdef ssize_t n
        if self.has_tls:
            return self.tls_receive(room, size)
        n = recv(self.fd, room, <size_t>size, MSG_DONTWAIT)
        return n if n >= 0 else -errno

    cdef ssize_t tls_receive(self, uint8_t* room, int64_t size) noexcept with gil:
        """As `receive_some`, through TLS: at most one record."""
        cdef ssize_t n
        try:
            n = self.tls_result(self.tls.receive(PyMemoryView_FromMemory(<char*>room, <Py_ssize_t>size, PyBUF_WRITE)))
            self.tls_ready = n > 0 and self.tls.has_more
        except MemoryError:
            return -ENOMEM
        return n

    cdef ssize_t tls_send(self, const uint8_t* data, int64_t size) noexcept with gil:
        """Returns the number of bytes, or a negative errno. After -EAGAIN, `tls_wants` is what to wait for."""
        try:
            return self.tls_result(self.tls.send(PyMemoryView_FromMemory(<char*>data, <Py_ssize_t>size, PyBUF_READ)))
        except MemoryError:
            return -ENOMEM

    cdef ssize_t tls_result(self, Py_ssize_t result) except *:
        """A result of TlsSocket: a number of bytes, or a negative errno in place of its negative results. Sets `tls_wants`."""
        self.tls_wants = 0
        if result >= 0:
            return result
        if result == TLS_WANTS_READ or result == TLS_WANTS_WRITE:
            self.tls_wants = <int16_t>(POLLIN if result == TLS_WANTS_READ else POLLOUT)
            return -EAGAIN
        return -TLS_ERROR

    cdef int make_room(self, int64_t size) noexcept nogil:
        """Enlarge the buffer if it is full: so a wrong length does not allocate more than twice of what has arrived."""
        cdef int64_t room = max(self.response_room, <int64_t>FIRST_RESPONSE_ROOM)
        cdef void* memory
        if self.response_bytes < self.response_room or self.response_room >= size:
            return 0
        if self.response_bytes == self.response_room and self.response_room:
            room *= 2
        memory = realloc(self.response, <size_t>room)
        if memory == NULL:
            return -1
        self.response = <uint8_t*>memory
        self.response_room = room
        return 0

    cdef int take(self) noexcept nogil:
        cdef FetchResponse head
        cdef timespec pause
        cdef int64_t before = self.totals.records_bytes
        cdef int result = take_response(self, self.response + 4, self.response_bytes - 4, self.sent_version, self.correlation_id,
                                        &head, &self.totals)
        self.deadline_ms = 0
        if result != 0:
            return FETCH_MALFORMED
        self.release_memory()
        if head.busy and self.totals.records_bytes == before:
            pause.tv_sec = 0
            pause.tv_nsec = BUSY_PAUSE_NS
            nanosleep(&pause, NULL)         # another process holds the log's lock; no event reports its release
        self.response_bytes = 0
        return self.after_response(&head)

    cdef int after_response(self, const FetchResponse* head) noexcept nogil:
        """Continue the session, or begin a new one."""
        if head.error != 0:
            self.session.epoch = 0
            self.forget_session()
            self.error = head.error
            return FETCH_REFUSED
        if self.session.epoch == 0:
            self.session.session_id = head.session_id
        if head.session_id == 0:
            self.session.epoch = 0          # the leader has no room for a session: each request contains all partitions
        else:
            self.session.epoch = 1 if self.session.epoch == 0x7FFFFFFF else self.session.epoch + 1
        return CONTINUE

    cdef void release_memory(self) noexcept nogil:
        """Free most of a large receive buffer after many small responses."""
        cdef void* memory
        if self.response_bytes > KEPT_ROOM // 2 or self.response_room <= KEPT_ROOM:
            self.small_responses = 0
            return
        self.small_responses += 1
        if self.small_responses < SMALL_RESPONSES:
            return
        self.small_responses = 0
        memory = realloc(self.response, KEPT_ROOM)
        if memory != NULL:
            self.response = <uint8_t*>memory
            self.response_room = KEPT_ROOM
