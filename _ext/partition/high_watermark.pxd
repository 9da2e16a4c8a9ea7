"""The high watermark: published with its position in the log, never backwards. Under the slot's lock."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.layout cimport Slot


# The caller holds the slot's lock; lower values change nothing.
cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil

# Raise a lone leader's high watermark as far as flush.messages allows when everything before `flushed_offset` is on the device: to
# there, or to the log end if fewer than flush.messages records are behind. `segment_base` and `position` are where that offset lies, -1
# if not known. Whether the high watermark moved. Under the slot's lock.
cdef bint follow_device(Slot* slot, int64_t flushed_offset, int64_t segment_base, int64_t position) noexcept nogil

cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil
