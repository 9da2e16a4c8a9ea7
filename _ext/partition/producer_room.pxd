"""Room for producers: before a batch is written, its producer must have an entry, or a place for one [R 2.4]."""

from libc.stdint cimport uint32_t

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.shm.layout cimport Slot


cdef enum Room:
    ROOM_READY = 0
    ROOM_BUSY = 1                 # the arena's mutex is taken: try again
    # Refused; in the order of the events REFUSED_CLIENT to REFUSED_ARENA.
    ROOM_OF_CLIENT = 2            # the client has as many producers as it may have
    ROOM_OF_PARTITION = 3         # the partition has as many as it may have, and they are in use
    ROOM_OF_ARENA = 4             # the arena is full


cdef struct Brought:              # producers of the write at hand that are not applied yet
    uint32_t producers            # all, known ones included: they may be evicted for this one
    uint32_t fresh                # that the partition does not know


# Room for a producer whose entry is `known` (NULL: none) beside those that the write brought before; to be called before the write, because
# after the commit nothing may fail. Counts it in `brought` if it is ready.
cdef Room reserve_producer(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, Brought* brought) noexcept nogil

# Count a batch that was refused for want of room, for the metric; `reserve_producer` counts those that it refuses.
cdef void count_refused(Room room) noexcept nogil

# Where there is no turning back: waits for the arena, and evicts anybody without open transaction. 0, or -ENOMEM.
cdef int reserve_anyhow(uint32_t index, Slot* slot, ProducerEntry* known, Brought* brought) noexcept nogil
