"""The request context of a Fetch: the requested partitions and the plan of the response. Constants of Fetch's versions and errors."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.api.access cimport Access
from odradek._ext.protocol.api_versions cimport FETCH_FLEXIBLE
from odradek._ext.protocol.kafka_errors cimport KAFKA_STORAGE_ERROR, NO_ERROR, NOT_LEADER_OR_FOLLOWER
from odradek._ext.shm.client_quotas cimport QuotaUse
from odradek._ext.shm.metering cimport Client, ReaderPlace
from odradek._ext.shm.topics cimport Topic
from odradek._ext.storage.segment_list cimport OpenSegment


cdef enum:
    FIRST_BY_ID = 13
    FIRST_WITH_BATCHES = 4            # earlier versions: message sets of format v0; v1 from version 2 on
    FIRST_WITH_V1 = 2
    FIRST_WITH_MAX_BYTES = 3          # earlier versions: only the limit of each partition applies
    FIRST_WITH_STORAGE_ERROR = 6
    FIRST_WITH_RACK = 11              # from it on, consumers may read from followers
    FIRST_WITH_ENDPOINTS = 16         # from it on, the response names the present leader and its address after some errors
    WARM_ROUNDS = 8                   # after so many rounds the loop itself waits for the disk: pages are evicted before they are used

cdef enum:
    CONSUMER = -1                     # replica_id of a client that is not a broker
    DEBUGGING_CONSUMER = -2           # replica_id of a client that reads like a replica, but whose position is not recorded


cdef inline int16_t storage_error(int16_t version) noexcept:
    """Return KAFKA_STORAGE_ERROR; for versions without it the error that makes clients look up the leader and retry (as in Kafka)."""
    return KAFKA_STORAGE_ERROR if version >= FIRST_WITH_STORAGE_ERROR else NOT_LEADER_OR_FOLLOWER


cdef struct PartitionRequest:
    # What the client requests. `set_request` writes it, FetchContext the serial number; FetchConversion advances `fetch_offset` over
    # transaction markers.
    int64_t fetch_offset
    int64_t log_start_offset
    int32_t max_bytes
    int32_t leader_epoch              # -1: not given
    int32_t last_fetched_epoch
    uint32_t serial                   # serial number of the last request that named the partition


cdef struct PartitionState:
    # What FetchPlan found in the slot and the log. Offsets; -1 if there is an error. FetchConversion sets them, too, if it meets an error.
    uint64_t generation               # of the slot, as read before the plan examined it
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t ready_bytes               # available bytes, up to the request's `max_bytes`; they count towards min_bytes while it waits
    int64_t log_end_offset
    int64_t diverging_end             # end offset of `diverging_epoch` in this broker's log
    int32_t diverging_epoch           # the log of the replica that fetches diverges: largest epoch that both know; -1: it does not
    int32_t preferred_replica         # broker from which the consumer should read; -1: this one
    int32_t current_leader            # of the partition, for an error that makes the client look it up; -1: unknown
    int32_t current_leader_epoch
    int16_t error                     # Kafka's error code
    bint included                     # the response must contain the partition


cdef struct PlannedRecords:
    # The partition's part of the response, in bytes and offsets. FetchPlan writes it; FetchConversion replaces the length and the ends.
    int64_t position                  # of the records in the file of `segment`
    int64_t length                    # 0: no records
    int64_t limit                     # offset at which the records end at the latest
    int64_t end                       # offset after the records; if they are cut, after those of their first batch
    int64_t extent                    # for a response in an old format: bytes of the segment from `position` to where reading must end
    int64_t allowed                   # for a response in an old format: maximum bytes of the partition in the response


cdef struct ExpectedPlace:
    # Where the next fetch is expected to begin. FetchPlan writes it, and uses it if offset and generation are those of the next fetch.
    int64_t offset                    # -1: not known
    int64_t base                      # of the segment
    int64_t position
    uint64_t generation               # of the slot


cdef struct PassedOffsets:
    # For a client of an old format: what earlier rounds of its requests read without finding a message. FetchConversion writes it, and
    # FetchPlan begins behind it. A client that got nothing requests the same offset again.
    int64_t asked                     # the offset that the client requested
    int64_t next                      # there are no messages before this offset
    uint64_t generation               # of the slot; what was read in another one may not be true any more


cdef struct SentState:
    # Values in the last response to a session's client. FetchResponses writes it.
    int64_t high_watermark
    int64_t log_start_offset
    bint valid                        # whether the client has received these values


cdef struct ReadProgress:
    # Metering: what the reader has read. FetchResponses and `count_progress` write it.
    bint served                       # the last response contained records, which are counted from the fetch offset to `end`;
    int64_t end                       # it may contain further records, up to `limit` at most
    int64_t limit
    int64_t uncounted_records         # records that were sent and are not counted yet
    ReaderPlace place                 # entry of the client's position in this partition


cdef class FetchPartition:
    """A partition of a fetch session, or of the last request of a connection without a session: request, plan and progress of it."""
    cdef bytes topic                  # name, or id from version 13 on
    cdef bint by_id
    cdef bint forgotten               # the current request removes it from the session
    cdef bint dirty                   # in `FetchContext.dirty`
    cdef uint32_t listed_for          # serial number of the request whose plan covers it, in the session of a follower
    cdef uint32_t noted_for           # serial number of the request that was noted as the follower's position
    cdef uint32_t watched             # slot + 1 that the session of a follower watches for this partition; 0: none
    cdef bint throttled               # its records count towards the leader's throttle of replication
    cdef bint unrecorded              # named by the current request; `count_positions` has not recorded the reader's position yet
    cdef int32_t partition
    cdef uint32_t slot                # slot + 1; 0: unknown
    cdef uint32_t incarnation
    cdef Topic counted                # the slot's topic, for metering; None: unknown
    cdef OpenSegment segment          # of the planned records; None: no records are planned
    cdef bytes aborted                # AbortedTransactions of the planned records as sent, without their number; None: there are none
    cdef object converted             # bytes to send instead of the slice of the file; None: the slice is sent unchanged
    cdef PartitionRequest request
    cdef PartitionState found
    cdef PlannedRecords planned
    cdef ExpectedPlace expected
    cdef PassedOffsets passed
    cdef SentState sent
    cdef ReadProgress progress


cdef inline bint answers_at_once(FetchPartition p) noexcept:
    """Return whether a request with this partition must not wait for records."""
    return p.found.error != 0 or p.found.diverging_epoch >= 0 or p.found.preferred_replica >= 0


cdef inline bint reads_to_log_end(int32_t replica_id) noexcept:
    """Return whether the reader is a replica or reads like a replica, to the log end; consumers read to the high watermark."""
    return replica_id >= 0 or replica_id == DEBUGGING_CONSUMER


cdef inline int bytes_of_aborted(int16_t version) noexcept:
    """Return the size of an element of AbortedTransactions: producer id, first offset and, from FETCH_FLEXIBLE on, no tagged fields."""
    return 17 if version >= FETCH_FLEXIBLE else 16


cdef inline int refuse_partition(FetchPartition p, int16_t error) noexcept:
    """Set the partition's error; its offsets are not sent then, as in Kafka. Return 0."""
    p.found.error = error
    p.found.high_watermark = p.found.last_stable_offset = p.found.log_start_offset = -1
    p.found.included = True
    return 0


cdef inline void forget_result(FetchPartition p) noexcept:
    """Discard the results of an earlier look at the partition."""
    p.found.error = NO_ERROR
    p.found.high_watermark = p.found.last_stable_offset = p.found.log_start_offset = p.found.log_end_offset = -1
    p.found.diverging_epoch = p.found.preferred_replica = p.found.current_leader = p.found.current_leader_epoch = -1


cdef void set_request(FetchPartition p, int64_t fetch_offset, int64_t log_start_offset, int32_t max_bytes, int32_t leader_epoch,
                      int32_t last_fetched_epoch) noexcept


cdef class FetchContext:
    """A fetch session, or the last request of a connection without a session: the partitions, the current request, and its plan.

    A member of a DelayedFetch, which decides when the plan is made and the request is answered. It requires nothing of its owner.
    """
    cdef list partitions              # FetchPartitions, in the order in which they are served
    cdef dict by_key                  # (topic, partition) -> FetchPartition; None without session
    cdef int32_t session_id           # 0: no session
    cdef int32_t epoch                # of the next incremental request
    cdef int64_t last_used_ms
    cdef int64_t created_ms           # of the session
    cdef Py_ssize_t counted_size      # partitions of the session that FetchSessions counts
    cdef bint ended                   # the session is not in FetchSessions any more; its last request may still wait
    cdef uint32_t request             # serial number of the current request
    cdef Py_ssize_t named_count       # without session: number of partitions read from the current request so far
    # Without session: (topic, partition) -> FetchPartition, of the current request and the previous one; None while the current
    # request names the partitions of the previous one in the same order.
    cdef dict known
    cdef bint stale                   # the watched slots are no longer those of the partitions
    # the session of a follower: a request's plan covers only partitions that moved or that the request names
    cdef bint selective
    cdef int32_t session_of           # broker id of the follower
    cdef list listed                  # partitions that the plan of the current request covers
    cdef list dirty                   # partitions that moved, or of which the follower does not know everything, since their last look
    cdef list forgotten               # partitions removed by the current request, whose slots are still watched
    cdef Py_ssize_t refresh_at        # the partition that `refresh_idle` notes next
    cdef int64_t refreshed_ms         # when it noted the last one
    # the current request
    cdef int16_t version
    cdef int32_t correlation_id
    cdef int32_t min_bytes
    cdef int32_t max_bytes
    cdef int32_t replica_id
    cdef int64_t replica_epoch        # broker epoch of the follower; -1: unknown
    cdef bint replica_alive           # the broker `replica_id` is alive, as far as this broker knows
    cdef bint replicates              # the request is of another broker of the cluster: its records are not usage of a client
    cdef Access access                # of the client; None: there is no authorizer
    cdef bint may_replicate           # by the decision for this plan, if `replica_id` is a broker's
    cdef bytes rack                   # of the consumer; None: unknown, or no replica selector is configured
    cdef int listener                 # index of the listener of the client's connection
    cdef list unnoted                 # partitions whose position could not be noted because their slot's lock was taken
    cdef bint read_committed
    cdef bint incremental
    cdef object reader                # the worker's ColdReader, or None
    cdef list cold                    # look-ups that met pages outside of the page cache: (function, arguments)
    cdef int64_t entries_read         # of transaction indexes, in this turn of the loop
    cdef bint has_lists               # a planned partition has a list of aborted transactions
    cdef int warm_rounds              # how often such look-ups were passed to the reader for this request
    cdef int64_t until_ms             # deadline of the request (max wait)
    cdef int64_t planned_bytes
    cdef int64_t ready_bytes          # sum over the partitions; see PartitionState
    cdef bint planned_at_once           # a partition has an error
    # the plan, which may be made in slices
    cdef Py_ssize_t plan_at           # partitions before this index are planned
    cdef int64_t plan_budget          # remaining bytes of the response
    cdef bint plan_first              # no earlier partition contributes records
    cdef int rounds                   # conversions of the current request after which it was planned again
    cdef bint throttled               # the throttle of replication left out records of a partition
    cdef int64_t throttle_room        # remaining bytes for throttled partitions; -1: not determined yet
    cdef Client client                # metering entry of the request's client
    # quotas of the client (charging.pxd)
    cdef bint limited                 # a quota applies to the current request
    cdef bint refused                 # its response was replaced by an empty one, which names no session: end the session that it began
    cdef QuotaUse byte_quota
    cdef QuotaUse time_quota

    cdef FetchPartition next_partition(self, bytes topic, bint by_id, int32_t partition)
    cdef FetchPartition next_partition_out_of_order(self, bytes topic, bint by_id, int32_t partition)
    cdef int end_of_partitions(self) except -1
    cdef int index_partitions(self) except -1
    cdef int become_session(self) except -1
    cdef int forget(self, tuple key) except -1
    cdef int drop_forgotten(self) except -1
    cdef list planned_partitions(self)
    cdef int list_partition(self, FetchPartition p) except -1
    cdef int mark_dirty(self, FetchPartition p) except -1
    cdef int select(self, int32_t broker_id) except -1
    cdef int begin_list(self) except -1
    cdef int settle_listed(self) except -1
    cdef int count_progress_since(self, FetchContext before) except -1
    cdef int count_positions(self) except -1
    cdef void leave_positions(self) noexcept
    cdef bint enough(self) noexcept
    cdef int drop_lists(self) except -1


cdef inline bint wants_aborted(FetchContext context) noexcept:
    """Return whether the response contains the aborted transactions of the records."""
    return context.read_committed and context.version >= FIRST_WITH_BATCHES and not reads_to_log_end(context.replica_id)
