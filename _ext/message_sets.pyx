"""Message sets (formats v0 and v1): their checks as hostile input, and the conversion to and from record batches.

Runs in the append and the conversion threads of workers, in recovery and in tools. The C functions are pure; the Python ones
hold what they make in a buffer of their own and let go of the GIL while they walk. Formats: Kafka's protocol guides and
LegacyRecord; relative offsets and wrapper timestamps: KIP-31 and KIP-32. Codecs are handed in, since they live a layer above.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker._ext.crc32 cimport crc32
from broker._ext.crc32c cimport crc32c
from broker._ext.cursor cimport (
    WriteBuffer,
    buffer_free,
    buffer_init,
    write_bytes,
    write_int32,
    write_int64,
    write_int8,
    write_varint,
    write_varlong,
)
from broker._ext.records cimport (
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_BASE_SEQUENCE,
    AT_BASE_TIMESTAMP,
    AT_BATCH_LENGTH,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_MAGIC,
    AT_MAX_TIMESTAMP,
    AT_PARTITION_LEADER_EPOCH,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    AT_RECORDS,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    CODEC_LZ4,
    CODEC_MASK,
    CODEC_NONE,
    ERROR_CORRUPT_MESSAGE,
    ERROR_INVALID_RECORD,
    ERROR_INVALID_TIMESTAMP,
    ERROR_MESSAGE_TOO_LARGE,
    ERROR_NONE,
    ERROR_UNSUPPORTED_COMPRESSION_TYPE,
    BatchInfo,
    load32,
    load64,
    parse_batch_header,
    read_varint,
    read_varlong,
    store16,
    store32,
    store64,
)


cdef enum:
    RECORD_LEAST = 7                    # bytes of the smallest record of a batch

REASONS = {
    ERROR_CORRUPT_MESSAGE: "a message is damaged: its CRC or one of its lengths is wrong",
    ERROR_INVALID_RECORD: "a message is not well formed",
    ERROR_INVALID_TIMESTAMP: "a message has a timestamp below -1, or says that it has the log append time",
    ERROR_MESSAGE_TOO_LARGE: "a message is larger than the topic allows",
    ERROR_UNSUPPORTED_COMPRESSION_TYPE: "a message has a codec that its format does not know",
}


class BadMessageError(ValueError):
    """A message set, or a batch to be converted, breaks its format. `code`: Kafka's error code; `position`: bytes from the
    start of what was given (of the wrapper, for a message inside one)."""

    def __init__(self, code, position, reason=None):
        super().__init__(f"at byte {position}: {reason or REASONS.get(code, 'bad message')}")
        self.code = code
        self.position = position


# -- checks ---------------------------------------------------------------------------------------------------------

cdef int parse_message_header(const uint8_t* p, size_t n, Message* out) noexcept nogil:
    cdef int64_t size
    out.size = 0
    out.magic = -1
    if n <= MESSAGE_AT_MAGIC:
        return ERROR_CORRUPT_MESSAGE
    size = <int32_t>load32(p + MESSAGE_AT_SIZE)
    if size < MESSAGE_V0_BYTES - MESSAGE_OVERHEAD_BYTES or size > INT32_MAX - MESSAGE_OVERHEAD_BYTES:
        return ERROR_CORRUPT_MESSAGE
    if p[MESSAGE_AT_MAGIC] > 1:
        return ERROR_INVALID_RECORD
    out.size = <int32_t>(size + MESSAGE_OVERHEAD_BYTES)
    out.magic = <int8_t>p[MESSAGE_AT_MAGIC]
    if n < MESSAGE_V0_BYTES or out.magic == 1 and (n < MESSAGE_V1_BYTES or out.size < MESSAGE_V1_BYTES):
        return ERROR_CORRUPT_MESSAGE
    out.offset = <int64_t>load64(p)
    out.crc = load32(p + MESSAGE_AT_CRC)
    out.codec = p[MESSAGE_AT_ATTRIBUTES] & CODEC_MASK
    out.log_append_time = out.magic == 1 and p[MESSAGE_AT_ATTRIBUTES] & ATTRIBUTE_LOG_APPEND_TIME
    out.timestamp = <int64_t>load64(p + MESSAGE_AT_TIMESTAMP) if out.magic == 1 else -1
    return ERROR_NONE


cdef int check_message(const uint8_t* p, size_t n, Message* out) noexcept nogil:
    cdef int error = parse_message_header(p, n, out)
    cdef int64_t at
    if error:
        return error
    if <size_t>out.size > n or crc32(0, p + MESSAGE_AT_MAGIC, out.size - MESSAGE_AT_MAGIC) != out.crc:
        return ERROR_CORRUPT_MESSAGE
    at = MESSAGE_AT_TIMESTAMP + 8 * out.magic + 4
    out.key_at = <int32_t>at
    out.key_bytes = <int32_t>load32(p + at - 4)
    if out.key_bytes < -1 or out.key_bytes > out.size - at - 4:
        return ERROR_CORRUPT_MESSAGE
    if out.key_bytes > 0:
        at += out.key_bytes
    out.value_bytes = <int32_t>load32(p + at)
    at += 4
    out.value_at = <int32_t>at
    if out.value_bytes < -1 or out.size - at != (out.value_bytes if out.value_bytes > 0 else 0):
        return ERROR_CORRUPT_MESSAGE
    return ERROR_NONE


cdef int check_message_set(const uint8_t* p, size_t n, MessageSet* out) noexcept nogil:
    cdef Message message
    cdef int error
    out.size = 0
    out.first_offset = out.last_offset = out.max_timestamp = out.offset_of_max_timestamp = -1
    out.count = 0
    out.codec = CODEC_NONE
    while <size_t>out.size < n:
        error = check_message(p + out.size, n - out.size, &message)
        if error:
            return error
        if out.count == 0:
            out.first_offset = message.offset
        out.last_offset = message.offset
        if message.timestamp > out.max_timestamp:
            out.max_timestamp = message.timestamp
            out.offset_of_max_timestamp = message.offset
        if message.codec:
            out.codec = message.codec
        out.count += 1
        out.size += message.size
    return ERROR_NONE


def check_set(const uint8_t[::1] data not None):
    """The outer messages of a whole set: the fields of MessageSet by name.

    :raises BadMessageError: for the first that is cut, damaged, or of another format.
    """
    cdef MessageSet found
    cdef int error = ERROR_NONE
    found.size = 0
    if data.shape[0]:
        with nogil:
            error = check_message_set(&data[0], data.shape[0], &found)
    else:
        error = ERROR_CORRUPT_MESSAGE
    if error:
        raise BadMessageError(error, found.size)
    return found


# -- reading --------------------------------------------------------------------------------------------------------

cdef int check_inner(const uint8_t* p, size_t n, const Message* wrapper, int64_t* at, int64_t* last_offset, int32_t* count) noexcept nogil:
    """The set inside of a wrapper: sound, of its magic, not compressed again. *at: how far it is."""
    cdef Message message
    cdef int error
    at[0] = 0
    count[0] = 0
    while <size_t>at[0] < n:
        error = check_message(p + at[0], n - at[0], &message)
        if error:
            return error
        if message.magic != wrapper.magic or message.codec:
            return ERROR_INVALID_RECORD
        last_offset[0] = message.offset
        count[0] += 1
        at[0] += message.size
    return ERROR_NONE if count[0] else ERROR_INVALID_RECORD


cdef inline int check_codec(const Message* message) noexcept nogil:
    return ERROR_UNSUPPORTED_COMPRESSION_TYPE if message.codec > CODEC_LZ4 else ERROR_NONE


cdef object inner_set(const uint8_t* p, const Message* wrapper, object decompress, int64_t limit, int64_t position):
    """The decompressed set of a wrapper, checked."""
    cdef int64_t at = 0, last = 0
    cdef int32_t count = 0
    cdef const uint8_t[::1] view
    cdef const uint8_t* start
    cdef int error = check_codec(wrapper)
    if error:
        raise BadMessageError(error, position)
    if wrapper.value_bytes < 1:
        raise BadMessageError(ERROR_INVALID_RECORD, position, "a compressed message holds nothing")
    packed = PyBytes_FromStringAndSize(<const char*>p + wrapper.value_at, wrapper.value_bytes)
    plain = decompress(wrapper.codec, packed, limit, wrapper.magic)
    view = plain
    if view.shape[0] == 0:
        raise BadMessageError(ERROR_INVALID_RECORD, position, "a compressed message holds an empty set")
    start = &view[0]
    with nogil:
        error = check_inner(start, view.shape[0], wrapper, &at, &last, &count)
    if error == ERROR_INVALID_RECORD:
        raise BadMessageError(error, at, "a message inside of a compressed one has another format, or is compressed itself")
    if error:
        raise BadMessageError(error, at)
    return plain


# -- up: to a record batch ------------------------------------------------------------------------------------------

cdef struct UpState:
    WriteBuffer records
    int32_t count
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t min_timestamp
    uint8_t keyless


cdef inline int varint_bytes(int64_t value) noexcept nogil:
    cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef int put_record(UpState* state, const uint8_t* p, const Message* message) noexcept nogil:
    """A message as the next record of the batch."""
    cdef WriteBuffer* b = &state.records
    cdef int64_t delta, length
    cdef int32_t key = max(message.key_bytes, 0), value = max(message.value_bytes, 0)
    if message.log_append_time or message.timestamp < -1:
        return ERROR_INVALID_TIMESTAMP
    if state.count == 0:
        state.base_timestamp = message.timestamp
    delta = message.timestamp - state.base_timestamp
    length = 1 + varint_bytes(delta) + varint_bytes(state.count) + varint_bytes(message.key_bytes) + key + \
        varint_bytes(message.value_bytes) + value + 1
    write_varint(b, <int32_t>length)
    write_int8(b, 0)
    write_varlong(b, delta)
    write_varint(b, state.count)
    write_varint(b, message.key_bytes)
    write_bytes(b, p + message.key_at, key)
    write_varint(b, message.value_bytes)
    write_bytes(b, p + message.value_at, value)
    write_varint(b, 0)
    state.count += 1
    state.max_timestamp = max(state.max_timestamp, message.timestamp)
    if message.timestamp >= 0:
        state.min_timestamp = min(state.min_timestamp, message.timestamp)
    state.keyless |= message.key_bytes < 0
    return ERROR_NONE


cdef int put_inner(UpState* state, const uint8_t* p, size_t n, int64_t* at) noexcept nogil:
    """The messages of a checked inner set."""
    cdef Message message
    cdef int error
    at[0] = 0
    while <size_t>at[0] < n:
        error = check_message(p + at[0], n - at[0], &message)
        if error == ERROR_NONE:
            error = put_record(state, p + at[0], &message)
        if error:
            return error
        at[0] += message.size
    return ERROR_NONE


cdef class Records:
    """What became of a producer's message set: the plain records of a batch, and what its header needs.

    codec: of the set's last compressed message; max_timestamp, min_timestamp: ms, -1 when no message has one.
    """
    cdef UpState state
    cdef readonly int codec

    def __cinit__(self):
        buffer_init(&self.state.records)
        self.state.max_timestamp = self.state.base_timestamp = -1
        self.state.min_timestamp = INT64_MAX

    def __dealloc__(self):
        buffer_free(&self.state.records)

    @property
    def payload(self):
        """The records, not compressed."""
        return PyBytes_FromStringAndSize(<const char*>self.state.records.data, self.state.records.size)

    @property
    def count(self):
        return self.state.count

    @property
    def base_timestamp(self):
        return self.state.base_timestamp

    @property
    def max_timestamp(self):
        return self.state.max_timestamp

    @property
    def min_timestamp(self):
        return -1 if self.state.min_timestamp == INT64_MAX else self.state.min_timestamp

    @property
    def keyless(self):
        """Whether a message has no key."""
        return bool(self.state.keyless)


def read_produced(const uint8_t[::1] data not None, decompress, int64_t limit, int64_t max_message_bytes):
    """A producer's message set as `Records`. Its offsets mean nothing, nor do those in wrappers: the broker assigns them.

    decompress(codec, data, limit, magic): as `compression.decompress_old`. limit: bytes that all wrappers together may open to.
    max_message_bytes: the largest outer message.

    :raises BadMessageError: refused, with the code for the producer; and whatever `decompress` raises.
    """
    cdef Records out = Records()
    cdef Message message
    cdef const uint8_t[::1] view
    cdef int64_t at = 0, within = 0, left = limit
    cdef int error
    while at < data.shape[0]:
        with nogil:
            error = check_message(&data[at], data.shape[0] - at, &message)
        if error:
            raise BadMessageError(error, at)
        if message.size > max_message_bytes:
            raise BadMessageError(ERROR_MESSAGE_TOO_LARGE, at)
        if message.log_append_time:
            raise BadMessageError(ERROR_INVALID_TIMESTAMP, at)
        if message.codec:
            plain = inner_set(&data[at], &message, decompress, left, at)
            view = plain
            left -= view.shape[0]
            out.codec = message.codec
            with nogil:
                error = put_inner(&out.state, &view[0], view.shape[0], &within)
            if error:
                raise BadMessageError(error, within)
        else:
            error = put_record(&out.state, &data[at], &message)
            if error:
                raise BadMessageError(error, at)
        at += message.size
    if out.state.records.error:
        raise MemoryError("no memory for a converted message set")
    return out


def write_batch(payload, int codec, int32_t count, int64_t base_timestamp, int64_t max_timestamp):
    """A record batch as a producer without producer id sends it; `payload`: its records, compressed by `codec`."""
    cdef bytes records = payload
    cdef int64_t size = BATCH_HEADER_BYTES + len(records)
    cdef bytes batch
    cdef uint8_t* p
    if size > INT32_MAX:
        raise BadMessageError(ERROR_MESSAGE_TOO_LARGE, 0, f"{size} bytes are no record batch")
    batch = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(batch)
    store64(p + AT_BASE_OFFSET, 0)
    store32(p + AT_BATCH_LENGTH, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
    store32(p + AT_PARTITION_LEADER_EPOCH, 0xFFFFFFFF)
    p[AT_MAGIC] = 2
    store16(p + AT_ATTRIBUTES, <uint16_t>codec)
    store32(p + AT_LAST_OFFSET_DELTA, <uint32_t>(count - 1))
    store64(p + AT_BASE_TIMESTAMP, <uint64_t>base_timestamp)
    store64(p + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
    store64(p + AT_PRODUCER_ID, <uint64_t>-1)
    store16(p + AT_PRODUCER_EPOCH, <uint16_t>-1)
    store32(p + AT_BASE_SEQUENCE, <uint32_t>-1)
    store32(p + AT_RECORD_COUNT, <uint32_t>count)
    memcpy(p + AT_RECORDS, PyBytes_AS_STRING(records), len(records))
    seal(p, size)
    return batch


def replace_payload(const uint8_t[::1] batch not None, payload, int codec):
    """A copy of a sound batch with its records compressed by another codec: `payload`."""
    cdef bytes records = payload
    cdef int64_t size = BATCH_HEADER_BYTES + len(records)
    cdef BatchInfo info
    cdef bytes copy
    cdef uint8_t* p
    if batch.shape[0] == 0 or parse_batch_header(&batch[0], batch.shape[0], &info):
        raise ValueError("not a record batch")
    if size > INT32_MAX:
        raise BadMessageError(ERROR_MESSAGE_TOO_LARGE, 0, f"{size} bytes are no record batch")
    copy = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(copy)
    memcpy(p, &batch[0], BATCH_HEADER_BYTES)
    store32(p + AT_BATCH_LENGTH, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
    store16(p + AT_ATTRIBUTES, <uint16_t>((info.attributes & ~CODEC_MASK) | codec))
    memcpy(p + AT_RECORDS, PyBytes_AS_STRING(records), len(records))
    seal(p, size)
    return copy


cdef void seal(uint8_t* p, int64_t size) noexcept:
    cdef uint32_t crc
    with nogil:
        crc = crc32c(0, p + AT_ATTRIBUTES, size - AT_ATTRIBUTES)
    store32(p + AT_CRC, crc)


# -- down: to a message set -----------------------------------------------------------------------------------------

cdef struct Cut:                        # how far a batch was converted
    int64_t first_offset                # of the first message
    int64_t last_offset                 # of the last
    int64_t max_timestamp
    int32_t count
    bint whole                          # to its end


cdef void put_message(WriteBuffer* b, int magic, int codec, bint log_append_time, int64_t offset, int64_t timestamp,
                      const uint8_t* key, int32_t key_bytes, const uint8_t* value, int32_t value_bytes) noexcept nogil:
    cdef Py_ssize_t start = b.size
    cdef uint8_t* p
    write_int64(b, offset)
    write_int32(b, (MESSAGE_V1_BYTES if magic else MESSAGE_V0_BYTES) - MESSAGE_OVERHEAD_BYTES + max(key_bytes, 0) +
                max(value_bytes, 0))
    write_int32(b, 0)
    write_int8(b, magic)
    write_int8(b, codec | (ATTRIBUTE_LOG_APPEND_TIME if log_append_time and magic else 0))
    if magic:
        write_int64(b, timestamp)
    write_int32(b, key_bytes)
    write_bytes(b, key, max(key_bytes, 0))
    write_int32(b, value_bytes)
    write_bytes(b, value, max(value_bytes, 0))
    if not b.error:
        p = b.data + start
        store32(p + MESSAGE_AT_CRC, crc32(0, p + MESSAGE_AT_MAGIC, b.size - start - MESSAGE_AT_MAGIC))


cdef int put_records(WriteBuffer* b, const uint8_t* p, size_t n, const BatchInfo* info, int magic, int64_t from_offset,
                     int64_t limit, Cut* cut) noexcept nogil:
    """The records p[0:n] of a batch as messages.

    Those of a compressed batch all, with the offsets that they have in a wrapper; of another one those from `from_offset` on,
    until they take more than `limit` bytes.
    """
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int32_t length = 0, offset_delta = 0, key_bytes = 0, value_bytes = 0
    cdef int64_t delta = 0, timestamp, offset
    cdef Py_ssize_t before
    cut.count = 0
    cut.whole = False
    cut.max_timestamp = cut.first_offset = cut.last_offset = -1
    for _ in range(info.record_count):
        if read_varint(&p, end, &length) or length < RECORD_LEAST - 1 or length > end - p:
            return ERROR_CORRUPT_MESSAGE
        stop = p + length
        p += 1
        if read_varlong(&p, stop, &delta) or read_varint(&p, stop, &offset_delta) or offset_delta < 0:
            return ERROR_CORRUPT_MESSAGE
        if read_varint(&p, stop, &key_bytes) or key_bytes < -1 or key_bytes > stop - p:
            return ERROR_CORRUPT_MESSAGE
        key = p
        p += max(key_bytes, 0)
        if read_varint(&p, stop, &value_bytes) or value_bytes < -1 or value_bytes > stop - p:
            return ERROR_CORRUPT_MESSAGE
        value = p
        p = stop                        # headers have no place in a message
        offset = info.base_offset + offset_delta
        timestamp = info.max_timestamp if info.log_append_time else <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>delta)
        if <int64_t>MESSAGE_V1_BYTES + max(key_bytes, 0) + max(value_bytes, 0) > INT32_MAX:
            return ERROR_MESSAGE_TOO_LARGE
        if info.codec == CODEC_NONE and offset < from_offset:
            continue
        if cut.count == 0:
            cut.first_offset = offset
        before = b.size
        put_message(b, magic, CODEC_NONE, info.log_append_time,
                    offset - cut.first_offset if info.codec and magic else offset, timestamp, key, key_bytes, value, value_bytes)
        if info.codec == CODEC_NONE and cut.count and b.size > limit:
            b.size = before
            return ERROR_NONE
        cut.count += 1
        cut.last_offset = offset
        cut.max_timestamp = max(cut.max_timestamp, timestamp)
    cut.whole = True
    return ERROR_NONE


def batch_to_messages(const uint8_t[::1] batch not None, plain, int magic, int64_t from_offset, int64_t limit, compress):
    """A record batch as messages of format `magic` (0 or 1): (bytes, the offset from which to go on).

    batch: a whole batch, not a control batch. plain: its records, not compressed. from_offset, limit: of an uncompressed
    batch only messages from this offset on are made, one at least and no more than fit into `limit` bytes. A compressed one
    becomes one wrapper with the same codec, by compress(codec, set, magic).

    :raises BadMessageError: the records break their format, or the codec has no place in a message (zstd).
    """
    cdef const uint8_t[::1] view = plain
    cdef WriteBuffer b
    cdef BatchInfo info
    cdef Cut cut
    cdef int error = ERROR_CORRUPT_MESSAGE
    cdef bytes packed
    if batch.shape[0]:
        error = parse_batch_header(&batch[0], batch.shape[0], &info)
    if error:
        raise BadMessageError(error, 0)
    if info.codec > CODEC_LZ4:
        raise BadMessageError(ERROR_UNSUPPORTED_COMPRESSION_TYPE, 0)
    if view.shape[0] == 0:
        return b"", info.base_offset + info.last_offset_delta + 1
    buffer_init(&b)
    try:
        with nogil:
            error = put_records(&b, &view[0], view.shape[0], &info, magic, from_offset, limit, &cut)
        if error:
            raise BadMessageError(error, 0, "the records of a stored batch cannot be read")
        if cut.count and info.codec:
            packed = compress(info.codec, PyBytes_FromStringAndSize(<const char*>b.data, b.size), magic)
            b.size = 0
            put_message(&b, magic, info.codec, info.log_append_time, cut.last_offset, cut.max_timestamp, NULL, -1,
                        <const uint8_t*>PyBytes_AS_STRING(packed), <int32_t>len(packed))
        if b.error:
            raise MemoryError("no memory for a converted record batch")
        following = info.base_offset + info.last_offset_delta + 1 if cut.whole else cut.last_offset + 1
        return PyBytes_FromStringAndSize(<const char*>b.data, b.size) if cut.count else b"", following
    finally:
        buffer_free(&b)


def write_message(int magic, int codec, bint log_append_time, int64_t offset, int64_t timestamp, key, value):
    """One message; `key`, `value`: bytes or None."""
    cdef WriteBuffer b
    cdef bytes key_bytes = key
    cdef bytes value_bytes = value
    buffer_init(&b)
    try:
        put_message(&b, magic, codec, log_append_time, offset, timestamp,
                    NULL if key_bytes is None else <const uint8_t*>PyBytes_AS_STRING(key_bytes),
                    -1 if key_bytes is None else <int32_t>len(key_bytes),
                    NULL if value_bytes is None else <const uint8_t*>PyBytes_AS_STRING(value_bytes),
                    -1 if value_bytes is None else <int32_t>len(value_bytes))
        if b.error:
            raise MemoryError("no memory for a message")
        return PyBytes_FromStringAndSize(<const char*>b.data, b.size)
    finally:
        buffer_free(&b)
