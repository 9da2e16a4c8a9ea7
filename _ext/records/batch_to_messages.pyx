"""Converts a record batch to a message set of format v0 or v1, for an old consumer.

Runs in the conversion threads of workers. Each result has a separate buffer; the GIL is released during the conversion. Codecs
are passed in, because they belong to a higher layer.
"""

from odradek._ext.records.codecs cimport CODEC_NONE, is_codec_of_messages
from odradek._ext.records.message_sets import BadMessageError

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t, uint8_t

from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.cursor cimport (
    WriteBuffer,
    buffer_free,
    buffer_init,
    write_bytes,
    write_int32,
    write_int64,
    write_int8,
)
from odradek._ext.protocol.kafka_errors cimport CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, NO_ERROR, UNSUPPORTED_COMPRESSION_TYPE
from odradek._ext.records.crc32 cimport crc32
from odradek._ext.records.message_sets cimport (
    MESSAGE_AT_CRC,
    MESSAGE_AT_MAGIC,
    MESSAGE_OVERHEAD_BYTES,
    MESSAGE_V0_BYTES,
    MESSAGE_V1_BYTES,
)
from odradek._ext.records.record_batch cimport (
    ATTRIBUTE_LOG_APPEND_TIME,
    BatchInfo,
    parse_batch_header,
    read_varint,
    read_varlong,
)


cdef enum:
    RECORD_LEAST = 7                    # size of the smallest record of a batch


cdef struct Conversion:                 # the converted part of a batch
    int64_t first_offset                # of the first message
    int64_t last_offset                 # of the last
    int64_t max_timestamp
    int32_t count
    bint whole                          # up to the end of the batch


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
                     int64_t limit, Conversion* conversion) noexcept nogil:
    """Write the records p[0:n] of a batch as messages.

    All records of a compressed batch, with the offsets that they have in a wrapper. Of an uncompressed batch those from
    `from_offset` on, up to `limit` bytes.
    """
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int32_t length = 0, offset_delta = 0, key_bytes = 0, value_bytes = 0
    cdef int64_t delta = 0, timestamp, offset
    cdef Py_ssize_t before
    conversion.count = 0
    conversion.whole = False
    conversion.max_timestamp = conversion.first_offset = conversion.last_offset = -1
    for _ in range(info.record_count):
        if read_varint(&p, end, &length) or length < RECORD_LEAST - 1 or length > end - p:
            return CORRUPT_MESSAGE
        stop = p + length
        p += 1
        if read_varlong(&p, stop, &delta) or read_varint(&p, stop, &offset_delta) or offset_delta < 0:
            return CORRUPT_MESSAGE
        if read_varint(&p, stop, &key_bytes) or key_bytes < -1 or key_bytes > stop - p:
            return CORRUPT_MESSAGE
        key = p
        p += max(key_bytes, 0)
        if read_varint(&p, stop, &value_bytes) or value_bytes < -1 or value_bytes > stop - p:
            return CORRUPT_MESSAGE
        value = p
        p = stop                        # messages have no headers
        offset = info.base_offset + offset_delta
        timestamp = info.max_timestamp if info.log_append_time else <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>delta)
        if <int64_t>MESSAGE_V1_BYTES + max(key_bytes, 0) + max(value_bytes, 0) > INT32_MAX:
            return MESSAGE_TOO_LARGE
        if info.codec == CODEC_NONE and offset < from_offset:
            continue
        if conversion.count == 0:
            conversion.first_offset = offset
        before = b.size
        put_message(b, magic, CODEC_NONE, info.log_append_time,
                    offset - conversion.first_offset if info.codec and magic else offset, timestamp, key, key_bytes, value, value_bytes)
        if info.codec == CODEC_NONE and conversion.count and b.size > limit:
            b.size = before
            return NO_ERROR
        conversion.count += 1
        conversion.last_offset = offset
        conversion.max_timestamp = max(conversion.max_timestamp, timestamp)
    conversion.whole = True
    return NO_ERROR


def batch_to_messages(batch, plain, int magic, int64_t from_offset, int64_t limit, compress) -> tuple[bytes, int]:
    """Convert a record batch to messages of format `magic` (0 or 1): (bytes, the offset at which to continue).

    batch: a whole batch, not a control batch. plain: its records, not compressed. from_offset, limit: of an uncompressed batch
    only messages from this offset on are made, at least one and no more than fit into `limit` bytes. A compressed batch becomes
    one wrapper with the batch's codec, by compress(codec, set, magic); or nothing if all of its records are before this offset, because
    those at its end were compacted away.

    :raises BadMessageError: the records have a wrong format, or messages cannot have the codec (zstd).
    """
    cdef ByteView batch_view = ByteView(batch)
    cdef ByteView view = ByteView(plain)
    cdef WriteBuffer b
    cdef BatchInfo info
    cdef Conversion conversion
    cdef int error = CORRUPT_MESSAGE
    cdef bytes packed
    if batch_view.size:
        error = parse_batch_header(batch_view.data, batch_view.size, &info)
    if error:
        raise BadMessageError(error, 0)
    if not is_codec_of_messages(info.codec):
        raise BadMessageError(UNSUPPORTED_COMPRESSION_TYPE, 0)
    if view.size == 0:
        return b"", info.base_offset + info.last_offset_delta + 1
    buffer_init(&b)
    try:
        with nogil:
            error = put_records(&b, view.data, view.size, &info, magic, from_offset, limit, &conversion)
        if error:
            raise BadMessageError(error, 0, "the records of a stored batch cannot be read")
        if info.codec and conversion.last_offset < from_offset:
            conversion.count = 0
        if conversion.count and info.codec:
            packed = compress(info.codec, PyBytes_FromStringAndSize(<const char*>b.data, b.size), magic)
            b.size = 0
            put_message(&b, magic, info.codec, info.log_append_time, conversion.last_offset, conversion.max_timestamp, NULL, -1,
                        <const uint8_t*>PyBytes_AS_STRING(packed), <int32_t>len(packed))
        if b.error:
            raise MemoryError("no memory for a converted record batch")
        following = info.base_offset + info.last_offset_delta + 1 if conversion.whole else conversion.last_offset + 1
        return PyBytes_FromStringAndSize(<const char*>b.data, b.size) if conversion.count else b"", following
    finally:
        buffer_free(&b)


def write_message(int magic, int codec, bint log_append_time, int64_t offset, int64_t timestamp, key, value) -> bytes:
    """One message as bytes; `key`, `value`: bytes or None."""
    cdef WriteBuffer b
    cdef bytes key_bytes = key
    cdef bytes value_bytes = value
    buffer_init(&b)
    try:
        put_message(&b, magic, codec, log_append_time, offset, timestamp,
                    <const uint8_t*>NULL if key_bytes is None else <const uint8_t*>PyBytes_AS_STRING(key_bytes),
                    -1 if key_bytes is None else <int32_t>len(key_bytes),
                    <const uint8_t*>NULL if value_bytes is None else <const uint8_t*>PyBytes_AS_STRING(value_bytes),
                    -1 if value_bytes is None else <int32_t>len(value_bytes))
        if b.error:
            raise MemoryError("no memory for a message")
        return PyBytes_FromStringAndSize(<const char*>b.data, b.size)
    finally:
        buffer_free(&b)
