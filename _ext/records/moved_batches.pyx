"""Record batches on their way from one cluster to another: which of a Fetch answer are moved, and new headers for them.

Runs in the lanes of the mirror. Functions over memory, without state; the GIL is held, because a walk is short. The data comes
from a foreign broker: every length is checked before it is used, and invalid data is reported as a reason, after the batches
before it.

The CRC-32C of a batch with a new header is not computed over its records. The CRC is affine: if two batches of the same size
differ in the 40 header bytes behind the CRC field only, then

    crc(new) = crc(old) ^ shift(crc(old 40 bytes) ^ crc(new 40 bytes), bytes of the records)

where shift(c, n) continues the register c over n zero bytes: a multiplication with x**(8 n) modulo the polynomial. A batch
that was damaged on the way thus keeps a wrong CRC, and the target refuses it.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

from odradek._ext.protocol.byte_order cimport load16, load32, load64, store16, store32, store64
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.cursor cimport (
    Cursor,
    WriteBuffer,
    buffer_free,
    buffer_init,
    cursor_init,
    cursor_left,
    read_bytes,
    read_int8,
    read_varint,
    read_varlong,
    uvarint_put,
    write_bytes,
)
from odradek._ext.protocol.kafka_errors cimport NO_ERROR
from odradek._ext.records.codecs cimport CODEC_MASK, is_codec
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.old_messages cimport MESSAGE_V0_BYTES
from odradek._ext.records.record_batch cimport (
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_BASE_SEQUENCE,
    AT_BATCH_LENGTH,
    AT_CRC,
    AT_MAGIC,
    AT_PARTITION_LEADER_EPOCH,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORDS,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    BatchInfo,
    crc_matches,
    is_abort,
    parse_batch_header,
)

MOVE = KIND_MOVE
OPEN = KIND_OPEN
OPEN_OLD = KIND_OPEN_OLD

cdef enum:
    KIND_MOVE = 0                       # as it is, with a new header
    KIND_OPEN = 1                       # its records are encoded again
    KIND_OPEN_OLD = 2                   # messages of format v0 or v1
    POLYNOMIAL = 0x82F63B78             # CRC-32C, reflected
    POWERS = 40                         # sizes have 31 bits, and a byte has three more
    OLD_RUN_BYTES = 1 << 16             # uncompressed messages of the old formats that become one batch

cdef uint32_t[POWERS] power             # power[k]: x**(2**k) modulo the polynomial, reflected


# -- CRC of a new header ---------------------------------------------------------------------------------------------

cdef uint32_t times(uint32_t a, uint32_t b) noexcept nogil:
    """The product of two polynomials modulo the CRC's; bit 31 is x**0."""
    cdef uint32_t product = 0
    cdef uint32_t bit = 1u << 31
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ (POLYNOMIAL if b & 1 else 0)
    return product


cdef void prepare() noexcept:
    cdef int k
    power[0] = 1u << 30
    for k in range(1, POWERS):
        power[k] = times(power[k - 1], power[k - 1])


cdef uint32_t shift(uint32_t crc, uint64_t zeros) noexcept nogil:
    """Continue the CRC register over `zeros` zero bytes (below 2**37), without inversions."""
    cdef int k = 3
    while zeros:
        if zeros & 1:
            crc = times(power[k], crc)
        zeros >>= 1
        k += 1
    return crc


cdef void stamp_header(uint8_t* p, int32_t size, int64_t producer_id, int16_t epoch, int32_t sequence, bint transactional) noexcept nogil:
    """Write the header of a producer's batch; p[0:size] is a batch of at least 61 bytes."""
    cdef uint32_t before = crc32c(0, p + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES)
    cdef uint16_t attributes = load16(p + AT_ATTRIBUTES)
    cdef uint32_t change
    attributes &= <uint16_t>~(ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_DELETE_HORIZON)
    if transactional:
        attributes |= ATTRIBUTE_TRANSACTIONAL
    store64(p + AT_BASE_OFFSET, 0)
    store32(p + AT_PARTITION_LEADER_EPOCH, 0xFFFFFFFF)
    store16(p + AT_ATTRIBUTES, attributes)
    store64(p + AT_PRODUCER_ID, <uint64_t>producer_id)
    store16(p + AT_PRODUCER_EPOCH, <uint16_t>epoch)
    store32(p + AT_BASE_SEQUENCE, <uint32_t>sequence)
    change = before ^ crc32c(0, p + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES)
    store32(p + AT_CRC, load32(p + AT_CRC) ^ shift(change, size - BATCH_HEADER_BYTES))


def stamp(data, Py_ssize_t start, Py_ssize_t size, int64_t producer_id, int epoch, int32_t sequence, bint transactional) -> None:
    """Give a batch of format v2 in `data` the header of a producer's batch, in place; its CRC stays right or wrong.

    Base offset, leader epoch, the bits LogAppendTime and delete horizon are cleared. Raises ValueError if there is no such batch.

    :param data: a writable buffer that has the batch at data[start:start + size]. :param sequence: of its first record; -1 without
        a producer id. :param transactional: whether the batch is part of a transaction.
    """
    cdef Py_buffer view
    cdef uint8_t* p
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        p = <uint8_t*>view.buf + start
        if start < 0 or size < BATCH_HEADER_BYTES or size > view.len - start or p[AT_MAGIC] != 2 or \
                <int64_t>load32(p + AT_BATCH_LENGTH) + BATCH_OVERHEAD_BYTES != size:
            raise ValueError(f"no batch of {size} bytes begins at position {start}")
        stamp_header(p, <int32_t>size, producer_id, <int16_t>epoch, sequence, transactional)
    finally:
        PyBuffer_Release(&view)


# -- the batches of a Fetch answer -----------------------------------------------------------------------------------

cdef class FetchedBatch:
    """A batch in a Fetch answer, or several messages of the old formats. All offsets are those of the source.

    kind: MOVE, OPEN or OPEN_OLD. start, size: where it is, in bytes. first_offset: of its first record that is wanted; in the old
    formats at most that. last_offset: of its last record. records: their number in a batch of format v2 (with those that are not
    wanted), else 0. max_timestamp: ms; -1 if unknown. leader_epoch: -1 if unknown.
    """

    cdef readonly int kind
    cdef readonly int32_t records
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t codec
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t size
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp


cdef class Walk:
    """What a Fetch answer contains of a partition.

    batches: those to move, in order. position: the offset after all whole batches. consumed: bytes of the whole batches; a batch
    behind them is cut off. problem: None, or why the data at `position` is invalid. leader_epoch: of the last batch, or -1.
    """

    cdef readonly list batches
    cdef readonly int64_t position
    cdef readonly Py_ssize_t consumed
    cdef readonly object problem
    cdef readonly int32_t leader_epoch

    def __init__(self, int64_t position):
        self.batches = []
        self.position = position
        self.leader_epoch = -1


def walk(data, int64_t position, aborted=(), bint open_append_time=False) -> Walk:
    """Find the batches to move in the records of a Fetch answer. Returns a `Walk`.

    Control batches, batches of aborted transactions and empty batches are left out, and so are batches before `position`. A batch
    is opened if records are missing in it, if it begins before `position`, or with `open_append_time` if it has LogAppendTime.

    :param data: bytes-like. :param aborted: (producer id, first offset) of the aborted transactions.
    """
    cdef Walk out = Walk(position)
    cdef list waiting = sorted([(first, producer) for producer, first in aborted], reverse=True)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        walk_batches(out, <const uint8_t*>view.buf, view.len, waiting, open_append_time)
    finally:
        PyBuffer_Release(&view)
    return out


cdef int walk_batches(Walk out, const uint8_t* base, Py_ssize_t size, list waiting, bint open_append_time) except -1:
    cdef BatchInfo info
    cdef const uint8_t* p
    cdef int64_t length
    cdef set producers = set()
    while size - out.consumed > AT_MAGIC:
        p = base + out.consumed
        length = <int32_t>load32(p + AT_BATCH_LENGTH)
        if length < AT_CRC - BATCH_OVERHEAD_BYTES or length > 0x7FFFFFFF - BATCH_OVERHEAD_BYTES:
            out.problem = f"the batch at offset {out.position} states a length of {length} bytes"
            return 0
        if length + BATCH_OVERHEAD_BYTES > size - out.consumed:
            return 0                    # cut off
        if p[AT_MAGIC] < 2 and length + BATCH_OVERHEAD_BYTES < MESSAGE_V0_BYTES:
            out.problem = f"the message at offset {out.position} states a length of {length} bytes"
        elif p[AT_MAGIC] < 2:
            take_old(out, p, <int32_t>(length + BATCH_OVERHEAD_BYTES))
        elif parse_batch_header(p, size - out.consumed, &info) != NO_ERROR:
            out.problem = f"the batch at offset {out.position} has an invalid header of format v{p[AT_MAGIC]}"
        else:
            take_batch(out, p, &info, waiting, producers, open_append_time)
        if out.problem is not None:
            return 0
        out.consumed += <Py_ssize_t>(length + BATCH_OVERHEAD_BYTES)
    return 0


cdef int take_batch(Walk out, const uint8_t* p, const BatchInfo* info, list waiting, set producers, bint open_append_time) except -1:
    cdef FetchedBatch batch
    cdef int64_t last
    if info.base_offset < 0 or info.last_offset_delta < 0 or info.base_offset > INT64_MAX - 1 - info.last_offset_delta or \
            info.record_count < 0 or <int64_t>info.record_count > <int64_t>info.last_offset_delta + 1:
        out.problem = f"the batch at offset {out.position} states base offset {info.base_offset}, last offset delta " \
            f"{info.last_offset_delta} and {info.record_count} records"
        return 0
    if not is_codec(info.codec):
        out.problem = f"the batch at offset {info.base_offset} has the unknown compression {info.codec}"
        return 0
    last = info.base_offset + info.last_offset_delta
    if last < out.position:
        if out.batches:
            out.problem = f"the batch after offset {out.position - 1} ends at offset {last}"
        return 0
    if info.base_offset < out.position and out.batches:
        out.problem = f"the batch after offset {out.position - 1} begins at offset {info.base_offset}"
        return 0
    while waiting and waiting[len(waiting) - 1][0] <= last:
        producers.add(waiting.pop()[1])
    if info.control or info.record_count == 0 or (info.transactional and info.producer_id in producers):
        if not crc_matches(p, info):
            out.problem = f"the batch at offset {info.base_offset} does not match its checksum"
            return 0
        if info.control and is_abort(p + AT_RECORDS, info.size - AT_RECORDS):
            producers.discard(info.producer_id)
    else:
        batch = FetchedBatch.__new__(FetchedBatch)
        batch.kind = KIND_MOVE
        if info.base_offset < out.position or info.record_count != info.last_offset_delta + 1 or \
                (open_append_time and info.log_append_time):
            batch.kind = KIND_OPEN
        batch.start, batch.size = out.consumed, info.size
        batch.first_offset, batch.last_offset = max(info.base_offset, out.position), last
        batch.records, batch.max_timestamp = info.record_count, info.max_timestamp
        batch.leader_epoch, batch.codec = info.partition_leader_epoch, info.codec
        out.batches.append(batch)
    out.position = last + 1
    out.leader_epoch = info.partition_leader_epoch
    return 0


cdef int take_old(Walk out, const uint8_t* p, int32_t size) except -1:
    """A message of format v0 or v1; its checksum is checked when it is opened."""
    cdef FetchedBatch batch
    cdef int64_t offset = <int64_t>load64(p + AT_BASE_OFFSET)   # of a wrapper: of its last message
    cdef int codec = p[AT_MAGIC + 1] & CODEC_MASK
    if offset < 0 or offset == INT64_MAX:
        out.problem = f"the message after offset {out.position - 1} states offset {offset}"
        return 0
    if offset < out.position:
        if out.batches:
            out.problem = f"the message after offset {out.position - 1} states offset {offset}"
        return 0
    batch = None
    if out.batches and codec == 0:
        batch = out.batches[len(out.batches) - 1]
        if batch.kind != KIND_OPEN_OLD or batch.codec or batch.size + size > OLD_RUN_BYTES:
            batch = None
    if batch is None:
        batch = FetchedBatch.__new__(FetchedBatch)
        batch.kind, batch.codec, batch.start, batch.size = KIND_OPEN_OLD, codec, out.consumed, 0
        batch.first_offset, batch.max_timestamp, batch.leader_epoch = out.position, -1, -1
        out.batches.append(batch)
    batch.size += size
    batch.last_offset = offset
    out.position = offset + 1
    return 0


def checksum_matches(batch) -> bool:
    """Whether `batch`, a bytes-like object, is one whole batch of format v2 whose CRC matches."""
    cdef ByteView view = ByteView(batch)
    cdef BatchInfo info
    if view.size == 0 or parse_batch_header(view.data, view.size, &info) or info.size != view.size:
        return False
    return crc_matches(view.data, &info)


# -- records that are numbered again ---------------------------------------------------------------------------------

cdef class Renumbered:
    """Records with offsets from 0 on, without gaps.

    payload: the records, not compressed. records: their number. first_offset: the source's offset of the first one; -1 if there is
    none. base_timestamp, max_timestamp: for the header, in ms.
    """

    cdef readonly bytes payload
    cdef readonly int32_t records
    cdef readonly int64_t first_offset
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp


def renumber(payload, int32_t count, int64_t base_offset, int64_t base_timestamp, int64_t position, append_time=None,
             int32_t last_offset_delta=INT32_MAX) -> Renumbered:
    """Number the records of a batch from `position` on again. Returns `Renumbered`. Raises ValueError for invalid records.

    :param payload: `count` records, not compressed. :param base_offset: and `base_timestamp`: from the batch's header.
    :param append_time: the timestamp of every record, ms; None: each keeps its own.
    :param last_offset_delta: from the batch's header; a record behind it is invalid.
    """
    cdef ByteView view = ByteView(payload)
    cdef Renumbered out = Renumbered.__new__(Renumbered)
    cdef WriteBuffer to
    cdef bint same_time = append_time is not None
    out.base_timestamp = append_time if same_time else base_timestamp
    out.first_offset = -1
    buffer_init(&to)
    try:
        if not copy_records(&to, view.data if view.size else NULL, view.size, count, base_offset, last_offset_delta, position, same_time,
                            out):
            raise ValueError(f"the records of the batch at offset {base_offset} cannot be read")
        if to.error:
            raise MemoryError(f"no memory for the records of the batch at offset {base_offset}")
        out.payload = PyBytes_FromStringAndSize(<const char*>to.data, to.size)
    finally:
        buffer_free(&to)
    return out


cdef bint copy_records(WriteBuffer* to, const uint8_t* p, Py_ssize_t size, int32_t count, int64_t base_offset,
                       int32_t last_offset_delta, int64_t position, bint same_time, Renumbered out) noexcept:
    cdef Cursor records
    cdef Cursor c
    cdef const uint8_t* body
    cdef uint8_t head[32]
    cdef int64_t offset, delta, timestamp
    cdef int64_t before = -1
    cdef int32_t length
    cdef int used
    cursor_init(&records, p, size)
    for _ in range(count):
        length = read_varint(&records)
        body = read_bytes(&records, length)
        if records.error:
            return False
        cursor_init(&c, body, length)
        head[0] = <uint8_t>read_int8(&c)
        delta = read_varlong(&c)
        offset = read_varint(&c)
        if c.error or offset <= before or offset > last_offset_delta:
            return False
        before = offset
        offset += base_offset
        if offset < position:
            continue
        timestamp = out.base_timestamp
        if same_time:
            delta = 0
        else:
            timestamp = <int64_t>(<uint64_t>out.base_timestamp + <uint64_t>delta)
        if out.records == 0:
            out.first_offset, out.max_timestamp = offset, timestamp
        out.max_timestamp = max(out.max_timestamp, timestamp)
        used = 1
        used += uvarint_put(head + used, (<uint64_t>delta << 1) ^ <uint64_t>(delta >> 63))
        used += uvarint_put(head + used, <uint64_t>out.records << 1)
        put_length(to, used + cursor_left(&c))
        write_bytes(to, head, used)
        write_bytes(to, c.ptr, cursor_left(&c))
        out.records += 1
    return cursor_left(&records) == 0


cdef void put_length(WriteBuffer* to, int64_t length) noexcept nogil:
    cdef uint8_t raw[10]
    write_bytes(to, raw, uvarint_put(raw, <uint64_t>length << 1))


prepare()
