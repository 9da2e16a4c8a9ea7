"""The high watermark: published together with its position in the log; it never moves backwards. Under the slot's lock."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.layout cimport Slot


# Raise the high watermark; lower values change nothing. The caller holds the slot's lock.
cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil

# Raise a lone leader's high watermark after everything before `flushed_offset` was synced: to `flushed_offset`, or to the log end
# if fewer than flush.messages records follow it. `segment_base` and `position` locate `flushed_offset`; -1 if not known. Returns
# whether the high watermark moved. The caller holds the slot's lock.
cdef bint follow_device(Slot* slot, int64_t flushed_offset, int64_t segment_base, int64_t position) noexcept nogil

cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil
