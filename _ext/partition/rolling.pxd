"""When the active segment ends, how it is left, and how the next one begins. Under the slot's lock."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.layout cimport Commit, Slot


# Whether the batch, which ends at `last_offset`, belongs to a new segment: size, time, full index, offset overflow.
cdef bint must_roll(Slot* slot, Commit* commit, BatchInfo* info, int64_t last_offset, int64_t wall_ms) noexcept nogil

# Begin a new active segment at the log end offset; a commit of its own, with everything applied before. 0, or -errno.
cdef int roll_now(uint32_t index, Slot* slot, int64_t wall_ms) noexcept nogil

# Leave the active segment as an ordered stop does: the last entry of its time index, a commit of its own. 0, or -errno.
cdef int end_segment(uint32_t index, Slot* slot) noexcept nogil

# A commit block of an empty segment.
cdef void start_segment(Commit* commit, int64_t base, int64_t wall_ms) noexcept nogil
