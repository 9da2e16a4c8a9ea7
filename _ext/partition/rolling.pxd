"""When the active segment ends, how it is closed, and how the next one begins. Under the slot's lock."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.slot cimport Commit, Slot


# Whether the batch, which ends at `last_offset`, needs a new segment because of size, time, a full index, or offset overflow.
cdef bint must_roll(Slot* slot, Commit* commit, BatchInfo* info, int64_t last_offset, int64_t wall_ms) noexcept nogil

# Begin a new active segment at the log end offset: a separate commit, with everything applied before it. Returns 0, or -errno.
cdef int roll_now(uint32_t index, Slot* slot, int64_t wall_ms) noexcept nogil

# Close the active segment as an ordered stop does: write the last entry of its time index, as a separate commit. Returns 0, or
# -errno.
cdef int end_segment(uint32_t index, Slot* slot) noexcept nogil

# Fill in the commit block of an empty segment.
cdef void start_segment(Commit* commit, int64_t base, int64_t wall_ms) noexcept nogil
