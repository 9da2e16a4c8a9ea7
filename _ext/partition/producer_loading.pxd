"""From the producers that a load of the log found to a slot's run, and room for them at a start. See docs/decisions/0018."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.shm.layout cimport Slot
from odradek._ext.storage.log_state cimport LoadedProducer, LogState


cdef struct Chosen:               # the producers of a load that are restored, those first that wrote the longest ago
    LoadedProducer** items
    int64_t count
    int64_t first                 # those before it are left out for want of room
    int64_t wall_less_monotonic


# All but those of a snapshot that were last heard of before `before_ms` (wall clock) and have no open transaction; 0, or -ENOMEM.
cdef int choose_producers(LogState* state, int64_t before_ms, Chosen* chosen) noexcept nogil
cdef void free_chosen(Chosen* chosen) noexcept nogil

# Replace the slot's producers by the chosen ones, with its mutex held; whether there was room (else it has none).
cdef bint restore_chosen(uint32_t index, Slot* slot, Chosen* chosen) noexcept nogil

# Make room for `chosen`, without a lock held: leave out half of them, those that wrote the longest ago, or (`of_others`) drop as many of
# the partition that has the most producers nobody has used since the start. The slot concerned, with *dropped; -1 if there is nothing left
# to be tried.
cdef int64_t make_restore_room(Chosen* chosen, uint32_t index, bint of_others, int64_t* dropped) noexcept nogil
