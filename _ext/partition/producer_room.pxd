"""Room for producers: before a batch is written, its producer must have an entry, or a place for a new one [R 2.4]."""

from libc.stdint cimport uint32_t

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.shm.layout cimport REFUSED_ARENA, REFUSED_CLIENT, REFUSED_PARTITION
from odradek._ext.shm.slot cimport Slot


cdef enum Room:
    ROOM_READY = 0
    ROOM_BUSY = 1                 # the arena's mutex is taken: try again
    # Refused, by the event that counts it.
    ROOM_OF_CLIENT = REFUSED_CLIENT           # the client is at its limit of producers
    ROOM_OF_PARTITION = REFUSED_PARTITION     # the partition is at its limit, and its producers are in use
    ROOM_OF_ARENA = REFUSED_ARENA             # the arena is full


cdef struct PendingProducers:     # producers of the current write that are not applied yet
    uint32_t producers            # all, including known ones, which might be evicted for a new one
    uint32_t fresh                # producers that the partition does not know


# Reserve room for a producer whose entry is `known` (NULL: none), in addition to those in `pending`. Call this before the write,
# because nothing may fail after the commit. On success the producer is counted in `pending`.
cdef Room reserve_producer(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, PendingProducers* pending) noexcept nogil

# Like `reserve_producer`, for a mark. A mark without an owner evicts only silent producers: it can be set again later, but an evicted
# producer would no longer be recognised when it repeats a batch.
cdef Room reserve_for_mark(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, PendingProducers* pending) noexcept nogil

# Like `reserve_producer` for a producer without an owner, but may evict any producer without an open transaction. So a marker is refused
# only if every entry has an open transaction.
cdef Room reserve_for_marker(uint32_t index, Slot* slot, ProducerEntry* known, PendingProducers* pending) noexcept nogil

# Count a batch that was refused for lack of room, for the metric; `reserve_producer` counts its own refusals.
cdef void count_refused(Room room) noexcept nogil

# Reserve room where a refusal is impossible: waits for the arena, and evicts any producer without an open transaction. Returns 0,
# or -ENOMEM.
cdef int reserve_anyhow(uint32_t index, Slot* slot, ProducerEntry* known, PendingProducers* pending) noexcept nogil
