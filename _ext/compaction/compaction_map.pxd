"""The map from each key to its newest offset, built from the dirty part of a log.

Belongs to one `Compactor` and is used by its thread only. Owns the memory of the map, and reads the log through its reader.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.compaction.batch_reader cimport BatchReader
from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.compaction.offset_map cimport OffsetMap


cdef class KeyMap:
    cdef CompactedLog log
    cdef BatchReader reader
    cdef OffsetMap map
    cdef double load_factor
    cdef int64_t first_dirty_offset
    cdef int64_t latest_offset    # last offset that the map covers
    cdef int64_t bytes_read

    # Put the keys of the records from `start` to before `end` into the map until it is full. Returns whether it became full.
    cdef bint build(self, sources, int64_t start, int64_t end) except *
    cdef int64_t position_of(self, source, int64_t offset) except -1
    cdef int build_step(self) except -1
    cdef int build_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int map_records(self, const uint8_t* p, size_t n) noexcept nogil
    cdef int map_message(self, size_t used) except -1
