from libc.stdint cimport int64_t


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

    cdef int drop(self, OpenSegment segment) except -1
    cdef int make_room(self, Py_ssize_t room, OpenSegment keep=?) except -1
    # The descriptor of a file of `owner`; -2 if the file is absent and `may_be_absent`.
    cdef int open_file(self, bytes path, bint may_be_absent, OpenSegment owner) except -1


# A partition's segments as this process last listed them.
cdef class SegmentList:
    cdef readonly bytes directory
    cdef readonly int64_t generation
    cdef SegmentCache cache
    cdef dict opened                # base offset -> OpenSegment
    cdef int64_t* bases
    cdef Py_ssize_t count

    # List the directory again and drop the open segments if `generation` differs from the current one.
    cdef int refresh(self, int64_t generation) except -1
    # The base offset of the segment that contains `offset`: the largest one not above it; the first one if all are above; -1
    # without segments.
    cdef int64_t floor(self, int64_t offset) noexcept
    # The base offset of the segment after `base_offset`, -1 if that is the last one.
    cdef int64_t following(self, int64_t base_offset) noexcept
    cdef OpenSegment segment(self, int64_t base_offset)
