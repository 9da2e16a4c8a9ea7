"""The layout of a run of producers: a head, entries and an index [R 2.1]. The slot's mutex protects all of it.

An entry is live while its `key` is not 0: storing the key creates the entry, clearing the key deletes it. The head's counts,
the index, the lists by owner and the list of open transactions are derived from the live entries; `repair_run` derives them again
after a death. Places from `used` on were never used and have undefined content.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.shm.arena cimport ARENA_UNIT_BYTES, ArenaResult, arena_start, order_of_run
from odradek._ext.shm.atomics cimport shared_u32
from odradek._ext.shm.hash_key cimport hash_key
from odradek._ext.shm.siphash cimport hash_word
from odradek._ext.shm.slot cimport Slot


cdef struct RunHead:              # 64 bytes
    shared_u32 used               # places that were ever used; the other fields of the head are derived
    uint32_t free                 # the first free place below `used`, + 1; 0: none
    uint32_t open_transactions
    uint32_t hand                 # where the next search for a silent producer begins
    uint32_t open_first           # the place of the oldest open transaction + 1; 0: none
    uint32_t open_last
    uint8_t[40] spare


cdef struct Run:                  # addresses of the parts of a run in this process
    RunHead* head
    ProducerEntry* entries
    uint32_t* cells               # of the index: entry + 1, with OWNER_CELL if the cell represents a list; 0: free
    uint32_t capacity
    uint32_t cell_count           # 0: the run is so small that a search reads all entries


cdef enum:
    RUN_HEAD_BYTES = 64
    ENTRY_BYTES = 256
    CELL_BYTES = 4
    SMALL_CAPACITY = 3            # of a run of order 0
    LARGEST_ORDER = 20


cdef inline uint32_t capacity_of(int order) noexcept nogil:
    """Number of entries in a run of that order; each has three index cells, for its key and for a list that may begin with it.
    """
    return <uint32_t>(((<uint64_t>ARENA_UNIT_BYTES << order) - RUN_HEAD_BYTES) // (ENTRY_BYTES + 3 * CELL_BYTES))


cdef inline void open_run(uint64_t word, Run* run) noexcept nogil:
    """The parts of a run, given a slot's `producer_run`."""
    cdef char* start = arena_start() + (word >> 8) * ARENA_UNIT_BYTES
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
    """The producer's entry; NULL if the partition does not know the producer."""
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
    at = place_of(hash_word(hash_key(), key), run.cell_count)
    while run.cells[at]:
        # The cell of a list also refers to an entry: if that entry has this key, it is the right one.
        if run.entries[(run.cells[at] & 0x7FFFFFFF) - 1].key == key:
            return &run.entries[(run.cells[at] & 0x7FFFFFFF) - 1]
        at += 1
        if at == run.cell_count:
            at = 0
    return NULL


cdef inline ProducerEntry* producer_at(Slot* slot, int64_t producer_id, uint32_t place) noexcept nogil:
    """Like `find_producer`, but looks first at `place`, the result of `place_of_entry` or 0. The entry may have been moved or
    dropped since."""
    cdef Run run
    if place and slot.producer_run:
        open_run(slot.producer_run, &run)
        if place <= run.head.used and run.entries[place - 1].key == <uint64_t>producer_id + 1:
            return &run.entries[place - 1]
    return find_producer(slot, producer_id)


cdef inline uint32_t place_of_entry(Slot* slot, ProducerEntry* entry) noexcept nogil:
    """The place at which to look for an entry first; 0 for NULL."""
    cdef Run run
    if entry == NULL:
        return 0
    open_run(slot.producer_run, &run)
    return <uint32_t>(entry - run.entries) + 1


cdef inline ProducerEntry* oldest_open(Slot* slot) noexcept nogil:
    """The entry whose open transaction has the smallest first offset; NULL if no transaction is open."""
    cdef Run run
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    return NULL if run.head.open_first == 0 else &run.entries[run.head.open_first - 1]


cdef inline ProducerEntry* next_open(Slot* slot, ProducerEntry* entry) noexcept nogil:
    """The entry whose open transaction begins next after that of `entry`; NULL after the last one."""
    cdef Run run
    if entry.open_following == 0:
        return NULL
    open_run(slot.producer_run, &run)
    return &run.entries[entry.open_following - 1]


cdef inline uint32_t open_transactions(Slot* slot) noexcept nogil:
    """The number of open transactions."""
    cdef Run run
    if slot.producer_run == 0:
        return 0
    open_run(slot.producer_run, &run)
    return run.head.open_transactions


# Put an entry into the list of open transactions after its first offset was stored, and take it out after that was cleared.
cdef void list_transaction(Slot* slot, ProducerEntry* entry) noexcept nogil
cdef void delist_transaction(Slot* slot, ProducerEntry* entry) noexcept nogil
# Derive the list from the first offsets of all entries.
cdef void derive_transactions(Slot* slot) noexcept nogil

# The next live entry from place *at on, which is advanced; NULL after the last one.
cdef ProducerEntry* next_producer(Slot* slot, uint32_t* at) noexcept nogil

# A place for a new entry with cleared fields; NULL if the run is full. The entry is live and can be found after `name_producer`.
cdef ProducerEntry* free_place(Slot* slot) noexcept nogil
cdef void name_producer(Slot* slot, ProducerEntry* entry, int64_t producer_id, uint32_t owner) noexcept nogil
cdef void drop_producer(Slot* slot, ProducerEntry* entry) noexcept nogil

# Give an entry without an owner to `owner`.
cdef void adopt_producer(Slot* slot, ProducerEntry* entry, uint32_t owner) noexcept nogil

# The number of producers of `owner` in the partition, and approximately its least recently heard one; NULL if `owner` has none
# without an open transaction.
cdef uint32_t count_of_owner(Slot* slot, uint32_t owner) noexcept nogil
cdef ProducerEntry* oldest_of_owner(Slot* slot, uint32_t owner) noexcept nogil

# A producer of any owner, without an open transaction and last heard before `before_ms`, among the next `most` places; NULL if
# there is none.
cdef ProducerEntry* silent_producer(Slot* slot, int64_t before_ms, uint32_t most) noexcept nogil

# Move the entries to a run of 2**order units, which may be the slot's first run; the lists keep their order. `take_run` describes
# `patient` and `most_used`. The caller ensures that the entries fit.
cdef ArenaResult move_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used) noexcept nogil

# Forget all producers and free the run.
cdef void release_run(Slot* slot) noexcept nogil

# Derive index, lists and counts from the entries again, after a death.
cdef void repair_run(Slot* slot) noexcept nogil


# Count a ProducerEvent for that many producers.
cdef void count_event(int event, int64_t producers) noexcept nogil


cdef inline uint32_t run_capacity(Slot* slot) noexcept nogil:
    return 0 if slot.producer_run == 0 else capacity_of(order_of_run(slot.producer_run))


cdef inline int order_for(uint32_t entries) noexcept nogil:
    """The order of the smallest run that holds that many entries."""
    cdef int order = 0
    while order < LARGEST_ORDER and capacity_of(order) < entries:
        order += 1
    return order
