"""Removal of the oldest segments of a log: their renaming, which the next process that takes the slot's lock finishes after a
death [R 4].

A leaf module: `slot_access` calls it in its recovery; the functions that begin a removal are in `log_start`.
"""

from odradek._ext.shm.slot cimport Slot


cdef enum:
    INTENT_REMOVE = 2             # argument: base offset of the first segment that remains

# Carry out the removal in the slot's intent. The caller holds the slot's lock. May be repeated. Returns 0, or -errno.
cdef int finish_removal(Slot* slot) noexcept nogil
