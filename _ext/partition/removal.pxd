"""Taking the oldest segments out of a log: the renaming, which whoever takes the slot's lock after a death finishes [R 4].

A leaf: `taking` calls it in its recovery, the verbs that begin a removal are in `log_start`.
"""

from odradek._ext.shm.layout cimport Slot


cdef enum:
    INTENT_REMOVE = 2             # arguments: base offset of the first segment that stays

# Carry out the removal that the slot's intent names; 0, or -errno. The caller holds the slot's lock. Restartable.
cdef int finish_removal(Slot* slot) noexcept nogil
