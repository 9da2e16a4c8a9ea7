"""Slots for Python: a slot's name, copies of its producers, and the exceptions for a change that is refused."""

from libc.stdint cimport uint32_t

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.slot cimport Slot


cdef enum:
    LOCK_PATIENCE_MS = 15000      # how long the control path and upkeep wait for a slot's lock

# Returns the slot; raises IndexError if there is no such slot.
cdef Slot* checked_slot(uint32_t index) except NULL
cdef str topic_of(Slot* slot)
# The topic and the partition of a slot for messages, as `orders-0`. Read without the lock.
cdef str name_of(Slot* slot)
# The exception to raise when the slot's checks have refused a change.
cdef object refused(AppendResult result)
# The exception to raise when `wait_slot` has timed out.
cdef object busy(uint32_t index)


cdef class ProducerCopies:
    """Copies of all producers of a slot at one moment: copied under the slot's lock, converted to objects after it [R 5.2]."""
    cdef ProducerEntry* entries
    cdef uint32_t count

    # Copy the producers; waits for the lock. Raises SlotBusy, MemoryError.
    cdef int copy(self, uint32_t index) except -1
    # Copy those with an open transaction, the oldest transaction first.
    cdef int copy_open(self, uint32_t index) except -1
    # Replace the memory for copies by memory for `known` producers and some more; returns for how many.
    cdef uint32_t make_room(self, uint32_t known) except 0
