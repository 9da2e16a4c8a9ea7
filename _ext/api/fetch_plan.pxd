"""The plan of a Fetch response: where the requested records are."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.shm.layout cimport Commit, Slot
from odradek._ext.shm.topics cimport TopicDirectory
from odradek._ext.storage.segment_list cimport SegmentCache, SegmentList


cdef enum:
    REFUSED = 2                       # result of a check of a partition: it has an error, or needs no records


cdef class FetchPlan:
    cdef TopicDirectory topics
    cdef SegmentCache cache
    cdef list log_dirs                # paths, bytes
    cdef dict reported                # slot -> when its read error was last logged, ms
    cdef dict segment_lists           # slot -> (incarnation, SegmentList)
    cdef int32_t max_bytes            # fetch.max.bytes
    cdef readonly int64_t looks       # how often a partition was examined, for plans and after wake-ups
    cdef readonly int64_t notes       # how often the position of a follower was noted
    cdef object replicas              # ReplicaView in a cluster; None

    cdef int begin_plan(self, FetchContext context) except -1
    cdef bint plan_some(self, FetchContext context, Py_ssize_t count) except -1
    cdef int measure(self, FetchPartition p, FetchContext context) except -1
    cdef int resolve(self, FetchPartition p) except -1
    cdef int examine(self, FetchPartition p, FetchContext context, bint planning) except -1
    cdef int examine_once(self, FetchPartition p, FetchContext context, bint planning) except -1
    cdef int16_t refusal(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int check_replicas(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1
    cdef int diverge(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int note(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef bint refresh(self, FetchPartition p, FetchContext context) except -1
    cdef int prefer(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int name_leader(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int locate_records(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1
    cdef int16_t unreadable(self, FetchPartition p, FetchContext context, Slot* slot, error) except -1
    cdef int report(self, uint32_t known, Slot* slot, failure) except -1
    cdef SegmentList segments_of(self, uint32_t slot, Slot* at)
    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchContext context) except -1
    cdef int sweep(self) except -1
