"""Moves the producers that a load of the log returned to a slot's run, and makes room for them at a start. See
docs/decisions/0018."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.log_state cimport LoadedProducer, LogState


cdef struct RestorePlan:          # the producers of a load to restore, the least recent writer first
    LoadedProducer** items
    int64_t count
    int64_t first                 # the producers before it are dropped for lack of room
    int64_t wall_less_monotonic


# Choose all producers except those from a snapshot that were last heard before `before_ms` (wall clock) and have no open
# transaction. Returns 0, or -ENOMEM.
cdef int choose_producers(LogState* state, int64_t before_ms, RestorePlan* plan) noexcept nogil
cdef void free_plan(RestorePlan* plan) noexcept nogil

# Replace the slot's producers by those of the plan; the caller holds its mutex. Returns whether there was room; if not, the slot has
# no producers.
cdef bint restore_plan(uint32_t index, Slot* slot, RestorePlan* plan) noexcept nogil

# Make room for the plan; the caller holds no lock. Drops half of its producers, the least recent writers, or (`of_others`) as many
# of the partition that has the most producers unused since the start. Returns the affected slot, with *dropped; -1 if nothing is
# left to try.
cdef int64_t make_restore_room(RestorePlan* plan, uint32_t index, bint of_others, int64_t* dropped) noexcept nogil
