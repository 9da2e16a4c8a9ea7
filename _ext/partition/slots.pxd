"""Slots for Python: a slot's name, and the exception for a lock that stays busy."""

from libc.stdint cimport uint32_t

from odradek._ext.shm.layout cimport Slot


cdef enum:
    LOCK_PATIENCE_MS = 15000      # how long the control path and upkeep wait for a slot's lock

# Returns the slot; raises IndexError if there is no such slot.
cdef Slot* checked_slot(uint32_t index) except NULL
cdef str topic_of(Slot* slot)
cdef object busy(uint32_t index)
