"""The files of a slot's log, by number: found, created, cut, removed [R 4]. Under the slot's lock.

What may be done to them when, the callers know: an append, a roll, a truncation, a recovery.
"""

from libc.stdint cimport int64_t

from odradek._ext.shm.layout cimport Commit, Slot


# The largest segment base that is not above `offset`, of those below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t segment_holding(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil
# The smallest segment base above `after` and below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t next_segment(Slot* slot, int64_t after, int64_t beyond) noexcept nogil
# The newest snapshot of producers that is not above `offset`, of those below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t newest_snapshot(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil

# Where in a segment the batch that holds `offset` begins, in what the index and the log say up to these; 0, or -errno.
cdef int locate(Slot* slot, int64_t segment_base, int64_t index_entries, int64_t size, int64_t offset,
                int64_t* position) noexcept nogil
# The same in any segment: its end, if it ends before `offset`. *first_cut: where the log ends if it is cut there; below `offset`
# where that lies inside a batch.
cdef int locate_for_cut(Slot* slot, const Commit* commit, int64_t base, int64_t offset, int64_t* position,
                        int64_t* first_cut) noexcept nogil

cdef int64_t end_of(int fd) noexcept nogil          # bytes of an open file
cdef int create_file(Slot* slot, int64_t base, int kind) noexcept nogil         # empty; 0, or -errno
# To `size` bytes; an index that is to be empty need not be there. 0, or -errno.
cdef int cut_file(Slot* slot, int64_t base, int kind, int64_t size) noexcept nogil
# What a failed write left behind the commit, if it could not be cut off then: before anything else is done. 0, or -errno.
cdef int cut_leftover(Slot* slot) noexcept nogil
cdef void unlink_segment(Slot* slot, int64_t base) noexcept nogil
# Every file of the segments above `base`, and the snapshots above `log_end_offset`; 0, or -errno. May be repeated.
cdef int remove_segments_above(Slot* slot, int64_t base, int64_t log_end_offset) noexcept nogil
