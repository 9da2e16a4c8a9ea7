"""Cutting the end of a log off, as its intent names it: whoever takes the slot's lock after a death finishes it [R 4].

The verb that begins one is `following.truncate_to`; `taking` calls it in its recovery.
"""

from libc.stdint cimport uint32_t

from odradek._ext.shm.layout cimport Slot


cdef enum:
    INTENT_TRUNCATE = 1           # arguments: offset, segment that holds it, position in it, wall clock (ms)

# Carry out the truncation that the slot's intent names; 0, or -errno. The caller holds the slot's lock. Restartable.
cdef int finish_truncation(uint32_t index, Slot* slot) noexcept nogil
