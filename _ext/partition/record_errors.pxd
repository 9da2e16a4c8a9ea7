"""Which records of a batch break the topic's rules: the record errors of a Produce response (KIP-467)."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD, INVALID_TIMESTAMP, NO_ERROR
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.slot cimport Slot


cdef enum:
    MOST_RECORD_ERRORS = 10000            # most errors in one response: a record of seven bytes must not cause a hundred bytes


# The limits for the timestamps that a topic accepts at the wall clock time `wall_ms`.
cdef inline int64_t earliest_timestamp(Slot* slot, int64_t wall_ms) noexcept nogil:
    return wall_ms - slot.settings.timestamp_before_max_ms      # both are positive: no overflow


cdef inline int64_t latest_timestamp(Slot* slot, int64_t wall_ms) noexcept nogil:
    if slot.settings.timestamp_after_max_ms > INT64_MAX - wall_ms:
        return INT64_MAX
    return wall_ms + slot.settings.timestamp_after_max_ms


# Returns NO_ERROR, or a code if records that passed `check_records` break a rule of the topic. The code is provisional:
# `find_record_errors` checks each record and decides.
cdef inline int check_rules(Slot* slot, const BatchInfo* info, int64_t wall_ms) noexcept nogil:
    if slot.settings.compact and info.keyless:
        return INVALID_RECORD
    if info.log_append_time and (slot.settings.log_append_time or info.max_timestamp == -1):
        return INVALID_TIMESTAMP
    if slot.settings.log_append_time:
        return NO_ERROR
    if info.found_max_timestamp > latest_timestamp(slot, wall_ms):
        return INVALID_TIMESTAMP
    # A minimum of -1 means records without a timestamp.
    if info.found_min_timestamp < earliest_timestamp(slot, wall_ms) and info.found_min_timestamp != -1:
        return INVALID_TIMESTAMP
    return NO_ERROR


# The errors of a batch, record by record.
cdef class RecordErrors:
    cdef readonly int code            # Kafka's error code of the batch
    cdef readonly int32_t total       # records that break a rule
    cdef readonly list listed         # (index in the batch, message in UTF-8), ascending
    cdef readonly bytes message       # of the batch
    # Write the fields `RecordErrors` and `ErrorMessage` of a Produce response.
    cdef int write(self, WriteBuffer* out, bint flexible) except -1


# p[0:n]: the batch's uncompressed records, which have passed `check_records`. `most`: maximum number of errors to list.
# `first_decides`: the first bad record determines the code of the batch, as if each record had come in a separate batch. None if no
# record is bad.
cdef RecordErrors find_record_errors(const uint8_t* p, int64_t n, const BatchInfo* info, Slot* slot, int64_t wall_ms, int32_t most,
                                     bint first_decides)
