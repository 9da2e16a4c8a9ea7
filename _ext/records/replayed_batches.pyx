"""Reads the batches of an internal topic when its coordinator loads it: records as keys and values, and end markers.

Runs in the thread that loads. Only whole, valid and uncompressed batches of format v2 are read; the caller reads the others.
Every read ends at the end of its batch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from odradek._ext.protocol.byte_order cimport load16
from odradek._ext.protocol.kafka_errors cimport NO_ERROR
from odradek._ext.records.codecs cimport CODEC_NONE
from odradek._ext.records.record_batch cimport AT_RECORDS, BatchInfo, check_batch, read_varint, read_varlong

cdef enum:
    NO_PRODUCER = -1
    NO_MARKER = -1
    ABORT = 0                           # types of end markers
    COMMIT = 1
    MARKER_KEY_BYTES = 4                # version and type


cdef struct Record:
    int64_t offset
    const uint8_t* key
    const uint8_t* value
    int32_t key_bytes                   # -1: null
    int32_t value_bytes


cdef inline int take_bytes(const uint8_t** p, const uint8_t* end, const uint8_t** data, int32_t* length) noexcept nogil:
    if read_varint(p, end, length) or length[0] < -1 or length[0] > end - p[0]:
        return -1
    data[0] = p[0]
    if length[0] > 0:
        p[0] += length[0]
    return 0


cdef int take_record(const uint8_t** p, const uint8_t* end, int64_t base_offset, Record* out) noexcept nogil:
    """Read the record at *p, which is advanced; -1 if it is malformed. Headers are skipped."""
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int64_t timestamp_delta = 0
    cdef const uint8_t* stop
    if read_varint(p, end, &length) or length < 1 or length > end - p[0]:
        return -1
    stop = p[0] + length
    p[0] += 1                           # attributes: none are defined
    if (read_varlong(p, stop, &timestamp_delta) or read_varint(p, stop, &offset_delta)
            or take_bytes(p, stop, &out.key, &out.key_bytes) or take_bytes(p, stop, &out.value, &out.value_bytes)):
        return -1
    out.offset = <int64_t>(<uint64_t>base_offset + <uint64_t>offset_delta)    # wraps, instead of overflowing
    p[0] = stop
    return 0


cdef inline bytes bytes_of(const uint8_t* data, int32_t length):
    return PyBytes_FromStringAndSize(<const char*>data, length)


def read_batches(bytes data not None, Py_ssize_t at, int64_t start, int64_t end) -> tuple[
    int, int, list[tuple[list[tuple[bytes, bytes | None]], int, Sequence[int], bool | None]],
]:
    """Read batches from position `at` on, up to the first one that is cut off, corrupt, compressed, of an old format, or that
    begins at offset `end` or later.

    :param start: records of smaller offsets are left out.
    :returns: the position after the last batch, the offset after it (-1: none was read), and a list of tuples as
        `coordination.environment.LogBatch`: records, producer id, offsets, whether the marker commits or None. Batches
        outside of transactions are joined.
    """
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef const uint8_t* p
    cdef const uint8_t* stop
    cdef BatchInfo info
    cdef Record record
    cdef int64_t reached = -1
    cdef int marker
    cdef list batches = []
    cdef list plain = None              # the records of the last tuple, while others may be added to it
    cdef list records
    cdef list offsets
    while at < size and check_batch(base + at, size - at, False, &info) == NO_ERROR:
        if info.codec != CODEC_NONE or info.base_offset >= end:
            break
        p, stop = base + at + AT_RECORDS, base + at + info.size
        records, offsets, marker = [], [], NO_MARKER
        for _ in range(info.record_count):
            if take_record(&p, stop, info.base_offset, &record):
                return at, reached, batches
            if record.offset < start or record.offset >= end:
                continue
            if info.control:
                if not offsets:
                    marker = marker_type(&record)
                offsets.append(record.offset)
                continue
            key = bytes_of(record.key, record.key_bytes) if record.key_bytes >= 0 else b""
            value = bytes_of(record.value, record.value_bytes) if record.value_bytes >= 0 else None
            records.append((key, value))
            if info.transactional:
                offsets.append(record.offset)
        if p != stop:
            break
        if info.control:
            if marker != NO_MARKER:
                batches.append(([], info.producer_id, (), marker == COMMIT))
                plain = None
        elif info.transactional:
            batches.append((records, info.producer_id, offsets, None))
            plain = None
        elif plain is None:
            plain = records
            batches.append((records, NO_PRODUCER, (), None))
        else:
            plain.extend(records)
        at += info.size
        reached = <int64_t>(<uint64_t>info.base_offset + <uint64_t>info.last_offset_delta + 1)
    return at, reached, batches


cdef int marker_type(const Record* record) noexcept nogil:
    cdef int kind
    if record.key_bytes < MARKER_KEY_BYTES:
        return NO_MARKER
    kind = load16(record.key + 2)
    return kind if kind == ABORT or kind == COMMIT else NO_MARKER
