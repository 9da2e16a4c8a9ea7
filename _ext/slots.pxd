"""Slots for Python: the lock as a context, a slot's name."""

from libc.stdint cimport uint32_t

from broker._ext.shared cimport Slot


cdef str topic_of(Slot* slot)


cdef class Held:                  # the slot's lock as a context
    cdef uint32_t index
    cdef Slot* slot
