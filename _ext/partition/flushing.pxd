"""Flushing: what is in a log gets onto the device, by one flusher a slot at a time, shared by all who wait for it [R 4.5]."""

from libc.stdint cimport uint32_t


# Sync everything before the log end offset to the device. `whole`: the indexes too, even if the log itself is synced.
# 1 flushed, 0 nothing to do or another process is flushing it, -errno.
cdef int flush_slot(uint32_t index, bint whole) noexcept nogil
