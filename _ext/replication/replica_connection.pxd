"""One replica fetcher: its partitions, its connection to the leader, and the loop that fetches without the GIL."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.replication.fetched_partitions cimport FetchedPartitions
from odradek._ext.replication.replica_requests cimport FetchSession, FetchSettings
from odradek._ext.replication.replica_responses cimport FetchResponse, FetchTotals


cpdef enum FetchOutcome:          # why `run` returned
    FETCH_WOKEN = 0               # `wake` was called
    FETCH_TIME = 1                # the given time is reached
    FETCH_EVENTS = 2              # `take_events` has something
    FETCH_IDLE = 3                # no partition is active, and no response is under way
    FETCH_REFUSED = 4             # the leader refused the whole request: `error`
    FETCH_LOST = 5                # the connection is lost: `error` is an errno, 0 if the leader closed it
    FETCH_TIMED_OUT = 6           # no response within the time-out
    FETCH_MALFORMED = 7           # the response does not follow the protocol
    FETCH_NO_MEMORY = 8


cdef class ReplicaConnection(FetchedPartitions):
    cdef FetchSettings settings
    cdef FetchSession session
    cdef FetchTotals totals
    cdef WriteBuffer request
    cdef bytes client_id
    cdef const uint8_t* client_id_data
    cdef int16_t client_id_bytes
    cdef int16_t version          # of the leader's Fetch; 0: not connected
    cdef int16_t sent_version
    cdef int fd
    cdef int wake_fd
    cdef int64_t timeout_ms
    cdef int64_t deadline_ms      # monotonic, of the response that is under way; 0: none is
    cdef int64_t wanted_bytes     # of it: with fewer at the deadline, it is late
    cdef int64_t look_ms          # when the positions of all partitions are read next
    cdef Py_ssize_t request_sent  # bytes
    cdef uint8_t* response
    cdef int64_t response_room
    cdef int64_t response_bytes   # received
    cdef int small_responses      # in a row
    cdef int32_t correlation_id
    cdef bint news                # a partition was activated after the request that is under way
    cdef bint nudged              # the response to a nudge has not arrived yet
    cdef bint finishing           # no further Fetch is sent
    cdef object flusher           # partition.flusher.SharedFlusher; None: only other processes sync the logs
    cdef uint32_t device_waiting  # partitions that wait for the device, at the last look
    cdef int64_t device_until_ms  # monotonic: until when the next request waits for the device; 0: not decided
    cdef bint has_tls
    cdef object tls               # replication.tls_socket.TlsSocket; None without TLS
    cdef int16_t tls_wants        # what the last call of TLS waits for, if it is not the usual; 0
    cdef bint tls_ready           # decrypted bytes wait, which poll does not report
    cdef readonly int error
    cdef int run_loop(self, int64_t until_ms) noexcept nogil
    cdef int build_nudge(self) noexcept nogil
    cdef int begin_request(self, int64_t now, int64_t until_ms) noexcept nogil
    cdef bint await_device(self) noexcept nogil
    cdef void request_syncs(self) noexcept with gil
    cdef int send_request(self, int64_t now, int64_t hold_ms) noexcept nogil
    cdef int send_rest(self, int64_t now, int64_t until_ms) noexcept nogil
    cdef int lost(self, int error) noexcept nogil
    cdef int wait(self, int16_t wanted, int64_t now, int64_t until_ms) noexcept nogil
    cdef int receive(self) noexcept nogil
    cdef ssize_t receive_some(self, uint8_t* room, int64_t size) noexcept nogil
    cdef ssize_t tls_receive(self, uint8_t* room, int64_t size) noexcept with gil
    cdef ssize_t tls_send(self, const uint8_t* data, int64_t size) noexcept with gil
    cdef ssize_t tls_result(self, Py_ssize_t result) except *
    cdef int make_room(self, int64_t size) noexcept nogil
    cdef int take(self) noexcept nogil
    cdef int after_response(self, const FetchResponse* head) noexcept nogil
    cdef void release_memory(self) noexcept nogil
