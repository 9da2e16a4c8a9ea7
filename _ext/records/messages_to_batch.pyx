"""Converts a producer's message set (formats v0 and v1) to a record batch, and recompresses a batch with another codec.

Runs in the append threads of workers. Each result has a separate buffer; the GIL is released during the conversion. Codecs are
passed in, because they belong to a higher layer.
"""

from odradek._ext.records.codecs cimport CODEC_MASK, is_codec_of_messages
from odradek._ext.records.message_sets import BadMessageError

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from odradek._ext.protocol.byte_order cimport store16, store32, store64
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.cursor cimport (
    WriteBuffer,
    buffer_free,
    buffer_init,
    write_bytes,
    write_int8,
    write_varint,
    write_varlong,
)
from odradek._ext.protocol.kafka_errors cimport (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NO_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.message_sets cimport Message, check_message
from odradek._ext.records.record_batch cimport (
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
    AT_RECORDS,
    AT_RECORD_COUNT,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    BatchInfo,
    parse_batch_header,
)


# -- opening --------------------------------------------------------------------------------------------------------


cdef int check_inner(const uint8_t* p, size_t n, const Message* wrapper, int64_t* at, int64_t* last_offset, int32_t* count) noexcept nogil:
    """Check the set inside a wrapper: valid, with the wrapper's magic, not compressed again. *at: length of the valid part."""
    cdef Message message
    cdef int error
    at[0] = 0
    count[0] = 0
    while <size_t>at[0] < n:
        error = check_message(p + at[0], n - at[0], &message)
        if error:
            return error
        if message.magic != wrapper.magic or message.codec:
            return INVALID_RECORD
        last_offset[0] = message.offset
        count[0] += 1
        at[0] += message.size
    return NO_ERROR if count[0] else INVALID_RECORD


cdef object inner_set(const uint8_t* p, const Message* wrapper, object decompress, int64_t limit, int64_t position):
    """Decompress and check the set in a wrapper."""
    cdef int64_t at = 0, last = 0
    cdef int32_t count = 0
    cdef ByteView view
    cdef const uint8_t* start
    cdef int error
    if not is_codec_of_messages(wrapper.codec):
        raise BadMessageError(UNSUPPORTED_COMPRESSION_TYPE, position)
    if wrapper.value_bytes < 1:
        raise BadMessageError(INVALID_RECORD, position, "a compressed message has no value")
    packed = PyBytes_FromStringAndSize(<const char*>p + wrapper.value_at, wrapper.value_bytes)
    plain = decompress(wrapper.codec, packed, limit, wrapper.magic)
    view = ByteView(plain)
    if view.size == 0:
        raise BadMessageError(INVALID_RECORD, position, "a compressed message contains an empty set")
    start = view.data
    with nogil:
        error = check_inner(start, view.size, wrapper, &at, &last, &count)
    if error == INVALID_RECORD:
        raise BadMessageError(error, at, "a message inside a compressed one has another format, or is compressed itself")
    if error:
        raise BadMessageError(error, at)
    return plain


# -- conversion ------------------------------------------------------------------------------------------------------

cdef struct UpState:
    WriteBuffer records
    int32_t count
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t min_timestamp
    uint8_t keyless
    uint8_t log_append_time


cdef inline int varint_bytes(int64_t value) noexcept nogil:
    cdef uint64_t zigzag = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef int put_record(UpState* state, const uint8_t* p, const Message* message) noexcept nogil:
    """Write a message as the next record of the batch."""
    cdef WriteBuffer* b = &state.records
    cdef int64_t delta, length
    cdef int32_t key = max(message.key_bytes, 0), value = max(message.value_bytes, 0)
    if message.timestamp < -1 or (message.log_append_time and message.timestamp == -1):
        return INVALID_TIMESTAMP
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
    state.log_append_time |= message.log_append_time
    return NO_ERROR


cdef int put_inner(UpState* state, const uint8_t* p, size_t n, const Message* wrapper, int64_t* at) noexcept nogil:
    """Write the messages of a checked inner set. If the wrapper has the log append time, its timestamp applies to all of them.
    """
    cdef Message message
    cdef int error
    at[0] = 0
    while <size_t>at[0] < n:
        error = check_message(p + at[0], n - at[0], &message)
        if error == NO_ERROR:
            message.log_append_time = wrapper.log_append_time
            if wrapper.log_append_time:
                message.timestamp = wrapper.timestamp
            error = put_record(state, p + at[0], &message)
        if error:
            return error
        at[0] += message.size
    return NO_ERROR


cdef class Records:
    """The result of converting a producer's message set: the uncompressed records of a batch, and the values for its header.

    codec: of the set's last compressed message; max_timestamp, min_timestamp: ms, -1 if no message has a timestamp.
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
    def payload(self) -> bytes:
        """The records as bytes, not compressed."""
        return PyBytes_FromStringAndSize(<const char*>self.state.records.data, self.state.records.size)

    @property
    def count(self) -> int:
        return self.state.count

    @property
    def base_timestamp(self) -> int:
        return self.state.base_timestamp

    @property
    def max_timestamp(self) -> int:
        return self.state.max_timestamp

    @property
    def min_timestamp(self) -> int:
        return -1 if self.state.min_timestamp == INT64_MAX else self.state.min_timestamp

    @property
    def keyless(self) -> bool:
        """Whether some message has no key."""
        return bool(self.state.keyless)

    @property
    def log_append_time(self) -> bool:
        """Whether some message has the timestamp type LogAppendTime."""
        return bool(self.state.log_append_time)


def read_produced(data, decompress, int64_t limit, int64_t max_message_bytes) -> Records:
    """Convert a producer's message set to `Records`. Its offsets, also those in wrappers, are ignored: the broker assigns
    offsets.

    decompress(codec, data, limit, magic): like `compression.decompress_old`. limit: most decompressed bytes of all wrappers
    together. max_message_bytes: largest outer message.

    :raises BadMessageError: the set is refused, with the code for the producer. Also the exceptions of `decompress`.
    """
    cdef ByteView data_view = ByteView(data)
    cdef Records out = Records()
    cdef Message message
    cdef ByteView view
    cdef int64_t at = 0, within = 0, left = limit
    cdef int error
    while at < data_view.size:
        with nogil:
            error = check_message(data_view.data + at, data_view.size - at, &message)
        if error:
            raise BadMessageError(error, at)
        if message.size > max_message_bytes:
            raise BadMessageError(MESSAGE_TOO_LARGE, at)
        if message.codec:
            plain = inner_set(data_view.data + at, &message, decompress, left, at)
            view = ByteView(plain)
            left -= view.size
            out.codec = message.codec
            with nogil:
                error = put_inner(&out.state, view.data, view.size, &message, &within)
            if error:
                raise BadMessageError(error, within)
        else:
            error = put_record(&out.state, data_view.data + at, &message)
            if error:
                raise BadMessageError(error, at)
        at += message.size
    if out.state.records.error:
        raise MemoryError("no memory for a converted message set")
    return out


# -- batches --------------------------------------------------------------------------------------------------------

cdef void seal(uint8_t* p, int64_t size) noexcept:
    cdef uint32_t crc
    with nogil:
        crc = crc32c(0, p + AT_ATTRIBUTES, size - AT_ATTRIBUTES)
    store32(p + AT_CRC, crc)


def write_batch(payload, int codec, int32_t count, int64_t base_timestamp, int64_t max_timestamp) -> bytes:
    """Build a record batch like a producer without a producer id; `payload`: its records, compressed with `codec`."""
    cdef bytes records = payload
    cdef int64_t size = BATCH_HEADER_BYTES + len(records)
    cdef bytes batch
    cdef uint8_t* p
    if size > INT32_MAX:
        raise BadMessageError(MESSAGE_TOO_LARGE, 0, f"{size} bytes are too many for a record batch")
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


def replace_payload(batch, payload, int codec) -> bytes:
    """A copy of a valid batch with its records compressed with another codec: `payload`."""
    cdef ByteView view = ByteView(batch)
    cdef bytes records = payload
    cdef int64_t size = BATCH_HEADER_BYTES + len(records)
    cdef BatchInfo info
    cdef bytes copy
    cdef uint8_t* p
    if view.size == 0 or parse_batch_header(view.data, view.size, &info):
        raise ValueError("not a record batch")
    if size > INT32_MAX:
        raise BadMessageError(MESSAGE_TOO_LARGE, 0, f"{size} bytes are too many for a record batch")
    copy = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(copy)
    memcpy(p, view.data, BATCH_HEADER_BYTES)
    store32(p + AT_BATCH_LENGTH, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
    store16(p + AT_ATTRIBUTES, <uint16_t>((info.attributes & ~CODEC_MASK) | codec))
    memcpy(p + AT_RECORDS, PyBytes_AS_STRING(records), len(records))
    seal(p, size)
    return copy
