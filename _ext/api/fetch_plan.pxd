"""The plan of a Fetch response: where the requested records are."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.api.aborted_transactions cimport AbortedTransactions
from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.api.replica_reads cimport ReadErrors, ReplicaReads
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.shm.topics cimport TopicDirectory
from odradek._ext.storage.segment_list cimport SegmentCache, SegmentList


cdef class FetchPlan:
    cdef TopicDirectory topics
    cdef SegmentCache cache
    cdef AbortedTransactions aborted
    cdef list log_dirs                # paths, bytes
    cdef dict segment_lists           # slot -> (incarnation, SegmentList)
    cdef int32_t max_bytes            # fetch.max.bytes
    cdef readonly int64_t looks       # how often a partition was examined, for plans and after wake-ups
    cdef ReadErrors errors
    cdef ReplicaReads replica_reads
    cdef bint clustered               # other brokers may exist

    cdef int begin_plan(self, FetchContext context) except -1
    cdef bint plan_some(self, FetchContext context, Py_ssize_t count) except -1
    cdef int measure(self, FetchPartition p, FetchContext context) except -1
    cdef int resolve(self, FetchPartition p) except -1
    cdef bint denied(self, FetchPartition p, FetchContext context) except -1
    cdef bint lost_rights(self, FetchContext context) except -1
    cdef int examine(self, FetchPartition p, FetchContext context, bint planning) except -1
    cdef int examine_once(self, FetchPartition p, FetchContext context, bint planning) except -1
    cdef int16_t refusal(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int locate_records(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1
    cdef int16_t unreadable(self, FetchPartition p, FetchContext context, Slot* slot, error) except -1
    cdef SegmentList segments_of(self, uint32_t slot, Slot* at)
    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchContext context) except -1
    cdef int sweep(self) except -1
