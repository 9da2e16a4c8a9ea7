"""Reads the batches of a log to compact, one segment after another.

Belongs to one `Compactor` and is used by its thread only. Owns the read buffer, the open segment and the position in it. Batches
are checked as data that a disk may have damaged.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.records.record_batch cimport BatchInfo


cdef enum:                        # result of a step through the bytes in the buffer
    STEP_DONE = 0
    STEP_CODEC = 1                # `batch` is compressed, or of an old format: Python must read it
    STEP_MAP_FULL = 2
    STEP_CORRUPT = 3


cdef class BatchReader:
    cdef CompactedLog log
    cdef object decompress, open_old, pace
    cdef uint8_t* buffer
    cdef size_t buffer_bytes      # current size; it grows for a larger batch
    cdef size_t usual_bytes
    cdef int descriptor           # of the open segment; -1: none
    cdef int64_t base_offset, size, position    # of the open segment; `position` of the first byte in the buffer
    cdef int64_t next_offset, end_offset        # the limits of a batch's offsets
    cdef BatchInfo batch          # the header that `parse_next` has read last

    # Open a segment (a Source). The caller calls `end_segment` in any case.
    cdef int begin_segment(self, source) except -1
    cdef int end_segment(self) except -1
    # Fill the buffer from `position` on. Returns the number of bytes read. Raises OSError, CompactionAborted.
    cdef int64_t fill(self) except -1
    # Enlarge the buffer for the batch at its start, of which it has only `length` bytes.
    cdef int grow(self, int64_t length) except -1
    # Go `used` bytes forward, and wait if the pass is too fast. `written`: bytes that the step has written.
    cdef int advance(self, size_t used, int64_t written) except -1
    # Return the buffer to its usual size after a larger batch.
    cdef int end_pass(self) except -1
    # Check the header at p and parse it into `batch`. Returns STEP_DONE, with size 0 if the batch is not completely in memory, or
    # STEP_CORRUPT.
    cdef int parse_next(self, const uint8_t* p, size_t n) noexcept nogil
    # The records of `batch`, which is compressed and begins at `used` in the buffer. Raises CorruptSegmentError if its codec cannot
    # read them.
    cdef bytes open_batch(self, size_t used)
    # The messages in `batch`, a message of format v0 or v1 at `used` in the buffer. Raises CorruptSegmentError.
    cdef list open_message(self, size_t used)
    # The error for the bytes at `used` in the buffer.
    cdef object corrupt(self, size_t used)
