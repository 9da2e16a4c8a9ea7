from libc.stdint cimport int64_t

from odradek._ext.storage.txn_index cimport TxnIndexSummary


# The open files of one segment. The descriptors stay open as long as the object is referenced: a sender of log_fd keeps a
# reference.
cdef class OpenSegment:
    cdef readonly int64_t base_offset
    cdef readonly int log_fd
    cdef int index_fd               # -1 until first used
    cdef int time_fd
    cdef int txn_fd                 # -1 also if there is no such file
    cdef bint used                  # since the cache last checked: a second chance
    cdef SegmentList segments       # None once dropped

    cdef bytes path(self, bytes extension)
    cdef int open_file(self, bytes extension, bint may_be_absent=?) except -1
    cdef int index(self) except -1
    cdef int time_index(self) except -1
    # -2 if the segment has no transaction index.
    cdef int txn_index(self) except -1


# The open segments of a process, at most `limit` of them.
cdef class SegmentCache:
    cdef readonly Py_ssize_t limit
    cdef object ring                # OrderedDict of OpenSegment, the next candidate for closing first
    cdef object summaries           # OrderedDict (SegmentList, base offset) -> TxnIndexSummary, the one that was used least recently first
    cdef readonly int64_t summary_bytes

    cdef int drop(self, OpenSegment segment) except -1
    cdef int make_room(self, Py_ssize_t room, OpenSegment keep=?) except -1
    # The descriptor of a file of `owner`; -2 if the file is absent and `may_be_absent`.
    cdef int open_file(self, bytes path, bint may_be_absent, OpenSegment owner) except -1
    cdef int keep_summary(self, SegmentList segments, int64_t base_offset, TxnIndexSummary summary) except -1
    cdef int drop_summary(self, SegmentList segments, int64_t base_offset) except -1


# A partition's segments as this process last listed them.
cdef class SegmentList:
    cdef readonly bytes directory
    cdef readonly int64_t generation
    cdef SegmentCache cache
    cdef dict opened                # base offset -> OpenSegment
    cdef dict summaries             # base offset -> TxnIndexSummary
    cdef list read_aside            # (base offset, TxnIndexSummary) that another thread made; the owner's thread takes them
    cdef int64_t* bases
    cdef Py_ssize_t count
    cdef int64_t* indexed           # those with a transaction index
    cdef Py_ssize_t indexed_count
    # Set by the owner after `refresh`: when the directory was listed, all segments before this base offset were closed, so that it is
    # known which of them have a transaction index. -1: not set yet.
    cdef int64_t closed_before

    # List the directory again and drop the open segments and the summaries if `generation` differs from the current one.
    cdef int refresh(self, int64_t generation) except -1
    # The base offset of the segment that contains `offset`: the largest one not above it; the first one if all are above; -1
    # without segments.
    cdef int64_t floor(self, int64_t offset) noexcept
    # The base offset of the segment after `base_offset`, -1 if that is the last one.
    cdef int64_t following(self, int64_t base_offset) noexcept
    # The base offset of the first segment at or after `base_offset` that has a transaction index, or may have got one since the
    # directory was listed; -1 if there is none.
    cdef int64_t next_indexed(self, int64_t base_offset) noexcept
    cdef OpenSegment segment(self, int64_t base_offset)
    # The summary of a segment's transaction index; None if it is not known.
    cdef TxnIndexSummary summary(self, int64_t base_offset)
    cdef int keep_summary(self, int64_t base_offset, TxnIndexSummary summary) except -1
