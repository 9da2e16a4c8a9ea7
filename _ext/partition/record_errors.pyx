"""Which records of a refused batch break which rule of the topic; see record_errors.pxd.

A topic with cleanup.policy=compact refuses records without a key. A topic with message.timestamp.type=CreateTime refuses
timestamps that are too far from the broker's clock; a record without a timestamp (-1) passes. A topic with LogAppendTime
refuses batches that claim to have that timestamp type already; a topic with CreateTime ignores the claim, unless such a batch
has no timestamp. These are the rules of Kafka's LogValidator, including the choice of the code: INVALID_TIMESTAMP if any record
has a bad timestamp, else INVALID_RECORD. A record is reported for the first rule that it breaks.

Used in workers: by the loop for uncompressed batches, by append threads for others. Only refused batches come here.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from odradek._ext.protocol.cursor cimport write_bytes, write_int32, write_length, write_string_length, write_uvarint
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD, INVALID_TIMESTAMP, NO_ERROR
from odradek._ext.records.record_batch cimport read_varint, read_varlong


cdef enum Fault:
    SOUND = 0
    NO_KEY = 1
    TIMESTAMP_RANGE = 2
    TIMESTAMP_TYPE = 3


cdef bytes NO_KEY_MESSAGE = b"a record of a compacted topic must have a key"
cdef bytes TIMESTAMP_TYPE_MESSAGE = b"a producer must not set the timestamp type LogAppendTime"


cdef Fault fault_of(Slot* slot, const BatchInfo* info, int64_t wall_ms, int32_t key_bytes, int64_t timestamp) noexcept nogil:
    if slot.settings.compact and key_bytes < 0:
        return NO_KEY
    if info.log_append_time and (slot.settings.log_append_time or info.max_timestamp == -1):
        return TIMESTAMP_TYPE
    if slot.settings.log_append_time or timestamp == -1:
        return SOUND
    if earliest_timestamp(slot, wall_ms) <= timestamp <= latest_timestamp(slot, wall_ms):
        return SOUND
    return TIMESTAMP_RANGE


cdef bytes message_of(Fault fault, int64_t timestamp, Slot* slot, int64_t wall_ms):
    if fault == NO_KEY:
        return NO_KEY_MESSAGE
    if fault == TIMESTAMP_TYPE:
        return TIMESTAMP_TYPE_MESSAGE
    return (f"timestamp {timestamp} is not between {earliest_timestamp(slot, wall_ms)} and {latest_timestamp(slot, wall_ms)}, "
            "the bounds that message.timestamp.before.max.ms and message.timestamp.after.max.ms set at this time").encode()


cdef inline void write_text(WriteBuffer* out, bytes text, bint flexible) noexcept:
    write_string_length(out, <int32_t>len(text), flexible)
    write_bytes(out, <const char*>text, len(text))


cdef class RecordErrors:
    cdef int write(self, WriteBuffer* out, bint flexible) except -1:
        cdef bytes text
        cdef int32_t index
        write_length(out, <int32_t>len(self.listed), flexible)
        for index, text in self.listed:
            write_int32(out, index)
            write_text(out, text, flexible)
            if flexible:
                write_uvarint(out, 0)
        write_text(out, self.message, flexible)
        return 0


cdef RecordErrors find_record_errors(const uint8_t* p, int64_t n, const BatchInfo* info, Slot* slot, int64_t wall_ms, int32_t most,
                                     bint first_decides):
    cdef RecordErrors out = RecordErrors.__new__(RecordErrors)
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef int32_t length = 0, index = 0, offset_delta = 0, key_bytes = 0
    cdef int64_t delta = 0, timestamp
    cdef Fault fault
    out.listed = []
    out.code = NO_ERROR
    while index < info.record_count and read_varint(&p, end, &length) == 0 and 0 < length <= end - p:
        stop = p + length
        p += 1
        if read_varlong(&p, stop, &delta) or read_varint(&p, stop, &offset_delta) or read_varint(&p, stop, &key_bytes):
            break                       # the records differ from those that were checked
        p = stop
        timestamp = <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>delta)
        fault = fault_of(slot, info, wall_ms, key_bytes, timestamp)
        if fault != SOUND:
            out.total += 1
            if out.code == NO_ERROR or (fault != NO_KEY and not first_decides):
                out.code = INVALID_RECORD if fault == NO_KEY else INVALID_TIMESTAMP
            if len(out.listed) < most:
                out.listed.append((index, message_of(fault, timestamp, slot, wall_ms)))
        index += 1
    if out.total == 0:
        return None
    out.message = summary(out, info.record_count)
    return out


cdef bytes summary(RecordErrors errors, int32_t count):
    """The error message for the whole batch."""
    text = f"{errors.total} of the batch's {count} records {'is' if errors.total == 1 else 'are'} invalid"
    if errors.listed:
        index, message = errors.listed[0]
        text += f"; record {index}: {message.decode()}"
    if len(errors.listed) < errors.total:
        text += f" ({errors.total - len(errors.listed)} more not listed)"
    return text.encode()
