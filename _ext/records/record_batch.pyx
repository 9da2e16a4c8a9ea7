"""Record batches (message format v2): their header, and the checks of batches from untrusted senders.

Runs in workers (produce), in the coordinator and in recovery. Pure functions over memory: no state, no lock, no
allocation; every read is bounded by the given end. Format: Kafka's DefaultRecordBatch and DefaultRecord (KIP-98).

    batch: base offset i64, batch length i32, partition leader epoch i32, magic i8, crc u32 (of all that follows it),
    attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer epoch i16,
    base sequence i32, record count i32, records

    record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key length varint (-1: null),
    key, value length varint (-1: null), value, header count varint, headers (key length varint, key, value length
    varint, value)

Error codes: CORRUPT_MESSAGE for data that was damaged on the way (length, CRC), INVALID_RECORD for an error of the sender.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.protocol.byte_order cimport load16, load32, load64, store16, store32, store64
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.kafka_errors cimport CORRUPT_MESSAGE, INVALID_RECORD, NO_ERROR, UNSUPPORTED_COMPRESSION_TYPE
from odradek._ext.records.codecs cimport CODEC_MASK, CODEC_NONE, is_codec
from odradek._ext.records.crc32c cimport crc32c

cdef enum:
    ABORT = 0                           # type of the control record that aborts a transaction

CRC_AT = AT_CRC
ATTRIBUTES_AT = AT_ATTRIBUTES
RECORDS_AT = AT_RECORDS


cdef int parse_batch_header(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    cdef int64_t length
    out.size = 0
    out.magic = -1
    out.framed = 0
    out.keyless = 0
    out.offset_delta_of_max_timestamp = -1
    out.found_max_timestamp = -1
    out.found_min_timestamp = -1
    if n < AT_CRC:
        return CORRUPT_MESSAGE
    length = <int32_t>load32(p + AT_BATCH_LENGTH)
    if length < AT_CRC - BATCH_OVERHEAD_BYTES or length > 0x7FFFFFFF - BATCH_OVERHEAD_BYTES:
        return CORRUPT_MESSAGE
    out.base_offset = <int64_t>load64(p + AT_BASE_OFFSET)
    out.size = <int32_t>(length + BATCH_OVERHEAD_BYTES)
    out.partition_leader_epoch = <int32_t>load32(p + AT_PARTITION_LEADER_EPOCH)
    out.magic = <int8_t>p[AT_MAGIC]
    if out.magic != 2:
        return INVALID_RECORD
    if n < BATCH_HEADER_BYTES or out.size < BATCH_HEADER_BYTES:
        return CORRUPT_MESSAGE
    out.crc = load32(p + AT_CRC)
    out.attributes = <int16_t>load16(p + AT_ATTRIBUTES)
    out.codec = out.attributes & CODEC_MASK
    out.log_append_time = (out.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
    out.transactional = (out.attributes & ATTRIBUTE_TRANSACTIONAL) != 0
    out.control = (out.attributes & ATTRIBUTE_CONTROL) != 0
    out.last_offset_delta = <int32_t>load32(p + AT_LAST_OFFSET_DELTA)
    out.base_timestamp = <int64_t>load64(p + AT_BASE_TIMESTAMP)
    out.max_timestamp = <int64_t>load64(p + AT_MAX_TIMESTAMP)
    out.producer_id = <int64_t>load64(p + AT_PRODUCER_ID)
    out.producer_epoch = <int16_t>load16(p + AT_PRODUCER_EPOCH)
    out.base_sequence = <int32_t>load32(p + AT_BASE_SEQUENCE)
    out.record_count = <int32_t>load32(p + AT_RECORD_COUNT)
    return NO_ERROR


cdef bint crc_matches(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    return crc32c(0, p + AT_ATTRIBUTES, info.size - AT_ATTRIBUTES) == info.crc


cdef inline int check_header(const BatchInfo* info, bint from_client) noexcept nogil:
    """Check the values in a parsed header whose CRC matches."""
    if not is_codec(info.codec):
        return UNSUPPORTED_COMPRESSION_TYPE
    if info.last_offset_delta < 0 or info.record_count < 0:
        return INVALID_RECORD
    if not from_client:
        # Compaction keeps the last offset delta of a batch from which it removed some or all records.
        if <int64_t>info.record_count > <int64_t>info.last_offset_delta + 1:
            return INVALID_RECORD
        return NO_ERROR
    if info.base_offset != 0 or <int64_t>info.record_count != <int64_t>info.last_offset_delta + 1:
        return INVALID_RECORD
    if info.control or info.attributes & ATTRIBUTE_DELETE_HORIZON:
        return INVALID_RECORD
    # Without a producer id, epoch and sequence are not checked: kafkajs and sarama send 0 there.
    if info.producer_id < -1 or (info.producer_id == -1 and info.transactional):
        return INVALID_RECORD
    if info.producer_id >= 0 and (info.producer_epoch < 0 or info.base_sequence < 0):
        return INVALID_RECORD
    return NO_ERROR


cdef int check_batch(const uint8_t* p, size_t n, bint from_client, BatchInfo* out) noexcept nogil:
    cdef int error = parse_batch_header(p, n, out)
    if error:
        return error
    if <size_t>out.size > n or not crc_matches(p, out):
        return CORRUPT_MESSAGE
    error = check_header(out, from_client)
    if error or not from_client or out.codec != CODEC_NONE:
        return error
    return check_records(p + AT_RECORDS, out.size - AT_RECORDS, out)


cdef int read_varint(const uint8_t** p, const uint8_t* end, int32_t* out) noexcept nogil:
    return varint(p, end, out)


cdef int read_varlong(const uint8_t** p, const uint8_t* end, int64_t* out) noexcept nogil:
    return varlong(p, end, out)


cdef inline int varint(const uint8_t** p, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef const uint8_t* at = p[0]
    cdef uint32_t value
    cdef uint32_t shift = 7
    cdef uint8_t byte
    if at >= end:
        return -1
    byte = at[0]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        if at >= end or shift > 28:
            return -1
        byte = at[0]
        at += 1
        if shift == 28 and byte > 0x0F:
            return -1
        value |= <uint32_t>(byte & 0x7F) << shift
        shift += 7
    p[0] = at
    out[0] = <int32_t>((value >> 1) ^ (0 - (value & 1)))
    return 0


cdef inline int varlong(const uint8_t** p, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef const uint8_t* at = p[0]
    cdef uint64_t value
    cdef uint32_t shift = 7
    cdef uint8_t byte
    if at >= end:
        return -1
    byte = at[0]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        if at >= end or shift > 63:
            return -1
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return -1
        value |= <uint64_t>(byte & 0x7F) << shift
        shift += 7
    p[0] = at
    out[0] = <int64_t>((value >> 1) ^ (0 - (value & 1)))
    return 0


cdef bint is_abort(const uint8_t* p, size_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef int32_t number
    cdef int64_t delta
    if varint(&p, end, &number) or p >= end:            # length
        return False
    p += 1                                              # attributes
    if varlong(&p, end, &delta) or varint(&p, end, &number) or varint(&p, end, &number):
        return False                                    # timestamp and offset delta, length of the key
    # The key: int16 version, int16 type.
    return number >= 4 and end - p >= 4 and load16(p + 2) == ABORT


cdef inline int skip_headers(const uint8_t** p, const uint8_t* end, int32_t count) noexcept nogil:
    """Skip `count` headers. A header has at least two bytes, so a wrong count is detected early."""
    cdef int32_t length = 0
    if count < 0 or count > (end - p[0]) // 2:
        return -1
    while count > 0:
        if varint(p, end, &length) or length < 0 or length > end - p[0]:
            return -1
        p[0] += length
        if varint(p, end, &length) or length < -1 or length > end - p[0]:
            return -1
        if length > 0:
            p[0] += length
        count -= 1
    return 0


cdef int check_records(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef int32_t expected = 0
    cdef int32_t count = out.record_count
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int64_t delta = 0
    cdef int64_t timestamp
    cdef int64_t maximum = -1
    cdef int64_t minimum = INT64_MAX
    cdef int32_t first_at_maximum = 0
    cdef uint8_t keyless = 0
    # A record has at least seven bytes.
    if count < 1 or <size_t>count > n // 7:
        return INVALID_RECORD
    while expected < count:
        if varint(&p, end, &length) or length < 6 or length > end - p:
            return INVALID_RECORD
        stop = p + length
        p += 1
        if varlong(&p, stop, &delta) or varint(&p, stop, &offset_delta) or offset_delta != expected:
            return INVALID_RECORD
        if varint(&p, stop, &length) or length < -1 or length > stop - p:
            return INVALID_RECORD
        if length < 0:
            keyless = 1
        else:
            p += length
        if varint(&p, stop, &length) or length < -1 or length > stop - p:
            return INVALID_RECORD
        if length > 0:
            p += length
        if varint(&p, stop, &length):
            return INVALID_RECORD
        if length != 0 and skip_headers(&p, stop, length):
            return INVALID_RECORD
        if p != stop:
            return INVALID_RECORD
        timestamp = <int64_t>(<uint64_t>out.base_timestamp + <uint64_t>delta)
        if timestamp > maximum:
            maximum = timestamp
            first_at_maximum = expected
        if timestamp < minimum and timestamp != -1:
            minimum = timestamp
        expected += 1
    if p != end:
        return INVALID_RECORD
    out.found_max_timestamp = maximum
    out.found_min_timestamp = minimum
    if minimum == INT64_MAX:
        out.found_min_timestamp = -1
    out.offset_delta_of_max_timestamp = first_at_maximum
    out.keyless = keyless
    out.framed = 1
    return NO_ERROR


cdef void set_max_timestamp(uint8_t* p, BatchInfo* info, int64_t timestamp, bint log_append_time) noexcept nogil:
    cdef uint16_t attributes = <uint16_t>info.attributes
    if log_append_time:
        attributes |= ATTRIBUTE_LOG_APPEND_TIME
    else:
        attributes &= <uint16_t>~<uint16_t>ATTRIBUTE_LOG_APPEND_TIME
    info.log_append_time = log_append_time
    if <uint16_t>info.attributes == attributes and info.max_timestamp == timestamp:
        return
    store16(p + AT_ATTRIBUTES, attributes)
    store64(p + AT_MAX_TIMESTAMP, <uint64_t>timestamp)
    info.attributes = <int16_t>attributes
    info.max_timestamp = timestamp
    info.crc = crc32c(0, p + AT_ATTRIBUTES, info.size - AT_ATTRIBUTES)
    store32(p + AT_CRC, info.crc)


def check(data, bint from_client=True) -> tuple[int, BatchInfo | None]:
    """Check the first batch in `data`. Returns (Kafka's error code or 0, the fields of BatchInfo by name)."""
    cdef ByteView view = ByteView(data)
    cdef BatchInfo info
    cdef int error
    cdef size_t n = view.size
    if n == 0:
        return CORRUPT_MESSAGE, None
    with nogil:
        error = check_batch(view.data, n, from_client, &info)
    return error, (info if info.magic == 2 else None)


def check_decompressed(batch, payload) -> tuple[int, BatchInfo | None]:
    """Check the framing of a compressed batch's decompressed records `payload`; returns the same values as `check`.

    batch: the whole batch, which must have passed `check`.
    """
    cdef ByteView batch_view = ByteView(batch)
    cdef ByteView payload_view = ByteView(payload)
    cdef BatchInfo info
    cdef int error = CORRUPT_MESSAGE
    if batch_view.size:
        error = parse_batch_header(batch_view.data, batch_view.size, &info)
    if error:
        return error, None
    if payload_view.size == 0:
        return INVALID_RECORD, info
    with nogil:
        error = check_records(payload_view.data, payload_view.size, &info)
    return error, info
