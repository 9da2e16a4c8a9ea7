"""Slots for Python: a slot's name, and what is raised when its lock is not to be had."""

from libc.stdint cimport uint32_t

from odradek._ext.shm.layout cimport Slot


cdef enum:
    LOCK_PATIENCE_MS = 15000      # of the control path and of upkeep, which wait for a slot's lock

# :raises IndexError: there is no such slot.
cdef Slot* checked_slot(uint32_t index) except NULL
cdef str topic_of(Slot* slot)
cdef object busy(uint32_t index)
