"""Positions of a Fetch in the log."""

from libc.stdint cimport int64_t

from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.storage.segment_list cimport SegmentList


cdef int64_t first_batch_bytes(FetchPartition p, FetchContext context) except -1
cdef int64_t whole_batches(FetchPartition p, int64_t first, int64_t room) noexcept
cdef int64_t base_of_place(FetchPartition p, SegmentList segments, Commit* commit) except -2
cdef bint place_in_ring(FetchPartition p, Slot* slot, Commit* commit) noexcept
cdef int64_t place_by_index(FetchPartition p, SegmentList segments, Commit* commit, FetchContext context) except -1
cdef int64_t end_of_reading(int64_t base, SegmentList segments, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* position,
                            FetchContext context) except -2
cdef int64_t offset_behind(FetchPartition p, Commit* commit, int64_t position, int64_t limit_offset, FetchContext context) except -1


cdef inline void remember_start(FetchPartition p) noexcept:
    """Remember the position of the batch that contains the fetch offset."""
    p.expected.offset = p.request.fetch_offset
    p.expected.base = p.segment.base_offset
    p.expected.position = p.planned.position
    p.expected.generation = p.found.generation
