"""Where the records lie that a Fetch asks for."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from broker._ext.fetch_context cimport FetchContext, FetchPartition
from broker._ext.segment_list cimport OpenSegment, SegmentCache, SegmentList
from broker._ext.shared cimport Commit, Slot
from broker._ext.topics cimport TopicDirectory


cdef class FetchPlaces:
    cdef TopicDirectory topics
    cdef SegmentCache cache
    cdef list log_dirs                # paths, bytes
    cdef dict reported                # slot -> when its unreadable log was last told of, ms
    cdef dict segment_lists           # slot -> (incarnation, SegmentList)
    cdef int32_t max_bytes            # fetch.max.bytes

    cdef int plan(self, FetchContext wait) except -1
    cdef int resolve(self, FetchPartition p) except -1
    cdef int plan_partition(self, FetchPartition p, FetchContext wait, int64_t* budget, bint* first) except -1
    cdef int look_at(self, FetchPartition p, FetchContext wait, int64_t* budget, bint* first) except -1
    cdef int report(self, uint32_t known, Slot* slot, failure) except -1
    cdef int cold_look_up(self, FetchContext wait, OpenSegment segment, int index_fd, int64_t entries, int64_t size,
                          int64_t offset) except -1
    cdef int64_t first_batch_bytes(self, FetchPartition p, FetchContext wait) except -1
    cdef SegmentList segments_of(self, uint32_t slot, Slot* at)
    cdef bint place_in_ring(self, FetchPartition p, Slot* slot, Commit* commit) noexcept
    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchContext wait) except -1
    cdef int64_t position_of(self, SegmentList segments, int64_t base, Commit* commit, int64_t offset, FetchContext wait) except -1
    cdef int sweep(self) except -1
