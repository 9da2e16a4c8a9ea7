"""Reads the records of a Fetch response and passes the selected ones to a `RecordPrinter`.

Runs in the process of the command, in one thread. Data from a broker is checked: every read ends at the end of its batch, and a
batch whose CRC-32C does not match is refused. `record_batch.pyx` describes the format; `odradek.storage.old_messages` reads
messages of format v0 and v1.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.protocol.cursor cimport (
    CURSOR_OK,
    Cursor,
    cursor_init,
    cursor_left,
    read_bytes,
    read_int8,
    read_varint,
    read_varlong,
)
from odradek._ext.protocol.kafka_errors cimport CORRUPT_MESSAGE
from odradek._ext.records.codecs cimport CODEC_NONE, is_codec
from odradek._ext.records.record_batch cimport AT_MAGIC, AT_RECORDS, BatchInfo, crc_matches, is_abort, parse_batch_header
from odradek._ext.records.record_printing cimport RecordPrinter, RecordView

cdef enum:
    OBJECT_BYTES = 192                  # about what Python needs for a record, and for a header, besides its bytes


class CorruptRecordsError(ValueError):
    """A broker sent an invalid batch of records."""


cdef class RecordReader:
    """:param printer: formats the records. :param write: a function of bytes, called whenever `flush_bytes` of them are ready.

    :param keep: a function of key and value (bytes or None) that returns whether to print a record; None: print all.
    :param limit: most records to print; None: no limit.
    :param until_ms: a partition is read up to its first record of this time or later; None: to its end.
    :param committed_only: skip the records of aborted transactions.
    :param decompress: (codec, bytes) to bytes. :param open_old: bytes of one message of format v0 or v1 to a list of the
    messages in it, which have `offset`, `timestamp`, `key` and `value`; both raise ValueError.
    """

    cdef RecordPrinter printer
    cdef object write
    cdef object keep
    cdef object decompress
    cdef object open_old
    cdef int64_t left                   # records that may still be printed
    cdef int64_t until_ms
    cdef bint timed                     # whether there is an `until_ms`
    cdef int64_t position               # of the partition that is being read; `end`: where to stop
    cdef int64_t end
    cdef int64_t pending                # records in the printer that are not written yet
    cdef int64_t page                   # memory of the records since the last page, in bytes
    cdef Py_ssize_t flush_bytes
    cdef bint committed_only
    cdef BatchInfo batch                # the batch whose records are being read
    cdef Cursor unread                  # its records that are left
    cdef int32_t unread_count           # their number; -1: no batch is being read
    cdef int64_t least_offset           # of the next batch: batches whose offsets go back would be skipped as known
    cdef int32_t last_delta             # the offset delta of the record before them; -1: none
    cdef bytes plain                    # owns the memory of `unread` if the batch is compressed
    cdef readonly int64_t records       # records written
    cdef readonly bint ended            # `read` reached a record of `until_ms` or later

    def __init__(self, RecordPrinter printer, write, *, keep=None, limit=None, until_ms=None, bint committed_only=True,
                 decompress, open_old, Py_ssize_t flush_bytes=1 << 20):
        self.printer, self.write, self.keep = printer, write, keep
        self.decompress, self.open_old = decompress, open_old
        self.left = INT64_MAX if limit is None else limit
        self.timed = until_ms is not None
        self.until_ms = until_ms if self.timed else INT64_MAX
        self.committed_only = committed_only
        self.flush_bytes = flush_bytes
        self.records = self.pending = 0
        self.ended = False

    @property
    def full(self) -> bool:
        """Whether `limit` records were printed."""
        return self.left == 0

    def flush(self) -> None:
        """Write the formatted records. If `write` fails, they are lost and not counted in `records`."""
        cdef int64_t ready = self.pending
        if ready:
            self.pending = 0
            self.write(self.printer.take())
            self.records += ready

    def read(self, str topic, int32_t partition, data, int64_t position, end=None, aborted=()) -> int:
        """Print the records of a partition from offset `position` to before offset `end`. Returns the offset at which to
        continue.

        :param data: the records of a response, bytes-like; a batch that is cut off at its end is left for the next call.
        :param end: None: no end. :param aborted: (producer id, first offset) of the aborted transactions in the data.
        Sets `ended`, and stops early if `full`. Raises CorruptRecordsError, and the exceptions of `write` and `keep`.
        """
        (position,) = self.pages(topic, partition, data, position, end, aborted, INT64_MAX)
        return position

    def pages(self, str topic, int32_t partition, data, int64_t position, end, aborted, int64_t page_bytes) -> Iterator[int]:
        """`read` in steps: yields the offset at which to continue each time that about `page_bytes` bytes of memory are filled
        with records, and at the end. A page can end within a batch, because a small batch can have millions of records. Only
        a message of format v0 or v1 with those in it is never divided."""
        cdef list waiting = sorted([(first, producer) for producer, first in aborted], reverse=True)
        cdef set producers = set()
        cdef Py_buffer view
        cdef Py_ssize_t done = 0
        cdef int64_t before
        cdef bint started = False, full = True
        self.printer.set_partition(topic, partition)
        self.position = position
        self.end = INT64_MAX if end is None else end
        self.ended = False
        self.unread_count = -1
        self.least_offset = 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while full:
                before, self.page = self.position, 0
                done += self.read_page(<const uint8_t*>view.buf + done, view.len - done, waiting, producers, page_bytes)
                full = self.page >= page_bytes
                if not started or self.position != before:
                    yield self.position
                started = True
        finally:
            PyBuffer_Release(&view)
            self.plain = None

    cdef Py_ssize_t read_page(self, const uint8_t* first, Py_ssize_t size, list waiting, set producers, int64_t most) except -1:
        """Read batches until `most` bytes are filled. Returns the size of the batches read to their end."""
        cdef const uint8_t* p = first
        cdef const uint8_t* end = first + size
        cdef BatchInfo info
        cdef int error
        while p < end and self.left and not self.ended and self.position < self.end and self.page < most:
            if self.unread_count >= 0:
                self.read_records(most)
                if self.unread_count >= 0:
                    break               # the page is full, or the partition was read to where it ends
                p += self.batch.size
                continue
            error = parse_batch_header(p, end - p, &info)
            if info.size == 0 and end - p > AT_MAGIC or info.magic > 2:
                raise CorruptRecordsError(f"no batch of records begins after offset {self.position - 1}")
            if info.size == 0 or info.size > end - p:
                break                   # cut off
            if info.magic in (0, 1):
                self.read_old(p, info.size)
            elif error == CORRUPT_MESSAGE or info.magic < 0 or not crc_matches(p, &info):
                raise CorruptRecordsError(f"the batch at offset {info.base_offset} does not match its checksum")
            elif info.base_offset < 0 or info.last_offset_delta < 0 or info.base_offset >= INT64_MAX - info.last_offset_delta or \
                    info.record_count < 0 or <int64_t>info.record_count > <int64_t>info.last_offset_delta + 1:
                raise CorruptRecordsError(
                    f"the batch at offset {info.base_offset} has the last offset delta {info.last_offset_delta} and "
                    f"{info.record_count} records"
                )
            elif info.base_offset < self.least_offset:
                raise CorruptRecordsError(f"the batch after offset {self.least_offset - 1} begins at offset {info.base_offset}")
            elif not is_codec(info.codec):
                raise CorruptRecordsError(f"the batch at offset {info.base_offset} has the unknown compression {info.codec}")
            elif self.begin_batch(p, &info, waiting, producers):
                continue
            p += info.size
        return p - first

    cdef bint begin_batch(self, const uint8_t* p, BatchInfo* info, list waiting, set producers) except -1:
        """Returns whether the records of the batch are to be read. Else the position is advanced behind it."""
        cdef int64_t next_offset = info.base_offset + info.last_offset_delta + 1
        cdef const uint8_t* payload = p + AT_RECORDS
        cdef Py_ssize_t size = info.size - AT_RECORDS
        self.least_offset = next_offset
        while waiting and waiting[len(waiting) - 1][0] < next_offset:
            producers.add(waiting.pop()[1])
        if info.control:
            if is_abort(payload, size):
                producers.discard(info.producer_id)
        elif next_offset > self.position and not (self.committed_only and info.transactional and info.producer_id in producers):
            if info.codec != CODEC_NONE:
                try:
                    self.plain = self.decompress(info.codec, payload[:size])
                except ValueError as error:
                    raise CorruptRecordsError(f"the batch at offset {info.base_offset} cannot be decompressed: {error}") from None
                payload, size = <const uint8_t*><const char*>self.plain, len(self.plain)
            self.batch = info[0]
            self.unread_count, self.last_delta = info.record_count, -1
            cursor_init(&self.unread, payload, size)
            return True
        self.position = max(self.position, next_offset)
        return False

    cdef int read_records(self, int64_t most) except -1:
        """Read records of the current batch until `most` bytes are filled, or the partition ends. At the end of the batch
        `unread_count` becomes -1."""
        cdef const BatchInfo* info = &self.batch
        cdef Cursor* records = &self.unread
        cdef Cursor c
        cdef const uint8_t* body
        cdef RecordView record
        cdef int64_t delta
        cdef int32_t length, offset_delta
        while self.unread_count:
            if self.page >= most:
                return 0
            length = read_varint(records)
            body = read_bytes(records, length)
            if records.error:
                break
            cursor_init(&c, body, length)
            read_int8(&c)                       # attributes: none are defined
            delta = read_varlong(&c)
            record.timestamp = info.max_timestamp if info.log_append_time else add(info.base_timestamp, delta)
            record.timestamp_type = info.log_append_time
            offset_delta = read_varint(&c)
            record.offset = info.base_offset + offset_delta
            record.key_bytes = read_varint(&c)
            record.key = read_bytes(&c, record.key_bytes) if record.key_bytes != -1 else NULL
            record.value_bytes = read_varint(&c)
            record.value = read_bytes(&c, record.value_bytes) if record.value_bytes != -1 else NULL
            record.header_count = read_varint(&c)
            record.headers, record.headers_end = c.ptr, c.end
            # An offset beyond the batch would hide records of the next one.
            if c.error or record.header_count < 0 or offset_delta <= self.last_delta or offset_delta > info.last_offset_delta:
                records.error = CURSOR_OK + 1
                break
            self.last_delta = offset_delta
            self.unread_count -= 1
            if record.offset >= self.position and not self.take(&record):
                return 0
        if records.error or cursor_left(records):
            raise CorruptRecordsError(f"the records of the batch at offset {info.base_offset} cannot be read")
        self.unread_count = -1
        self.plain = None
        if self.position < self.end:
            self.position = max(self.position, info.base_offset + info.last_offset_delta + 1)
        return 0

    cdef int read_old(self, const uint8_t* p, Py_ssize_t size) except -1:
        """Read a message of format v0 or v1, or those in a compressed one."""
        cdef RecordView record
        cdef bytes key, value
        try:
            messages = self.open_old(p[:size])
        except ValueError as error:
            raise CorruptRecordsError(f"a message after offset {self.position - 1} cannot be read: {error}") from None
        memset(&record, 0, sizeof(record))
        record.timestamp_type = -1 if p[AT_MAGIC] == 0 else p[AT_MAGIC + 1] >> 3 & 1     # its attributes
        for message in messages:
            if message.offset < self.least_offset or message.offset == INT64_MAX:
                raise CorruptRecordsError(f"the message after offset {self.least_offset - 1} states offset {message.offset}")
            self.least_offset = message.offset + 1
            if message.offset < self.position:
                continue
            key, value = message.key, message.value
            record.offset, record.timestamp = message.offset, message.timestamp
            record.key_bytes = -1 if key is None else len(key)
            record.key = <const uint8_t*>NULL if key is None else <const uint8_t*><const char*>key
            record.value_bytes = -1 if value is None else len(value)
            record.value = <const uint8_t*>NULL if value is None else <const uint8_t*><const char*>value
            if not self.take(&record):
                break
        return 0

    cdef bint take(self, const RecordView* record) except -1:
        """Print the record if it is selected, and advance the position. Returns whether the partition may have more."""
        cdef Py_ssize_t before = self.printer.out.size
        self.page += OBJECT_BYTES * (1 + <int64_t>record.header_count) + record.key_bytes + record.value_bytes
        self.page += record.headers_end - record.headers
        if self.timed and record.timestamp >= self.until_ms:
            self.ended = True
            self.position = record.offset
            return False
        if record.offset >= self.end:
            self.position = record.offset
            return False
        if self.keep is None or self.keep(bytes_of(record.key, record.key_bytes), bytes_of(record.value, record.value_bytes)):
            try:
                self.printer.put(record)
            except ValueError as error:
                self.printer.out.size = before
                raise CorruptRecordsError(str(error)) from None
            self.pending += 1
            self.left -= 1
        self.position = record.offset + 1
        if self.printer.out.size >= self.flush_bytes:
            self.flush()
        return self.left > 0


cdef inline int64_t add(int64_t base, int64_t delta) noexcept nogil:
    return <int64_t>(<uint64_t>base + <uint64_t>delta)


cdef bytes_of(const uint8_t* data, int32_t size):
    return None if size < 0 else data[:size]
