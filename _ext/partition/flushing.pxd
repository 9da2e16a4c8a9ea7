"""Flushing: one flusher at a time syncs a slot's log to the device, for all processes that wait for it [R 4.5]."""

from libc.stdint cimport uint32_t


# Sync everything before the log end offset to the device. `whole`: also the indexes, even if the log itself is synced. Returns 1 if
# it flushed, 0 if there is nothing to do or another process is flushing the slot, or -errno.
cdef int flush_slot(uint32_t index, bint whole) noexcept nogil
