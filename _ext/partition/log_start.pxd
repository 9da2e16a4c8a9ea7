"""Functions that move a log's beginning: raise the log start offset, roll an expired active segment, remove whole segments [R
4].

The caller must keep their order (``broker/odradek/shm/log_starts.py``): raise the offset, make it durable, then answer the
client or remove segments.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport AppendResult


cdef enum:
    HIGH_WATERMARK = -1           # as an offset: everything that is committed


# Raise the log start offset to `offset`, at most to the high watermark; lower values change nothing. `role`: the role that the slot
# must have, ROLE_NONE for any. *log_start: the offset afterwards.
cdef AppendResult advance_log_start(uint32_t index, uint32_t incarnation, uint32_t role, int32_t leader_epoch, int64_t offset,
                                    int spins, int64_t* log_start) noexcept nogil
# Begin a new active segment if the current one begins at `base`, ends at `end` and is committed; otherwise APPEND_OUT_OF_RANGE.
cdef AppendResult roll_behind(uint32_t index, uint32_t incarnation, int64_t base, int64_t end, int64_t wall_ms, int spins,
                              int* error_number) noexcept nogil
# Rename all files of the segments before the one at `keep`, which must exist and not lie above the log start offset.
cdef AppendResult remove_segments_before(uint32_t index, uint32_t incarnation, int64_t keep, int spins,
                                         int* error_number) noexcept nogil
