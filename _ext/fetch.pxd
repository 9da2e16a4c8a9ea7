"""Fetch requests: sessions, long polls, and responses whose records go out of the files by sendfile."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from broker._ext.connection cimport Connection, DataLoop, Pending
from broker._ext.cursor cimport Cursor, WriteBuffer
from broker._ext.metering cimport Client
from broker._ext.segment_list cimport OpenSegment, SegmentCache, SegmentList
from broker._ext.shared cimport Commit, Slot
from broker._ext.topics cimport Topic, TopicDirectory
from broker._ext.waiting cimport Waiter, WaitingRoom


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
    # of a response in an old format
    cdef int64_t extent               # bytes of the segment from `position` to where reading must end
    cdef int64_t allowed              # bytes of the response
    # metering
    cdef Topic counted                # that of the slot; None: not known
    cdef bint asked                   # by the request at hand
    cdef bint served                  # records from `fetch_offset` on were given, as far as to `served_limit`
    cdef int64_t served_limit
    cdef int64_t limit                # of the plan
    cdef int64_t moved                # how far this request goes on from what was given
    cdef object converted             # what takes the place of the slice of the file; None: the slice goes out as it is


cdef class FetchWait(Waiter):
    """A session, or the partitions of one request without a session; parked while `pending` is set."""
    cdef Fetching fetching
    cdef list partitions              # of FetchPartition, in the order to serve them
    cdef dict by_key                  # (topic, partition) -> FetchPartition; None without session
    cdef int32_t session_id           # 0: no session
    cdef int32_t epoch                # of the next incremental request
    cdef int64_t last_used_ms
    cdef list watched                 # slots at which the room knows it
    cdef bint stale                   # the partitions or their slots are others than those in `watched`
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
    cdef bint warming
    cdef int64_t until_ms             # of the request
    cdef int64_t planned_bytes
    cdef Client client                # whose request
    cdef bint planned_error

    cdef int plan(self) except -1
    cdef bint enough(self) noexcept
    cdef int count_moves(self, FetchWait before) except -1
    cdef int count_positions(self) except -1
    cdef int warm(self) except -1
    cdef int go_on(self) except -1
    cdef int watch_all(self) except -1
    cdef int arm_all(self) noexcept
    cdef int stop_waiting(self) except -1
    cdef int put(self, FetchPartition p) except -1
    cdef int forget(self, tuple key) except -1
    cdef int drop_forgotten(self) except -1
    cdef int unwatch_all(self) except -1
    cdef int answer(self) except -1


cdef class Fetching:
    cdef TopicDirectory topics
    cdef WaitingRoom room
    cdef SegmentCache cache
    cdef object down_convert          # callable(parts, done): convert on a thread, then call done(result) in the loop
    cdef list log_dirs                # paths, bytes
    cdef dict reported                # slot -> when its unreadable log was last told of, ms
    cdef dict segment_lists           # slot -> (incarnation, SegmentList)
    cdef dict sessions                # id -> FetchWait
    cdef int32_t next_session
    cdef int32_t session_mark         # this worker's bits of its session ids
    cdef readonly int max_sessions
    cdef readonly int32_t max_bytes   # fetch.max.bytes
    cdef WriteBuffer response
    cdef Client asking                # whose request is being read
    cdef object last_name
    cdef object last_topic
    cdef readonly int64_t bytes_out
    cdef readonly int64_t responses

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef FetchWait begin(self, int32_t session_id, int32_t epoch, bint by_id, int16_t* error)
    cdef FetchWait new_session(self)
    cdef int read_partitions(self, FetchWait wait, int16_t version, Cursor* body) except -1
    cdef int read_forgotten(self, FetchWait wait, int16_t version, Cursor* body) except -1
    cdef bytes same_name(self, const uint8_t* name, int64_t length)
    cdef int report(self, uint32_t known, Slot* slot, failure) except -1
    cdef int cold_look_up(self, FetchWait wait, OpenSegment segment, int index_fd, int64_t entries, int64_t size, int64_t offset) except -1
    cdef int64_t first_batch_bytes(self, FetchPartition p, FetchWait wait) except -1
    cdef bint place_in_ring(self, FetchPartition p, Slot* slot, Commit* commit) noexcept
    cdef int64_t position_of(self, SegmentList segments, int64_t base, Commit* commit, int64_t offset, FetchWait wait) except -1
    cdef int resolve(self, FetchPartition p) except -1
    cdef SegmentList segments_of(self, uint32_t slot, Slot* at)
    cdef int plan_partition(self, FetchPartition p, FetchWait wait, int64_t* budget, bint* first) except -1
    cdef int look_at(self, FetchPartition p, FetchWait wait, int64_t* budget, bint* first) except -1
    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchWait wait) except -1
    cdef int start_conversion(self, FetchWait wait, Pending pending) except -1
    cdef int converted(self, FetchWait wait, Pending pending, list parts, object result) except -1
    cdef int write(self, DataLoop out, FetchWait wait) except -1
    cdef int count_served(self, FetchWait wait, list included, list cuts) except -1
    cdef int write_error(self, DataLoop out, Client* client, int16_t version, int32_t correlation_id, int16_t error) except -1
    cdef int end_session(self, FetchWait session) except -1
    cdef int answer_parked(self, Connection connection) except -1
