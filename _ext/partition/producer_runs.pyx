"""Entries, index and lists of a run of producers; see producer_runs.pxd. The caller holds the slot's mutex. No GIL; only runs
of the arena are allocated."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from odradek._ext.partition.producer_entry cimport ProducerBatch, ProducerEntry, newest_batch
from odradek._ext.shm.arena cimport ARENA_READY, ArenaResult, give_run, name_of_run, take_run
from odradek._ext.shm.atomics cimport (
    count_32,
    fetch_add_64,
    fetch_add_i32,
    store_relaxed_32,
    store_relaxed_64,
    store_release_32,
    store_release_64,
)
from odradek._ext.shm.faults cimport (
    PRODUCER_HALF_DROPPED,
    PRODUCER_HALF_LISTED,
    PRODUCER_KEY_STORED,
    PRODUCER_RUN_FILLED,
    TRANSACTION_HALF_DELISTED,
    TRANSACTION_HALF_LISTED,
    fault,
)
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.owners cimport PRODUCER_OWNERS
from odradek._ext.shm.siphash cimport hash_word
from odradek._ext.shm.slot cimport Slot


cdef extern from *:
    """
    #define OWNER_CELL 0x80000000u
    """
    uint32_t OWNER_CELL

cdef enum:
    SECOND_CHANCES = 16

cdef uint64_t OWNER_TAG = <uint64_t>1 << 63     # no entry has such a large key: producer ids are not negative


cdef inline void count_owner(uint32_t owner, int change) noexcept nogil:
    if 0 < owner < PRODUCER_OWNERS:
        fetch_add_i32(&region().owner_counts[owner], change)


cdef void count_event(int event, int64_t producers) noexcept nogil:
    fetch_add_64(&region().header.producer_events[event], <uint64_t>producers)


# -- the index ---------------------------------------------------------------------------------------------------------

cdef inline uint64_t hash_of_owner(uint32_t owner) noexcept nogil:
    return hash_word(region().header.hash_key, OWNER_TAG | owner)


cdef inline uint32_t home_of(Run* run, uint32_t cell) noexcept nogil:
    cdef ProducerEntry* entry = &run.entries[(cell & ~OWNER_CELL) - 1]
    if cell & OWNER_CELL:
        return place_of(hash_of_owner(entry.owner), run.cell_count)
    return place_of(hash_word(region().header.hash_key, entry.key), run.cell_count)


cdef void put_cell(Run* run, uint32_t cell) noexcept nogil:
    cdef uint32_t at
    if run.cell_count == 0:
        return
    at = home_of(run, cell)
    while run.cells[at]:
        at += 1
        if at == run.cell_count:
            at = 0
    run.cells[at] = cell


cdef void drop_cell(Run* run, uint32_t cell) noexcept nogil:
    """Remove a cell, and move the cells after it that could not be found any more."""
    cdef uint32_t hole, at, home
    if run.cell_count == 0:
        return
    hole = home_of(run, cell)
    while run.cells[hole] != cell:
        hole = hole + 1 if hole + 1 < run.cell_count else 0
    at = hole
    while True:
        at = at + 1 if at + 1 < run.cell_count else 0
        if run.cells[at] == 0:
            break
        home = home_of(run, run.cells[at])
        if (hole < home <= at) if hole <= at else (hole < home or home <= at):
            continue                    # it is found from its home place without passing the hole
        run.cells[hole] = run.cells[at]
        hole = at
    run.cells[hole] = 0


# -- the lists by owner ------------------------------------------------------------------------------------------------

cdef uint32_t* cell_of_owner(Run* run, uint32_t owner) noexcept nogil:
    """The cell that represents an owner's list; NULL if there is none."""
    cdef uint32_t at
    if run.cell_count == 0:
        return NULL
    at = place_of(hash_of_owner(owner), run.cell_count)
    while run.cells[at]:
        if run.cells[at] & OWNER_CELL and run.entries[(run.cells[at] & ~OWNER_CELL) - 1].owner == owner:
            return &run.cells[at]
        at = at + 1 if at + 1 < run.cell_count else 0
    return NULL


cdef ProducerEntry* first_of_owner(Run* run, uint32_t owner) noexcept nogil:
    cdef uint32_t* cell
    cdef uint32_t i
    if run.cell_count == 0:
        for i in range(run.head.used):
            if run.entries[i].key and run.entries[i].list_count and run.entries[i].owner == owner:
                return &run.entries[i]
        return NULL
    cell = cell_of_owner(run, owner)
    return NULL if cell == NULL else &run.entries[(cell[0] & ~OWNER_CELL) - 1]


cdef inline uint32_t number_of(Run* run, ProducerEntry* entry) noexcept nogil:
    return <uint32_t>(entry - run.entries)


cdef void enlist(Run* run, ProducerEntry* entry) noexcept nogil:
    """Add an entry to the end of its owner's list."""
    cdef ProducerEntry* first = first_of_owner(run, entry.owner)
    cdef uint32_t number = number_of(run, entry)
    entry.queued_ms = entry.heard_ms
    if first == NULL:
        entry.following = entry.preceding = number
        entry.list_count = 1
        put_cell(run, (number + 1) | OWNER_CELL)
        return
    entry.list_count = 0
    entry.following = number_of(run, first)
    entry.preceding = first.preceding
    run.entries[first.preceding].following = number
    fault(PRODUCER_HALF_LISTED)
    first.preceding = number
    first.list_count += 1


cdef void make_first(Run* run, ProducerEntry* before, ProducerEntry* entry, uint32_t count) noexcept nogil:
    """Make another entry of a list its first one."""
    cdef uint32_t* cell = cell_of_owner(run, before.owner)
    before.list_count = 0
    entry.list_count = count
    if cell != NULL:
        cell[0] = (number_of(run, entry) + 1) | OWNER_CELL


cdef void delist(Run* run, ProducerEntry* entry) noexcept nogil:
    cdef ProducerEntry* first = first_of_owner(run, entry.owner)
    if first == entry and entry.list_count == 1:
        drop_cell(run, (number_of(run, entry) + 1) | OWNER_CELL)
        entry.list_count = 0
        return
    if first == entry:
        first = &run.entries[entry.following]
        make_first(run, entry, first, entry.list_count)
    first.list_count -= 1
    run.entries[entry.preceding].following = entry.following
    run.entries[entry.following].preceding = entry.preceding


cdef uint32_t count_of_owner(Slot* slot, uint32_t owner) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* first
    if slot.producer_run == 0:
        return 0
    open_run(slot.producer_run, &run)
    first = first_of_owner(&run, owner)
    return 0 if first == NULL else first.list_count


cdef ProducerEntry* oldest_of_owner(Slot* slot, uint32_t owner) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* first
    cdef ProducerEntry* second
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    first = first_of_owner(&run, owner)
    for _ in range(SECOND_CHANCES):
        if first == NULL or (first.transaction_first_offset < 0 and first.heard_ms <= first.queued_ms):
            return first
        # Heard of since it was queued, or not evictable: move it to the end of the list.
        first.queued_ms = first.heard_ms
        if first.list_count == 1:
            break
        second = &run.entries[first.following]
        make_first(&run, first, second, first.list_count)
        first = second
    return first if first.transaction_first_offset < 0 else NULL


# -- the list of open transactions, by first offset ---------------------------------------------------------------------

cdef void list_open(Run* run, ProducerEntry* entry) noexcept nogil:
    """Put an entry into the list. New transactions usually begin last, so the loop usually ends at once."""
    cdef uint32_t place = number_of(run, entry) + 1, before = run.head.open_last
    while before and run.entries[before - 1].transaction_first_offset > entry.transaction_first_offset:
        before = run.entries[before - 1].open_preceding
    entry.open_preceding = before
    entry.open_following = run.entries[before - 1].open_following if before else run.head.open_first
    if before:
        run.entries[before - 1].open_following = place
    else:
        run.head.open_first = place
    fault(TRANSACTION_HALF_LISTED)
    if entry.open_following:
        run.entries[entry.open_following - 1].open_preceding = place
    else:
        run.head.open_last = place
    run.head.open_transactions += 1


cdef void list_transaction(Slot* slot, ProducerEntry* entry) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    list_open(&run, entry)


cdef void delist_transaction(Slot* slot, ProducerEntry* entry) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    if entry.open_preceding:
        run.entries[entry.open_preceding - 1].open_following = entry.open_following
    else:
        run.head.open_first = entry.open_following
    fault(TRANSACTION_HALF_DELISTED)
    if entry.open_following:
        run.entries[entry.open_following - 1].open_preceding = entry.open_preceding
    else:
        run.head.open_last = entry.open_preceding
    run.head.open_transactions -= 1


cdef uint32_t merge_by_offset(Run* run, uint32_t left, uint32_t right) noexcept nogil:
    """Merge two chains that are sorted by first offset, linked through `open_following`. Returns the place of the first entry + 1."""
    cdef uint32_t first = 0
    cdef uint32_t* end = &first
    while left and right:
        if run.entries[right - 1].transaction_first_offset < run.entries[left - 1].transaction_first_offset:
            end[0] = right
            end = &run.entries[right - 1].open_following
            right = end[0]
        else:
            end[0] = left
            end = &run.entries[left - 1].open_following
            left = end[0]
    end[0] = left if left else right
    return first


cdef void derive_open(Run* run) noexcept nogil:
    """Make the list from the first offsets of the live entries. A merge sort: `sorted[n]` is a chain of 2**n entries, or 0."""
    cdef uint32_t[32] sorted
    cdef uint32_t chain, i, before = 0
    cdef int n
    memset(sorted, 0, sizeof(sorted))
    run.head.open_transactions = 0
    for i in range(run.head.used):
        if run.entries[i].key == 0 or run.entries[i].transaction_first_offset < 0:
            continue
        run.head.open_transactions += 1
        chain = i + 1
        run.entries[i].open_following = 0
        n = 0
        while sorted[n]:
            chain = merge_by_offset(run, sorted[n], chain)
            sorted[n] = 0
            n += 1
        sorted[n] = chain
    chain = 0
    for n in range(32):
        chain = merge_by_offset(run, sorted[n], chain)
    run.head.open_first = chain
    while chain:
        run.entries[chain - 1].open_preceding = before
        before = chain
        chain = run.entries[chain - 1].open_following
    run.head.open_last = before


cdef void derive_transactions(Slot* slot) noexcept nogil:
    cdef Run run
    if slot.producer_run:
        open_run(slot.producer_run, &run)
        derive_open(&run)


# -- entries -----------------------------------------------------------------------------------------------------------

cdef ProducerEntry* next_producer(Slot* slot, uint32_t* at) noexcept nogil:
    cdef Run run
    cdef uint32_t i = at[0]
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    while i < run.head.used:
        i += 1
        if run.entries[i - 1].key:
            at[0] = i
            return &run.entries[i - 1]
    at[0] = i
    return NULL


cdef ProducerEntry* free_place(Slot* slot) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* entry
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    if run.head.free:
        entry = &run.entries[run.head.free - 1]
        run.head.free = entry.following
    elif run.head.used < run.capacity:
        entry = &run.entries[run.head.used]
        store_release_64(&entry.key, 0)
        store_release_32(&run.head.used, run.head.used + 1)
    else:
        return NULL
    memset(<char*>entry + sizeof(uint64_t), 0, sizeof(ProducerEntry) - sizeof(uint64_t))
    return entry


cdef void name_producer(Slot* slot, ProducerEntry* entry, int64_t producer_id, uint32_t owner) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    entry.owner = owner
    store_release_64(&entry.key, <uint64_t>producer_id + 1)
    fault(PRODUCER_KEY_STORED)
    put_cell(&run, number_of(&run, entry) + 1)
    enlist(&run, entry)
    if entry.transaction_first_offset >= 0:
        list_open(&run, entry)
    count_32(&slot.producer_count, 1)
    count_owner(owner, 1)


cdef void drop_producer(Slot* slot, ProducerEntry* entry) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    delist(&run, entry)
    drop_cell(&run, number_of(&run, entry) + 1)
    fault(PRODUCER_HALF_DROPPED)
    store_release_64(&entry.key, 0)
    entry.following = run.head.free
    run.head.free = number_of(&run, entry) + 1
    count_32(&slot.producer_count, -1)
    count_owner(entry.owner, -1)


cdef void adopt_producer(Slot* slot, ProducerEntry* entry, uint32_t owner) noexcept nogil:
    cdef Run run
    open_run(slot.producer_run, &run)
    delist(&run, entry)
    count_owner(entry.owner, -1)
    entry.owner = owner
    enlist(&run, entry)
    count_owner(owner, 1)


cdef ProducerEntry* silent_producer(Slot* slot, int64_t before_ms, uint32_t most) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* entry
    if slot.producer_run == 0:
        return NULL
    open_run(slot.producer_run, &run)
    for _ in range(min(most, run.head.used)):
        if run.head.hand >= run.head.used:
            run.head.hand = 0
        entry = &run.entries[run.head.hand]
        run.head.hand += 1
        if entry.key and entry.transaction_first_offset < 0 and entry.heard_ms < before_ms:
            return entry
    return NULL


# -- runs --------------------------------------------------------------------------------------------------------------

cdef void clear_derived(Run* run, uint32_t used) noexcept nogil:
    cdef uint32_t i
    memset(<char*>run.head + sizeof(uint32_t), 0, sizeof(RunHead) - sizeof(uint32_t))
    memset(run.cells, 0, run.cell_count * sizeof(uint32_t))
    if run.cell_count == 0:
        for i in range(used, run.capacity):
            store_relaxed_64(&run.entries[i].key, 0)      # a search reads all entries of a small run
    store_release_32(&run.head.used, used)


cdef void copy_entries(Run* source, Run* target) noexcept nogil:
    """Copy all live entries, list by list, so that each list keeps its order."""
    cdef uint32_t i, left, number, kept = 0
    cdef ProducerEntry* entry
    for i in range(source.head.used):
        if source.entries[i].key == 0 or source.entries[i].list_count == 0:
            continue
        number = i
        left = source.entries[i].list_count
        while left:
            entry = &target.entries[kept]
            memcpy(entry, &source.entries[number], sizeof(ProducerEntry))
            put_cell(target, kept + 1)
            enlist(target, entry)
            entry.queued_ms = source.entries[number].queued_ms
            kept += 1
            store_relaxed_32(&target.head.used, kept)
            number = source.entries[number].following
            left -= 1


cdef ArenaResult move_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used) noexcept nogil:
    cdef Run source, target
    cdef uint64_t unit = 0, old = slot.producer_run, word
    cdef ArenaResult result = take_run(index, slot, order, patient, most_used, &unit)
    if result != ARENA_READY:
        return result
    word = name_of_run(unit, order)
    open_run(word, &target)
    clear_derived(&target, 0)
    if old:
        open_run(old, &source)
        copy_entries(&source, &target)
        derive_open(&target)
    fault(PRODUCER_RUN_FILLED)
    store_release_64(&slot.producer_run, word)
    store_relaxed_32(&slot.producer_count, target.head.used)
    give_run(old, patient, patient)
    return ARENA_READY


cdef void release_run(Slot* slot) noexcept nogil:
    cdef uint64_t old = slot.producer_run
    if old == 0:
        return
    if slot.producer_count:
        store_release_64(&region().header.owners_stale, 1)
    store_release_64(&slot.producer_run, 0)
    store_relaxed_32(&slot.producer_count, 0)
    give_run(old, True, True)


cdef inline bint heard_before(ProducerEntry* left, ProducerEntry* right) noexcept nogil:
    """Whether the broker heard of `left` earlier; within a millisecond the offset of the newest batch decides."""
    cdef ProducerBatch* left_batch = newest_batch(left)
    cdef ProducerBatch* right_batch = newest_batch(right)
    if left.heard_ms != right.heard_ms or left_batch == NULL or right_batch == NULL:
        return left.heard_ms < right.heard_ms
    return left_batch.last_offset < right_batch.last_offset


cdef uint32_t merge_by_age(Run* run, uint32_t left, uint32_t right) noexcept nogil:
    """Merge two chains that are sorted by age, oldest first. Returns the place of the first entry + 1. The chains are linked
    through `following`, which contains the next entry's place + 1, or 0 at the end."""
    cdef uint32_t first = 0
    cdef uint32_t* end = &first
    while left and right:
        if heard_before(&run.entries[right - 1], &run.entries[left - 1]):
            end[0] = right
            end = &run.entries[right - 1].following
            right = end[0]
        else:
            end[0] = left
            end = &run.entries[left - 1].following
            left = end[0]
    end[0] = left if left else right
    return first


cdef uint32_t chain_by_age(Run* run, uint32_t used) noexcept nogil:
    """Link all live entries into one chain, as `merge_by_age` returns it, and the free ones into the list of free places. A
    merge sort: `sorted[n]` is a chain of 2**n entries, or 0."""
    cdef uint32_t[32] sorted
    cdef uint32_t chain, i
    cdef int n
    memset(sorted, 0, sizeof(sorted))
    for i in range(used):
        if run.entries[i].key == 0:
            run.entries[i].following = run.head.free
            run.head.free = i + 1
            continue
        chain = i + 1
        run.entries[i].following = 0
        n = 0
        while sorted[n]:
            chain = merge_by_age(run, sorted[n], chain)
            sorted[n] = 0
            n += 1
        sorted[n] = chain
    chain = 0
    for n in range(32):
        chain = merge_by_age(run, sorted[n], chain)
    return chain


cdef void repair_run(Slot* slot) noexcept nogil:
    cdef Run run
    cdef ProducerEntry* entry
    cdef uint32_t i, used, next_place, living = 0
    if slot.producer_run == 0:
        store_relaxed_32(&slot.producer_count, 0)
        return
    open_run(slot.producer_run, &run)
    used = min(run.head.used, run.capacity)
    for i in range(used):
        run.entries[i].list_count = 0   # no list has a first entry yet, for `enlist`
    clear_derived(&run, used)
    next_place = chain_by_age(&run, used)
    while next_place:
        entry = &run.entries[next_place - 1]
        next_place = entry.following    # before `enlist` overwrites it
        living += 1
        put_cell(&run, number_of(&run, entry) + 1)
        enlist(&run, entry)
    derive_open(&run)
    store_relaxed_32(&slot.producer_count, living)
