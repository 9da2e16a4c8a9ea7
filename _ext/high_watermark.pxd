"""The high watermark: published with its position in the log, never backwards. Under the slot's lock."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from broker._ext.shared cimport Slot
from broker._ext.taking cimport AppendResult


# The caller holds the slot's lock; lower values change nothing.
cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil

cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil
