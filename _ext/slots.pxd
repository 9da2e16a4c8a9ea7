"""Slots as the control path handles them: given to a partition, filled from its log, given a role, flushed, deleted."""

from libc.stdint cimport int64_t, uint32_t

from broker._ext.shared cimport Slot


# Sync everything before the log end offset to the device; one flusher a slot at a time. 1 flushed, 0 nothing to do or another
# is at it, -errno.
cdef int flush_slot(uint32_t index) noexcept nogil
