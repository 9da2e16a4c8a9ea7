"""Reads the batches of a log to compact; see `batch_reader.pxd`. No lock is needed, because only closed segments are read.

An invalid batch ends the pass with CorruptSegmentError, a concurrent removal of the segment with CompactionAborted.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from odradek._ext.compaction.compacted_records cimport last_offset_of
from odradek._ext.compaction.compaction_log cimport ABORTED_SOURCE, CompactedLog
from odradek._ext.protocol.byte_order cimport load64
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD
from odradek._ext.records.codecs cimport is_codec
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, message_crc_matches, parse_message
from odradek._ext.records.record_batch cimport (
    AT_RECORDS,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    crc_matches,
    parse_batch_header,
)
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.log_scan cimport read_at
from odradek._ext.storage.log_state cimport FILE_LOG

from odradek._ext.compaction.compaction_log import CompactionAborted, CorruptSegmentError


cdef enum:
    LARGEST_OPENED = 0x7FFFFFFF   # most bytes of a decompressed batch: its size was limited when it was appended
    SMALLEST_BUFFER = 4096


cdef class BatchReader:
    """The reader of a thread that compacts one log after another; the parameters are those of `Compactor`.

    :raises MemoryError: there is no memory for the buffer.
    """

    def __cinit__(self, CompactedLog log not None, size_t buffer_bytes, decompress, open_old, pace):
        self.log = log
        self.decompress = decompress
        self.open_old = open_old
        self.pace = pace
        self.descriptor = -1
        self.usual_bytes = self.buffer_bytes = max(buffer_bytes, <size_t>SMALLEST_BUFFER)
        self.buffer = <uint8_t*>malloc(self.buffer_bytes)
        if self.buffer == NULL:
            raise MemoryError(f"no memory for a read buffer: {self.buffer_bytes} bytes")

    def __dealloc__(self):
        free(self.buffer)

    cdef int begin_segment(self, source) except -1:
        self.base_offset = self.next_offset = source.base_offset
        self.end_offset = source.end_offset
        self.size = source.size
        self.position = 0
        self.descriptor = self.log.open_file(self.base_offset, FILE_LOG)
        return 0

    cdef int end_segment(self) except -1:
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = -1
        return 0

    def look(self) -> None:
        """Raise CompactionAborted if the pass must end early: the broker stops, or the log or the segment being read was
        removed.

        Call this while the pass waits, so that it does not keep the disk space of a removed segment.
        """
        cdef struct_stat status
        self.log.look()
        if fstat(self.descriptor, &status) == 0 and status.st_nlink == 0:
            self.log.check(ABORTED_SOURCE)

    cdef int64_t fill(self) except -1:
        cdef int64_t length = min(self.size - self.position, <int64_t>self.buffer_bytes), read_bytes
        self.look()
        with nogil:
            read_bytes = read_at(self.descriptor, self.buffer, <size_t>length, self.position)
        if read_bytes < 0:
            raise file_error(<int>-read_bytes, "a segment")
        if read_bytes < length:
            raise CompactionAborted("a segment was cut")
        return read_bytes

    cdef int grow(self, int64_t length) except -1:
        cdef int64_t needed
        cdef uint8_t* larger
        if length < MESSAGE_HEADER_BYTES or length == self.size - self.position:
            raise self.corrupt(0)
        needed = <int64_t>load64(self.buffer + 4) & 0xFFFFFFFF
        needed += BATCH_OVERHEAD_BYTES
        if needed > self.size - self.position or needed <= <int64_t>self.buffer_bytes:
            raise self.corrupt(0)
        larger = <uint8_t*>realloc(self.buffer, <size_t>needed)
        if larger == NULL:
            raise MemoryError(f"no memory for a batch of {needed} bytes")
        self.buffer = larger
        self.buffer_bytes = <size_t>needed
        return 0

    cdef int advance(self, size_t used, int64_t written) except -1:
        self.position += <int64_t>used
        self.pace(<int64_t>used + written, self.look)
        return 0

    cdef int end_pass(self) except -1:
        if self.buffer_bytes > self.usual_bytes:
            free(self.buffer)
            self.buffer = <uint8_t*>malloc(self.usual_bytes)
            self.buffer_bytes = self.usual_bytes
            if self.buffer == NULL:
                raise MemoryError("no memory for a read buffer")
        return 0

    cdef int parse_next(self, const uint8_t* p, size_t n) noexcept nogil:
        cdef int error
        if n < MESSAGE_HEADER_BYTES:
            self.batch.size = 0
            return STEP_DONE
        error = parse_batch_header(p, n, &self.batch)
        if error == INVALID_RECORD and n >= MESSAGE_HEADER_BYTES:
            error = parse_message(p, n, &self.batch)
        if error and n >= BATCH_HEADER_BYTES:
            return STEP_CORRUPT
        elif error or <size_t>self.batch.size > n:
            self.batch.size = 0
            return STEP_DONE
        elif self.batch.base_offset < self.next_offset or self.batch.last_offset_delta < 0 \
                or last_offset_of(&self.batch) >= self.end_offset \
                or (self.batch.record_count < 0 and self.batch.magic == 2) \
                or not is_codec(self.batch.codec):
            return STEP_CORRUPT
        elif not (crc_matches(p, &self.batch) if self.batch.magic == 2 else message_crc_matches(p, &self.batch)):
            return STEP_CORRUPT
        return STEP_DONE

    cdef bytes open_batch(self, size_t used):
        payload = (<const char*>self.buffer + used)[AT_RECORDS:self.batch.size]
        try:
            return self.decompress(self.batch.codec, payload, LARGEST_OPENED)
        except ValueError as error:
            raise self.corrupt(used) from error

    cdef list open_message(self, size_t used):
        try:
            return self.open_old((<const char*>self.buffer + used)[:self.batch.size])
        except ValueError as error:
            raise self.corrupt(used) from error

    cdef object corrupt(self, size_t used):
        return CorruptSegmentError(f"{self.base_offset:020d}.log: no valid batch at position {self.position + <int64_t>used}, "
                                   f"offset {self.next_offset} or later")
