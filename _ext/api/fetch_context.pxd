"""What a Fetch asks for, and the plan of its response; what its versions and errors are called."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.api.purgatory cimport Waiter
from odradek._ext.net.connection cimport Pending
from odradek._ext.shm.metering cimport Client, ReaderPlace
from odradek._ext.shm.topics cimport Topic
from odradek._ext.storage.segment_list cimport OpenSegment


cdef enum:
    FIRST_FLEXIBLE = 12
    FIRST_BY_ID = 13
    FIRST_WITH_BATCHES = 4            # before: message sets of format v0, from version 2 on of v1
    FIRST_WITH_V1 = 2
    FIRST_WITH_MAX_BYTES = 3          # before: the limits of the partitions hold, each for itself
    FIRST_WITH_STORAGE_ERROR = 6
    WARM_ROUNDS = 8                   # then the loop waits for the disk: what is read is evicted faster than it is used

cdef enum:
    CONSUMER = -1                     # replica_id of a client that is no broker
    DEBUGGING_CONSUMER = -2           # replica_id of a client that reads like a replica, and of which nothing is noted

cdef enum:
    FETCH = 1                         # the API's key
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    UNSUPPORTED_VERSION = 35
    KAFKA_STORAGE_ERROR = 56
    UNSUPPORTED_COMPRESSION_TYPE = 76
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106


cdef inline int16_t storage_error(int16_t version) noexcept:
    """KAFKA_STORAGE_ERROR, or for clients that do not know it what makes them look for the leader and try again (as Kafka)."""
    return KAFKA_STORAGE_ERROR if version >= FIRST_WITH_STORAGE_ERROR else NOT_LEADER_OR_FOLLOWER


cdef class FetchPartition:
    cdef bytes topic                  # name, or id from version 13 on
    cdef bint by_id
    cdef int32_t partition
    cdef uint32_t slot                # slot + 1; 0: not known
    cdef uint32_t incarnation
    # asked for
    cdef int64_t fetch_offset
    cdef int64_t log_start_offset
    cdef int32_t max_bytes
    cdef int32_t leader_epoch         # -1: not said
    cdef int32_t last_fetched_epoch
    cdef bint forgotten
    cdef uint32_t request             # serial number of the request that named it last
    # what a session's client was told last
    cdef int64_t told_high_watermark
    cdef int64_t told_log_start
    cdef bint told
    # where the next fetch is likely to begin
    cdef int64_t place_offset
    cdef int64_t place_base
    cdef int64_t place_position
    cdef uint64_t place_generation
    cdef uint64_t generation          # of the slot, from before this plan's look at it
    # the plan of this response
    cdef int16_t error
    cdef bint wanted                  # it belongs into the response
    cdef int64_t high_watermark
    cdef int64_t last_stable_offset
    cdef int64_t now_log_start
    cdef OpenSegment segment
    cdef int64_t position
    cdef int64_t length
    cdef int64_t ready_bytes          # that there are, up to `max_bytes`: what counts towards min_bytes while the request waits
    # of a response in an old format
    cdef int64_t extent               # bytes of the segment from `position` to where reading must end
    cdef int64_t allowed              # bytes of the response
    # metering
    cdef Topic counted                # that of the slot; None: not known
    cdef bint asked                   # by the request at hand
    cdef bint served                  # records were given and counted from `fetch_offset` to `served_end`, perhaps more of them,
    cdef int64_t served_end           # as far as to `served_limit`
    cdef int64_t served_limit
    cdef int64_t limit                # of the plan
    cdef int64_t given_end            # behind the records of the plan; if these are cut, behind those of their first batch
    cdef int64_t moved                # records that were given and are not counted yet
    cdef ReaderPlace place            # of the client's position in this partition
    cdef object converted             # what takes the place of the slice of the file; None: the slice goes out as it is


cdef inline bint reads_to_log_end(int32_t replica_id) noexcept:
    """Whether the reader is a replica, or reads like one; consumers read to the high watermark."""
    return replica_id >= 0 or replica_id == DEBUGGING_CONSUMER


cdef void ask(FetchPartition p, int64_t fetch_offset, int64_t log_start_offset, int32_t max_bytes, int32_t leader_epoch,
              int32_t last_fetched_epoch) noexcept


cdef class FetchContext(Waiter):
    """A session, or what a connection asks for without one; parked while `pending` is set."""
    cdef list partitions              # of FetchPartition, in the order to serve them
    cdef dict by_key                  # (topic, partition) -> FetchPartition; None without session
    cdef int32_t session_id           # 0: no session
    cdef int32_t epoch                # of the next incremental request
    cdef int64_t last_used_ms
    cdef int64_t created_ms           # of the session
    cdef Py_ssize_t counted_size      # partitions of the session, as its cache counts them
    cdef bint ended                   # the session is no longer in the cache; a request of it may still wait
    cdef uint32_t request             # serial number of the request at hand
    cdef Py_ssize_t names             # partitions that the request at hand named so far, without session
    # (topic, partition) -> FetchPartition, of this request and the one before, without session; None while the request names what
    # the one before named, in its order
    cdef dict known
    cdef bint stale                   # the partitions or their slots are others than those that are watched
    # the request at hand
    cdef Pending pending
    cdef int16_t version
    cdef int32_t correlation_id
    cdef int32_t min_bytes
    cdef int32_t max_bytes
    cdef int32_t replica_id
    cdef bint read_committed
    cdef bint incremental
    cdef object reader                # the worker's ColdReader, or None
    cdef list cold                    # of look-ups that met pages which are not in the cache: (segment, index_fd, entries, size, offset)
    cdef int warm_rounds              # how often such look-ups were handed to the reader for this request
    cdef int64_t until_ms             # of the request
    cdef int64_t planned_bytes
    cdef int64_t ready_bytes          # of all partitions; see FetchPartition
    cdef bint planned_error
    # the plan, which may be made in slices
    cdef Py_ssize_t plan_at           # partitions before this one are planned
    cdef int64_t plan_budget          # bytes that the response may still hold
    cdef bint plan_first              # no partition before gives records
    cdef Client client                # whose request

    cdef FetchPartition named(self, bytes topic, bint by_id, int32_t partition)
    cdef FetchPartition named_out_of_order(self, bytes topic, bint by_id, int32_t partition)
    cdef int all_named(self) except -1
    cdef int know_all(self) except -1
    cdef int become_session(self) except -1
    cdef int forget(self, tuple key) except -1
    cdef int drop_forgotten(self) except -1
    cdef int count_moves(self, FetchContext before) except -1
    cdef int count_positions(self) except -1
    cdef void leave_positions(self) noexcept
    cdef bint enough(self) noexcept
    cdef int go_on(self) except -1
