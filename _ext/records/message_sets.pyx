"""The checks of message sets; see message_sets.pxd.

Runs in the append and the conversion threads of workers and in tools. Pure functions over memory; `check_set` releases the GIL.
Formats: Kafka's protocol guides and LegacyRecord; relative offsets and wrapper timestamps: KIP-31 and KIP-32.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, int8_t, uint8_t

from odradek._ext.protocol.byte_order cimport load32, load64
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.kafka_errors cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NO_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.records.codecs cimport CODEC_MASK, CODEC_NONE
from odradek._ext.records.crc32 cimport crc32
from odradek._ext.records.record_batch cimport ATTRIBUTE_LOG_APPEND_TIME


REASONS = {
    CORRUPT_MESSAGE: "a message is damaged: its CRC or one of its lengths is wrong",
    INVALID_RECORD: "a message is not well formed",
    INVALID_TIMESTAMP: "a message has a timestamp below -1, or has the timestamp type LogAppendTime and no timestamp",
    MESSAGE_TOO_LARGE: "a message is larger than the topic allows",
    UNSUPPORTED_COMPRESSION_TYPE: "a message has a codec that its format does not support",
}


class BadMessageError(ValueError):
    """A message set, or a batch to convert, has a wrong format. `code`: Kafka's error code; `position`: in bytes from the start
    of the data (for an inner message, of the wrapper's set)."""

    code: int
    position: int

    def __init__(self, code, position, reason=None):
        super().__init__(f"at byte {position}: {reason or REASONS.get(code, 'bad message')}")
        self.code = code
        self.position = position


cdef int parse_message_header(const uint8_t* p, size_t n, Message* out) noexcept nogil:
    cdef int64_t size
    out.size = 0
    out.magic = -1
    if n <= MESSAGE_AT_MAGIC:
        return CORRUPT_MESSAGE
    size = <int32_t>load32(p + MESSAGE_AT_SIZE)
    if size < MESSAGE_V0_BYTES - MESSAGE_OVERHEAD_BYTES or size > INT32_MAX - MESSAGE_OVERHEAD_BYTES:
        return CORRUPT_MESSAGE
    if p[MESSAGE_AT_MAGIC] > 1:
        return INVALID_RECORD
    out.size = <int32_t>(size + MESSAGE_OVERHEAD_BYTES)
    out.magic = <int8_t>p[MESSAGE_AT_MAGIC]
    if n < MESSAGE_V0_BYTES or out.magic == 1 and (n < MESSAGE_V1_BYTES or out.size < MESSAGE_V1_BYTES):
        return CORRUPT_MESSAGE
    out.offset = <int64_t>load64(p)
    out.crc = load32(p + MESSAGE_AT_CRC)
    out.codec = p[MESSAGE_AT_ATTRIBUTES] & CODEC_MASK
    out.log_append_time = out.magic == 1 and p[MESSAGE_AT_ATTRIBUTES] & ATTRIBUTE_LOG_APPEND_TIME
    out.timestamp = <int64_t>load64(p + MESSAGE_AT_TIMESTAMP) if out.magic == 1 else -1
    return NO_ERROR


cdef int check_message(const uint8_t* p, size_t n, Message* out) noexcept nogil:
    cdef int error = parse_message_header(p, n, out)
    cdef int64_t at
    if error:
        return error
    if <size_t>out.size > n or crc32(0, p + MESSAGE_AT_MAGIC, out.size - MESSAGE_AT_MAGIC) != out.crc:
        return CORRUPT_MESSAGE
    at = MESSAGE_AT_TIMESTAMP + 8 * out.magic + 4
    out.key_at = <int32_t>at
    out.key_bytes = <int32_t>load32(p + at - 4)
    if out.key_bytes < -1 or out.key_bytes > out.size - at - 4:
        return CORRUPT_MESSAGE
    if out.key_bytes > 0:
        at += out.key_bytes
    out.value_bytes = <int32_t>load32(p + at)
    at += 4
    out.value_at = <int32_t>at
    if out.value_bytes < -1 or out.size - at != (out.value_bytes if out.value_bytes > 0 else 0):
        return CORRUPT_MESSAGE
    return NO_ERROR


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
    return NO_ERROR


def check_set(data) -> MessageSet:
    """Check the outer messages of a whole set. Returns the fields of MessageSet by name.

    :raises BadMessageError: for the first message that is incomplete, damaged, or in another format.
    """
    cdef ByteView view = ByteView(data)
    cdef MessageSet result
    cdef int error = NO_ERROR
    result.size = 0
    if view.size:
        with nogil:
            error = check_message_set(view.data, view.size, &result)
    else:
        error = CORRUPT_MESSAGE
    if error:
        raise BadMessageError(error, result.size)
    return result
