"""Reads the responses of the leader to a replica fetcher; see replica_responses.pxd.

Called by the fetcher's thread without the GIL, which holds no lock. The records are appended from the receive buffer.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.follower_append cimport append_as_follower
from odradek._ext.partition.log_writing cimport AppendOutcome
from odradek._ext.partition.lost_tails cimport note_caught_up
from odradek._ext.partition.slot_access cimport APPEND_BEFORE_LOG, APPEND_BUSY, APPEND_OK, AppendResult
from odradek._ext.protocol.cursor cimport (
    Cursor,
    cursor_init,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_length,
    read_string_length,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
)
from odradek._ext.replication.fetched_partitions cimport (
    EVENT_APPEND,
    EVENT_DIVERGING,
    EVENT_ERROR,
    NO_PLACE,
    FetchedPartition,
    FetchedPartitions,
)
from odradek._ext.replication.replica_requests cimport FETCH_BY_ID
from odradek._ext.replication.throttled_partitions cimport is_throttled
from odradek._ext.shm.atomics cimport store_relaxed_i64
from odradek._ext.shm.clock cimport coarse_ms, now_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport SPINS_OF_THREAD
from odradek._ext.shm.replication_quota cimport QUOTA_FOLLOWER, count_reassigned, is_adding, quota_record
from odradek._ext.shm.slot cimport TAIL_COMPLETE, Slot, slot_at


cdef enum:
    DIVERGING_TAG = 0


cdef struct PartitionPart:        # of a response
    int32_t partition
    int16_t error
    int64_t high_watermark
    int64_t log_start_offset
    int32_t diverging_epoch       # -1: the logs do not diverge
    int64_t diverging_end
    int64_t size                  # of the records
    const uint8_t* records


cdef int take_response(FetchedPartitions partitions, const uint8_t* data, int64_t size, int16_t version, int32_t correlation_id,
                       FetchResponse* out, FetchTotals* totals) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t topics
    cursor_init(&cursor, data, size)
    out.busy = False
    out.correlation_id = read_int32(&cursor)
    skip_tagged_fields(&cursor)
    read_int32(&cursor)                 # throttle time
    out.error = read_int16(&cursor)
    out.session_id = read_int32(&cursor)
    topics = read_length(&cursor, True)
    if cursor.error or out.correlation_id != correlation_id or topics < 0:
        return -1
    totals.responses += 1
    while topics > 0:
        take_topic(&cursor, partitions, version, out, totals)
        if cursor.error:
            return -1
        topics -= 1
    skip_tagged_fields(&cursor)
    return -1 if cursor.error or cursor.ptr != cursor.end else 0


cdef void take_topic(Cursor* cursor, FetchedPartitions partitions, int16_t version, FetchResponse* out,
                     FetchTotals* totals) noexcept nogil:
    cdef const uint8_t* key
    cdef int64_t size, count
    cdef uint32_t topic = NO_PLACE, place
    cdef PartitionPart part
    if version >= FETCH_BY_ID:
        key = read_uuid(cursor)
        if key != NULL:
            topic = partitions.find_topic_by_id(key)
    else:
        size = read_string_length(cursor, True)
        key = read_bytes(cursor, max(size, <int64_t>0))
        if key != NULL:
            topic = partitions.find_topic_by_name(key, max(size, <int64_t>0))
    count = read_length(cursor, True)
    while count > 0 and cursor.error == 0:
        read_part(cursor, &part)
        if cursor.error:
            return
        place = partitions.find(topic, part.partition) if topic != NO_PLACE else NO_PLACE
        if place == NO_PLACE:
            totals.unknown += 1
        elif partitions.partitions[place].active and partitions.partitions[place].sent:
            take_part(partitions, &partitions.partitions[place], &part, out, totals)
        count -= 1
    skip_tagged_fields(cursor)


cdef void read_part(Cursor* cursor, PartitionPart* part) noexcept nogil:
    cdef int64_t aborted
    cdef uint32_t tags, tag, tag_bytes
    part.partition = read_int32(cursor)
    part.error = read_int16(cursor)
    part.high_watermark = read_int64(cursor)
    read_int64(cursor)                  # last stable offset: computed from the records
    part.log_start_offset = read_int64(cursor)
    aborted = read_length(cursor, True)
    while aborted > 0 and cursor.error == 0:
        read_bytes(cursor, 16)
        skip_tagged_fields(cursor)
        aborted -= 1
    read_int32(cursor)                  # preferred read replica
    part.size = max(read_length(cursor, True), <int64_t>0)
    part.records = read_bytes(cursor, part.size)
    part.diverging_epoch = -1
    part.diverging_end = -1
    tags = read_uvarint(cursor)
    while tags > 0 and cursor.error == 0:
        tag = read_uvarint(cursor)
        tag_bytes = read_uvarint(cursor)
        if tag == DIVERGING_TAG and tag_bytes >= 12:
            part.diverging_epoch = read_int32(cursor)
            part.diverging_end = read_int64(cursor)
            tag_bytes -= 12
        read_bytes(cursor, tag_bytes)
        tags -= 1


cdef inline void note_lag(uint32_t slot, int64_t lag) noexcept nogil:
    """For metrics only: without a lock, so the lag of a partition that has lost its slot may remain until the next response."""
    cdef Slot* followed = slot_at(slot)
    lag = max(lag, <int64_t>0)
    if followed.fetch_lag != lag:
        store_relaxed_i64(&followed.fetch_lag, lag)


cdef void take_part(FetchedPartitions partitions, FetchedPartition* fetched, const PartitionPart* part, FetchResponse* out,
                    FetchTotals* totals) noexcept nogil:
    """Append the records of one partition, or note what the thread must decide about it."""
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef bint throttled = is_throttled(fetched)     # before the response, which may show that it is in sync
    if part.error != 0:
        partitions.add_event(fetched, EVENT_ERROR, part.error, 0)
        return
    if part.diverging_epoch >= 0:
        partitions.add_event(fetched, EVENT_DIVERGING, part.diverging_epoch, part.diverging_end)
        return
    outcome.log_end_offset = fetched.fetch_offset
    result = append_as_follower(fetched.slot, fetched.incarnation, fetched.leader_epoch, <uint8_t*>part.records, part.size,
                                part.high_watermark, part.log_start_offset, now_ms(), SPINS_OF_THREAD, &outcome)
    if throttled and (result == APPEND_OK or outcome.log_end_offset != fetched.fetch_offset):
        quota_record(QUOTA_FOLLOWER, part.size, coarse_ms())
    if result == APPEND_OK:
        fetched.leader_high_watermark = part.high_watermark
        note_lag(fetched.slot, part.high_watermark - outcome.log_end_offset)
        if slot_at(fetched.slot).lost_tail != TAIL_COMPLETE and outcome.log_end_offset >= part.high_watermark:
            note_caught_up(fetched.slot, fetched.incarnation, fetched.leader_epoch, part.high_watermark)
        if outcome.log_end_offset != fetched.fetch_offset:
            fetched.fetch_offset = outcome.log_end_offset
            fetched.sent = False
        totals.records_bytes += part.size
        if part.size and is_adding(slot_at(fetched.slot), region().header.broker_id):
            count_reassigned(QUOTA_FOLLOWER, part.size)
    elif result == APPEND_BUSY:
        fetched.sent = False            # the next request contains the log end that was reached
        out.busy = True
    else:
        partitions.add_event(fetched, EVENT_APPEND, result,
                             outcome.restart_at if result == APPEND_BEFORE_LOG else outcome.error_number)
