"""Decides which producer gets room and which one is evicted for it; see producer_room.pxd and docs/decisions/0018.

The caller holds the slot's mutex; no GIL. A client's share is checked against counts that other processes change meanwhile, so
a client may exceed its limit by a few.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from odradek._ext.partition.producer_runs cimport (
    SMALL_CAPACITY,
    count_event,
    count_of_owner,
    drop_producer,
    move_run,
    oldest_of_owner,
    order_for,
    run_capacity,
    silent_producer,
)
from odradek._ext.shm.arena cimport ARENA_BUSY, ARENA_READY, ArenaResult
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.layout cimport EVICTED_FOR_CLIENT, EVICTED_SILENT, Header, region
from odradek._ext.shm.owners cimport OWNER_NOBODY


cdef enum:
    LOOKED_AT = 128               # entries in one search for a silent producer
    EVICTED_AT_ONCE = 64          # evicted for a client beyond its share; the next append continues


cdef enum Evicts:                 # what a full partition evicts for a new producer, if none is silent
    EVICTS_OWN = 0                # the least recently heard producer of its owner; none for OWNER_NOBODY
    EVICTS_OF_NOBODY = 1          # for OWNER_NOBODY, too: whatever client uses the producer that is evicted


cdef bint evict(Slot* slot, ProducerEntry* entry, int event) noexcept nogil:
    """Evict an entry. Returns whether there was one."""
    if entry == NULL:
        return False
    drop_producer(slot, entry)
    count_event(event, 1)
    return True


cdef inline bint evict_own(Slot* slot, uint32_t owner) noexcept nogil:
    return evict(slot, oldest_of_owner(slot, owner), EVICTED_FOR_CLIENT)


cdef inline bint evict_for(Slot* slot, uint32_t owner, Evicts evicts) noexcept nogil:
    """Evict a producer of a full partition, or of a full arena, for a new one of `owner`. Returns whether one was evicted."""
    if evict_silent(slot):
        return True
    return (owner != OWNER_NOBODY or evicts == EVICTS_OF_NOBODY) and evict_own(slot, owner)


cdef inline bint evict_silent(Slot* slot) noexcept nogil:
    return evict(slot, silent_producer(slot, coarse_ms() - region().header.producer_silent_ms, LOOKED_AT), EVICTED_SILENT)


cdef inline bint is_nearly_full() noexcept nogil:
    return region().header.arena_used > region().header.arena_units // 4 * 3


cdef bint is_beyond(Slot* slot, uint32_t owner, uint32_t fresh) noexcept nogil:
    """Whether another producer would exceed the client's share, here or in total. A client beyond its total share may still
    have as many producers in each partition as the smallest run holds, until the arena is nearly full."""
    cdef Header* header = region().header
    cdef int64_t count = region().owner_counts[owner]       # negative if it is wrong after a death
    cdef uint32_t here
    if owner == OWNER_NOBODY:
        return False
    here = count_of_owner(slot, owner) + fresh
    if here >= header.producer_limit_of_client_in_partition:
        return True
    return count + fresh >= <int64_t>header.producer_limit_of_client and (here >= SMALL_CAPACITY or is_nearly_full())


cdef Room make_room(uint32_t index, Slot* slot, uint32_t owner, PendingProducers* pending, bint patient, Evicts evicts) noexcept nogil:
    cdef uint32_t needed
    cdef ArenaResult result
    cdef int evicted = 0
    while evicted < EVICTED_AT_ONCE and is_beyond(slot, owner, pending.fresh):
        if not evict_own(slot, owner):
            return ROOM_OF_CLIENT
        evicted += 1
    while True:
        needed = slot.producer_count + pending.producers + 1
        if needed > region().header.producer_limit_of_partition:
            if not evict_for(slot, owner, evicts):
                return ROOM_OF_PARTITION
        elif needed <= run_capacity(slot):
            return ROOM_READY
        else:
            result = move_run(index, slot, order_for(needed), patient, 0)
            if result == ARENA_READY:
                return ROOM_READY
            if result == ARENA_BUSY:
                return ROOM_BUSY
            if not evict_for(slot, owner, evicts):
                return ROOM_OF_ARENA


cdef Room reserve(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, PendingProducers* pending,
                  Evicts evicts) noexcept nogil:
    cdef Room room = ROOM_READY
    if known == NULL:
        room = make_room(index, slot, owner, pending, False, evicts)
        pending.fresh += room == ROOM_READY
    pending.producers += room == ROOM_READY
    if room >= ROOM_OF_CLIENT:
        count_refused(room)
    return room


cdef Room reserve_producer(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, PendingProducers* pending) noexcept nogil:
    return reserve(index, slot, known, owner, pending, EVICTS_OF_NOBODY)


cdef Room reserve_for_mark(uint32_t index, Slot* slot, ProducerEntry* known, uint32_t owner, PendingProducers* pending) noexcept nogil:
    return reserve(index, slot, known, owner, pending, EVICTS_OWN)


cdef void count_refused(Room room) noexcept nogil:
    count_event(room, 1)


cdef Room reserve_evicting(uint32_t index, Slot* slot, ProducerEntry* known, PendingProducers* pending, bint patient) noexcept nogil:
    cdef Room room = ROOM_READY
    while known == NULL:
        room = make_room(index, slot, OWNER_NOBODY, pending, patient, EVICTS_OF_NOBODY)
        if room == ROOM_READY:
            pending.fresh += 1
            break
        if room == ROOM_BUSY or not evict(slot, silent_producer(slot, INT64_MAX, 0xFFFFFFFF), EVICTED_SILENT):
            return room
    pending.producers += 1
    return ROOM_READY


cdef Room reserve_for_marker(uint32_t index, Slot* slot, ProducerEntry* known, PendingProducers* pending) noexcept nogil:
    return reserve_evicting(index, slot, known, pending, False)


cdef int reserve_anyhow(uint32_t index, Slot* slot, ProducerEntry* known, PendingProducers* pending) noexcept nogil:
    return 0 if reserve_evicting(index, slot, known, pending, True) == ROOM_READY else -ENOMEM
