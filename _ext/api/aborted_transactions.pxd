"""The aborted transactions in a Fetch response with read_committed."""

from libc.stdint cimport int64_t

from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.shm.slot cimport Commit
from odradek._ext.storage.segment_list cimport SegmentList
from odradek._ext.storage.txn_index cimport TxnIndexSummary


cdef class AbortedTransactions:
    cdef WriteBuffer found
    cdef readonly int64_t look_ups    # how often a transaction index was searched

    # Set p.aborted to the aborted transactions of the records from the fetch offset to upper_offset, the latter excluded. Raises
    # OSError, and ColdRead.
    cdef int list_for(self, FetchPartition p, FetchContext context, SegmentList segments, Commit* commit, int64_t upper_offset) except -1
    cdef bint search(self, FetchPartition p, FetchContext context, SegmentList segments, Commit* commit, int64_t base,
                     int64_t upper_offset) except -1
    cdef TxnIndexSummary summary_of(self, FetchContext context, SegmentList segments, Commit* commit, int64_t base, int64_t upper_offset)
    cdef int read_aside(self, FetchContext context, SegmentList segments, Commit* commit, int64_t base, int64_t upper_offset) except -1
