"""The map from each key to its newest offset, built from the dirty part of a log. A base class of `Compactor`, like
`CompactedLog`."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.compaction.offset_map cimport OffsetMap


cdef class KeyedLog(CompactedLog):
    cdef OffsetMap map
    cdef double load_factor
    cdef object pace
    cdef int64_t first_dirty_offset
    cdef int64_t latest_offset    # last offset that the map covers
    cdef int64_t map_bytes_read

    cdef int build_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1
    cdef int build_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int map_records(self, const uint8_t* p, size_t n) noexcept nogil
    cdef int map_old(self, const uint8_t* message, int64_t base, int64_t position) except -1
