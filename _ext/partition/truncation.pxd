"""Cuts off the end of a log, or drops the whole log, according to the slot's intent; after a death the next process that takes the
slot's lock finishes it [R 4].

`follower_append` begins it with `truncate_to` or `restart_log`; `slot_access` calls this module in its recovery.
"""

from libc.stdint cimport uint32_t

from odradek._ext.shm.slot cimport Slot


cdef enum:
    INTENT_TRUNCATE = 1           # arguments: offset, segment that contains it, position in it, wall clock (ms)
    INTENT_RESTART = 4            # arguments: offset at which the empty log begins, wall clock (ms)

# Carry out the truncation in the slot's intent. The caller holds the slot's lock. May be repeated. Returns 0, or -errno.
cdef int finish_truncation(uint32_t index, Slot* slot) noexcept nogil

# Drop the log and begin it again at the offset in the slot's intent. The caller holds the slot's lock. May be repeated. Returns 0,
# or -errno.
cdef int finish_restart(uint32_t index, Slot* slot) noexcept nogil
