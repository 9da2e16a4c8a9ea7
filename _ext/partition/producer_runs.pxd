"""The layout of a run of producers: a head, entries, an index [R 2.1]. The slot's mutex protects all of it.

An entry lives while its `key` is not 0: the store of the key is its birth, the clearing its death. The head's counts, the index and the
lists by owner are derived from the living entries; `repair_run` makes them again after a death. Places from `used` on were never used,
and hold anything.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.shm.arena cimport ArenaResult, order_of_run
from odradek._ext.shm.atomics cimport fetch_add_64
from odradek._ext.shm.layout cimport ARENA_UNIT_BYTES, Slot, region
from odradek._ext.shm.siphash cimport hash_word


cdef struct RunHead:              # 64 bytes
    uint32_t used                 # places that were ever used; the rest of the head is derived
    uint32_t free                 # the first free place below `used`, + 1; 0: none
    uint32_t open_transactions
    uint32_t hand                 # where the search for a silent producer goes on
    uint8_t[48] spare


cdef struct Run:                  # where the parts of a run are, in this process
    RunHead* head
    ProducerEntry* entries
    uint32_t* cells               # of the index: entry + 1, with OWNER_CELL if it stands for a list; 0: free
    uint32_t capacity
    uint32_t cell_count           # 0: the run is so small that it is searched as a whole


cdef enum:
    RUN_HEAD_BYTES = 64
    ENTRY_BYTES = 256
    CELL_BYTES = 4
    SMALL_CAPACITY = 3            # of a run of order 0
    LARGEST_ORDER = 20


cdef inline uint32_t capacity_of(int order) noexcept nogil:
    """Entries of a run of that order; each has three cells of the index, for its key and for a list that it may head."""
    return <uint32_t>(((<uint64_t>ARENA_UNIT_BYTES << order) - RUN_HEAD_BYTES) // (ENTRY_BYTES + 3 * CELL_BYTES))


cdef inline void open_run(uint64_t word, Run* run) noexcept nogil:
    """The parts of a run as a slot names it."""
    cdef char* start = region().arena + (word >> 8) * ARENA_UNIT_BYTES
    cdef int order = order_of_run(word)
    run.head = <RunHead*>start
    run.entries = <ProducerEntry*>(start + RUN_HEAD_BYTES)
    run.capacity = capacity_of(order)
    run.cells = <uint32_t*>(run.entries + run.capacity)
    run.cell_count = 0 if order == 0 else <uint32_t>(
        ((<uint64_t>ARENA_UNIT_BYTES << order) - RUN_HEAD_BYTES - <uint64_t>run.capacity * ENTRY_BYTES) // CELL_BYTES)


cdef inline uint32_t place_of(uint64_t hashed, uint32_t cell_count) noexcept nogil:
    return <uint32_t>(((hashed >> 32) * cell_count) >> 32)


cdef inline ProducerEntry* find_producer(Slot* slot, int64_t producer_id) noexcept nogil:
    """The producer's entry; NULL if the partition does not know it."""
    cdef Run run
    cdef uint64_t key = <uint64_t>producer_id + 1
    cdef uint32_t at
    cdef int i
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    if run.cell_count == 0:
        for i in range(SMALL_CAPACITY):
            if run.entries[i].key == key:
                return &run.entries[i]
        return NULL
    at = place_of(hash_word(region().header.hash_key, key), run.cell_count)
    while run.cells[at]:
        # The cell of a list is one of an entry, too: should its key be this one, it is no other.
        if run.entries[(run.cells[at] & 0x7FFFFFFF) - 1].key == key:
            return &run.entries[(run.cells[at] & 0x7FFFFFFF) - 1]
        at += 1
        if at == run.cell_count:
            at = 0
    return NULL


cdef inline ProducerEntry* producer_at(Slot* slot, int64_t producer_id, uint32_t place) noexcept nogil:
    """`find_producer`, where it was found before: `place` of `place_of_entry`, or 0. It may have moved or left meanwhile."""
    cdef Run run
    if place and slot.producer_run:
        open_run(slot.producer_run, &run)
        if place <= run.head.used and run.entries[place - 1].key == <uint64_t>producer_id + 1:
            return &run.entries[place - 1]
    return find_producer(slot, producer_id)


cdef inline uint32_t place_of_entry(Slot* slot, ProducerEntry* entry) noexcept nogil:
    """Where to look for it first; 0 for NULL."""
    cdef Run run
    if entry == NULL:
        return 0
    open_run(slot.producer_run, &run)
    return <uint32_t>(entry - run.entries) + 1


# The next living entry from place *at on, which is advanced; NULL behind the last.
cdef ProducerEntry* next_producer(Slot* slot, uint32_t* at) noexcept nogil

# A place for a new entry, its fields cleared; NULL if the run is full. It lives, and is found, after `name_producer`.
cdef ProducerEntry* free_place(Slot* slot) noexcept nogil
cdef void name_producer(Slot* slot, ProducerEntry* entry, int64_t producer_id, uint32_t owner) noexcept nogil
cdef void drop_producer(Slot* slot, ProducerEntry* entry) noexcept nogil

# An entry of nobody becomes one of `owner`.
cdef void adopt_producer(Slot* slot, ProducerEntry* entry, uint32_t owner) noexcept nogil

# How many producers of `owner` the partition knows; the one of them that was heard of the longest ago, about: NULL if there is none without
# open transaction.
cdef uint32_t count_of_owner(Slot* slot, uint32_t owner) noexcept nogil
cdef ProducerEntry* oldest_of_owner(Slot* slot, uint32_t owner) noexcept nogil

# A producer of anybody without open transaction that was last heard of before `before_ms`, among the next `most` places; NULL if there
# is none.
cdef ProducerEntry* silent_producer(Slot* slot, int64_t before_ms, uint32_t most) noexcept nogil

# Move the entries to a run of 2**order units, which may be the slot's first; the lists keep their order. See `take_run` for
# `patient` and `most_used`. The caller sees to it that the entries fit.
cdef ArenaResult move_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used) noexcept nogil

# Forget all producers, and give the run back.
cdef void release_run(Slot* slot) noexcept nogil

# Make again what is derived from the entries, after a death.
cdef void repair_run(Slot* slot) noexcept nogil


cdef inline void count_event(int event, int64_t producers) noexcept nogil:
    """A ProducerEvent that concerns so many producers."""
    fetch_add_64(&region().header.producer_events[event], <uint64_t>producers)


cdef inline uint32_t run_capacity(Slot* slot) noexcept nogil:
    return 0 if slot.producer_run == 0 else capacity_of(order_of_run(slot.producer_run))


cdef inline int order_for(uint32_t entries) noexcept nogil:
    """The order of the smallest run that holds so many."""
    cdef int order = 0
    while order < LARGEST_ORDER and capacity_of(order) < entries:
        order += 1
    return order
