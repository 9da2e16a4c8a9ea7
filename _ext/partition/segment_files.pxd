"""The files of a slot's log, found by number: look-up, creation, truncation, removal [R 4]. Under the slot's lock.

The callers (an append, a roll, a truncation, a recovery) decide when each of these is allowed.
"""

from libc.stdint cimport int64_t

from odradek._ext.shm.slot cimport Commit, Slot


# The largest segment base that is not above `offset` and is below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t segment_holding(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil
# The smallest segment base above `after` and below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t next_segment(Slot* slot, int64_t after, int64_t beyond) noexcept nogil
# The newest producer snapshot that is not above `offset` and is below `beyond`; -1 if there is none, or -errno - 1.
cdef int64_t newest_snapshot(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil

# Find the position in a segment at which the batch with `offset` begins, within the given index entries and size. Returns 0, or
# -errno.
cdef int locate(Slot* slot, int64_t segment_base, int64_t index_entries, int64_t size, int64_t offset,
                int64_t* position) noexcept nogil
# Like `locate`, in any segment; *position is the segment's end if it ends before `offset`. *first_cut: the log end offset after a
# cut there; it is below `offset` if that lies inside a batch.
cdef int locate_for_cut(Slot* slot, const Commit* commit, int64_t base, int64_t offset, int64_t* position,
                        int64_t* first_cut) noexcept nogil

cdef int64_t end_of(int fd) noexcept nogil          # size of an open file in bytes
cdef int create_file(Slot* slot, int64_t base, int kind) noexcept nogil         # creates an empty file; 0, or -errno
# Truncate a file to `size` bytes. A missing index file is no error if `size` is 0. Returns 0, or -errno.
cdef int cut_file(Slot* slot, int64_t base, int kind, int64_t size) noexcept nogil
# Rename a file, named relative to an open directory, to `.deleted`; unlink it if the device has no space for the new name. Returns 0
# (also if it does not exist), or -errno.
cdef int set_aside(int directory, const char* path) noexcept nogil
# Cut off what a failed write left after the commit, if that was not possible at once: call this before any other change. Returns 0,
# or -errno.
cdef int cut_leftover(Slot* slot) noexcept nogil
cdef void unlink_segment(Slot* slot, int64_t base) noexcept nogil
# Remove every file of the segments above `base`, and the snapshots above `log_end_offset`. May be repeated. Returns 0, or -errno.
cdef int remove_segments_above(Slot* slot, int64_t base, int64_t log_end_offset) noexcept nogil
