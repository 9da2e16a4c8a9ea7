"""Messages of format v0 and v1 as stored in a log: each is treated as a batch; compressed ones are not decompressed.

Used where a log is read batch by batch (`log_scan`), by look-ups, and where a follower appends what its leader sent. Pure functions
over memory. Format: the message sets of Kafka 0.8-0.10 (KIP-31, KIP-32).

    message: offset i64, size i32, crc u32 (of all that follows it), magic i8, attributes i8, timestamp i64 (v1 only),
    key length i32 (-1: null), key, value length i32 (-1: null), value

A wrapper has a codec in its attributes, and a compressed message set as its value. Its offset is that of the last message
inside. Messages inside have absolute offsets in v0 and count from 0 in v1. Its timestamp is the largest one inside.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t

from odradek._ext.protocol.byte_order cimport load32, load64
from odradek._ext.protocol.kafka_errors cimport CORRUPT_MESSAGE, NO_ERROR
from odradek._ext.records.codecs cimport CODEC_MASK, CODEC_NONE, is_codec_of_messages
from odradek._ext.records.crc32 cimport crc32
from odradek._ext.records.record_batch cimport (
    ATTRIBUTE_LOG_APPEND_TIME,
    AT_BATCH_LENGTH,
    AT_MAGIC,
    BATCH_OVERHEAD_BYTES,
    BatchInfo,
)


cdef int parse_message(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    cdef int64_t size
    out.size = 0
    out.magic = -1
    if n < MESSAGE_HEADER_BYTES:
        return CORRUPT_MESSAGE
    size = <int64_t><int32_t>load32(p + AT_BATCH_LENGTH) + BATCH_OVERHEAD_BYTES
    if p[AT_MAGIC] > 1 or not (MESSAGE_V1_BYTES if p[AT_MAGIC] else MESSAGE_V0_BYTES) <= size <= 0x7FFFFFFF:
        return CORRUPT_MESSAGE
    out.codec = p[AT_MESSAGE_ATTRIBUTES] & CODEC_MASK
    if not is_codec_of_messages(out.codec):
        return CORRUPT_MESSAGE
    out.base_offset = <int64_t>load64(p)
    if out.base_offset < 0:
        return CORRUPT_MESSAGE
    out.size = <int32_t>size
    out.magic = <int8_t>p[AT_MAGIC]
    out.attributes = <int16_t>p[AT_MESSAGE_ATTRIBUTES]
    out.log_append_time = out.magic == 1 and (out.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
    out.max_timestamp = <int64_t>load64(p + AT_MESSAGE_TIMESTAMP) if out.magic == 1 else -1
    out.base_timestamp = out.max_timestamp
    out.crc = load32(p + AT_MESSAGE_CRC)
    out.last_offset_delta = 0
    out.record_count = 1 if out.codec == CODEC_NONE else -1
    out.partition_leader_epoch = -1
    out.producer_id = -1
    out.producer_epoch = -1
    out.base_sequence = -1
    out.transactional = 0
    out.control = 0
    out.framed = 0
    out.keyless = 0
    out.offset_delta_of_max_timestamp = -1
    out.found_max_timestamp = -1
    out.found_min_timestamp = -1
    return NO_ERROR


cdef bint message_crc_matches(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    return crc32(0, p + AT_MAGIC, <size_t>info.size - AT_MAGIC) == info.crc
