"""Builds record batches (message format v2); see `batch_builder.pxd`.

Runs in the coordinator's loop, for `__consumer_offsets`, and in the process of `odradek produce`. One owner, no lock. The bytes
equal those of `odradek.storage.batch.build_batch`, which is the reference in the tests.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.protocol.byte_order cimport store16, store32, store64
from odradek._ext.protocol.cursor cimport (
    buffer_free,
    buffer_init,
    buffer_reserve,
    write_bytes,
    write_int8,
    write_varint,
    write_varlong,
)
from odradek._ext.records.codecs cimport CODEC_MASK
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.record_batch cimport (
    AT_ATTRIBUTES,
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
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_OVERHEAD_BYTES,
)


cdef const uint8_t* NO_HEADERS = <const uint8_t*>b"\0"    # number of headers: 0


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int varint_bytes(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef class BatchBuilder:
    """Initially empty. `finish` may be called once."""

    def __cinit__(self):
        buffer_init(&self.out)
        if buffer_reserve(&self.out, AT_RECORDS) == NULL:
            raise MemoryError("no memory for a batch")
        self.count = 0
        self.base_timestamp = self.max_timestamp = -1

    def __dealloc__(self):
        buffer_free(&self.out)

    @property
    def size(self) -> int:
        """Size of the batch so far in bytes, including its header."""
        return self.out.size

    cdef int put(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes, int64_t timestamp) except -1:
        return self.put_with_headers(key, key_bytes, value, value_bytes, timestamp, NO_HEADERS, 1)

    cdef int put_with_headers(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes,
                              int64_t timestamp, const uint8_t* headers, Py_ssize_t header_bytes) except -1:
        cdef Py_ssize_t body
        if self.count == 0:
            self.base_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        body = 1 + header_bytes + varint_bytes(zigzag(timestamp - self.base_timestamp)) + varint_bytes(zigzag(self.count))
        body += varint_bytes(zigzag(key_bytes)) + max(key_bytes, 0) + varint_bytes(zigzag(value_bytes)) + max(value_bytes, 0)
        write_varlong(&self.out, body)
        write_int8(&self.out, 0)                                # attributes: none are defined
        write_varlong(&self.out, timestamp - self.base_timestamp)
        write_varint(&self.out, self.count)
        write_varlong(&self.out, key_bytes)
        write_bytes(&self.out, key, max(key_bytes, 0))
        write_varlong(&self.out, value_bytes)
        write_bytes(&self.out, value, max(value_bytes, 0))
        write_bytes(&self.out, headers, header_bytes)
        if self.out.error:
            raise MemoryError("no memory for a batch")
        self.count += 1
        return 0

    def add(self, bytes key, bytes value, int64_t timestamp) -> None:
        """Add a record: key and value are bytes or None; timestamp in ms."""
        cdef const uint8_t* key_at = NULL
        cdef const uint8_t* value_at = NULL
        if key is not None:
            key_at = <const uint8_t*><const char*>key
        if value is not None:
            value_at = <const uint8_t*><const char*>value
        self.put(key_at, -1 if key is None else len(key), value_at, -1 if value is None else len(value), timestamp)

    @property
    def records(self) -> bytes:
        """The records so far, as they are in the batch."""
        return PyBytes_FromStringAndSize(<char*>self.out.data + AT_RECORDS, self.out.size - AT_RECORDS)

    def put_packed(self, bytes packed not None) -> None:
        """Replace the records by what they are in the batch's codec, so that completing it does not compress them."""
        self.out.size = AT_RECORDS
        write_bytes(&self.out, <const char*>packed, len(packed))
        if self.out.error:
            raise MemoryError("no memory for a batch")
        self.packed = True

    def finish(self, int codec=0, compress=None, int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1,
               bint transactional=False) -> bytes:
        """The batch as bytes, valid and with its CRC.

        :param codec: see `odradek.codecs`. :param compress: (codec, bytes) to bytes, for all but 0.
        :param base_sequence: sequence of the batch's first record, for an idempotent producer; 0 for a coordinator's batch in a
        transaction. :param transactional: whether the batch belongs to a transaction.
        """
        self.seal(codec, compress, producer_id, producer_epoch, base_sequence, transactional)
        return PyBytes_FromStringAndSize(<char*>self.out.data, self.out.size)

    cdef int seal(self, int codec, compress, int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1,
                  bint transactional=False) except -1:
        cdef uint8_t* start
        cdef Py_ssize_t size
        if codec and not self.packed:
            self.put_packed(compress(codec, self.records))
        size = self.out.size
        start = self.out.data
        memset(start, 0, AT_RECORDS)
        store32(start + AT_BATCH_LENGTH, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
        store32(start + AT_PARTITION_LEADER_EPOCH, 0xFFFFFFFF)
        start[AT_MAGIC] = 2
        store16(start + AT_ATTRIBUTES, (<uint32_t>codec & CODEC_MASK) | (ATTRIBUTE_TRANSACTIONAL if transactional else 0))
        store32(start + AT_LAST_OFFSET_DELTA, <uint32_t>max(self.count - 1, 0))
        store64(start + AT_BASE_TIMESTAMP, <uint64_t>self.base_timestamp)
        store64(start + AT_MAX_TIMESTAMP, <uint64_t>self.max_timestamp)
        store64(start + AT_PRODUCER_ID, <uint64_t>producer_id)
        store16(start + AT_PRODUCER_EPOCH, <uint32_t>producer_epoch & 0xFFFF)
        store32(start + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
        store32(start + AT_RECORD_COUNT, <uint32_t>self.count)
        store32(start + AT_CRC, crc32c(0, start + AT_ATTRIBUTES, size - AT_ATTRIBUTES))
        return 0
