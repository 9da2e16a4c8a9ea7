"""Slots as the control path handles them: given to a partition, filled from its log, given a role, deleted."""

from libc.stdint cimport int64_t, uint32_t

from broker._ext.shared cimport Slot


# Take the slot's lock, waiting without hurry; 0, or -1 after the time-out.
cdef int wait_slot(uint32_t index, Slot* slot, int64_t timeout_ms) noexcept nogil
cdef str topic_of(Slot* slot)


cdef class Held:                  # the slot's lock as a context
    cdef uint32_t index
    cdef Slot* slot
