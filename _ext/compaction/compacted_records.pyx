"""Reading and rewriting of records for compaction; see compacted_records.pxd. Pure functions over memory."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from odradek._ext.protocol.byte_order cimport store16, store32, store64
from odradek._ext.records.record_batch cimport (
    AT_ATTRIBUTES,
    AT_BASE_TIMESTAMP,
    AT_BATCH_LENGTH,
    AT_MAX_TIMESTAMP,
    AT_RECORD_COUNT,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    read_varint,
    read_varlong,
)
from odradek._ext.storage.log_state cimport Array


cdef int add_bytes(Array* array, const void* data, int64_t n) noexcept nogil:
    cdef int64_t room
    cdef void* items
    if array.count + n > array.room:
        room = max(array.room * 2, array.count + n, <int64_t>65536)
        items = realloc(array.items, <size_t>room)
        if items == NULL:
            return -ENOMEM
        array.items = items
        array.room = room
    memcpy(<uint8_t*>array.items + array.count, data, <size_t>n)
    array.count += n
    return 0


cdef inline int put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    """Write a number that is in zigzag form. Returns its length in bytes."""
    cdef int n = 0
    while value > 0x7F:
        out[n] = <uint8_t>(value & 0x7F | 0x80)
        value >>= 7
        n += 1
    out[n] = <uint8_t>value
    return n + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef int restamp_records(const uint8_t* p, const uint8_t* end, int64_t shift, Array* out) noexcept nogil:
    cdef uint8_t[24] head
    cdef uint8_t[12] prefix
    cdef const uint8_t* stop
    cdef int32_t length = 0
    cdef int64_t delta = 0
    cdef int n, m, error
    while p < end:
        if read_varint(&p, end, &length) or length < 1 or length > end - p:
            return -1
        stop = p + length
        head[0] = p[0]
        p += 1
        if read_varlong(&p, stop, &delta):
            return -1
        n = 1 + put_varint(head + 1, zigzag(<int64_t>(<uint64_t>delta + <uint64_t>shift)))
        m = put_varint(prefix, zigzag(n + (stop - p)))
        error = add_bytes(out, prefix, m)
        if error == 0:
            error = add_bytes(out, head, n)
        if error == 0:
            error = add_bytes(out, p, stop - p)
        if error:
            return error
        p = stop
    return 0


cdef void put_header(uint8_t* out, const uint8_t* original, int64_t size, int attributes, int64_t base_timestamp,
                     int64_t max_timestamp, int32_t count) noexcept nogil:
    memcpy(out, original, BATCH_HEADER_BYTES)
    store32(out + AT_BATCH_LENGTH, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
    store16(out + AT_ATTRIBUTES, <uint16_t>attributes)
    store64(out + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp)
    store64(out + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
    store32(out + AT_RECORD_COUNT, <uint32_t>count)
