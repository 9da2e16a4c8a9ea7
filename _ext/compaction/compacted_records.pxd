"""Records as compaction reads and rewrites them: key, tombstone, new timestamp deltas, new batch header."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from odradek._ext.records.record_batch cimport ATTRIBUTE_DELETE_HORIZON, BatchInfo, read_varint, read_varlong
from odradek._ext.storage.log_state cimport Array


cdef struct RecordKey:            # the fields of a record on which compaction decides
    const uint8_t* key
    int32_t key_bytes             # -1: null
    int32_t offset_delta
    int64_t timestamp_delta
    bint tombstone


cdef inline int64_t last_offset_of(const BatchInfo* info) noexcept nogil:
    return info.base_offset + info.last_offset_delta


cdef inline int64_t delete_horizon(const BatchInfo* info) noexcept nogil:
    """The time from which tombstones and idle markers of the batch may be removed (KIP-534); -1 if it is not set yet."""
    return info.base_timestamp if info.attributes & ATTRIBUTE_DELETE_HORIZON else -1


cdef inline int read_key(const uint8_t** p, const uint8_t* end, RecordKey* out) noexcept nogil:
    """Step over the record at *p. Returns 0, or -1 if its framing is invalid."""
    cdef const uint8_t* stop
    cdef int32_t length = 0
    if read_varint(p, end, &length) or length < 1 or length > end - p[0]:
        return -1
    stop = p[0] + length
    p[0] += 1
    if read_varlong(p, stop, &out.timestamp_delta) or read_varint(p, stop, &out.offset_delta) \
            or read_varint(p, stop, &out.key_bytes):
        return -1
    if out.key_bytes < -1 or out.key_bytes > stop - p[0] or out.offset_delta < 0:
        return -1
    out.key = p[0]
    if out.key_bytes > 0:
        p[0] += out.key_bytes
    if read_varint(p, stop, &length) or length < -1 or length > stop - p[0]:
        return -1
    out.tombstone = length < 0
    p[0] = stop
    return 0


# Append to an array of bytes. Returns 0, or -ENOMEM.
cdef int add_bytes(Array* array, const void* data, int64_t n) noexcept nogil

# Copy the records p[0:] with `shift` added to their timestamp deltas, because their batch's base timestamp changed. Returns 0, -1,
# or -ENOMEM.
cdef int restamp_records(const uint8_t* p, const uint8_t* end, int64_t shift, Array* out) noexcept nogil

# Write the header of a rewritten batch; the caller adds the CRC after it has written the records.
cdef void put_header(uint8_t* out, const uint8_t* original, int64_t size, int attributes, int64_t base_timestamp,
                     int64_t max_timestamp, int32_t count) noexcept nogil
