"""Allocation of producer runs; see arena.pxd. No GIL. The arena's mutex is robust; no other lock is taken under it."""

from libc.errno cimport EBUSY
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.unistd cimport _SC_PAGESIZE, sysconf

from odradek._ext.shm.atomics cimport count_64, cpu_pause, shared_u64, store_relaxed_64, store_release_64
from odradek._ext.shm.c_library cimport EOWNERDEAD, madvise, pthread_mutex_consistent, pthread_mutex_trylock, pthread_mutex_unlock
from odradek._ext.shm.faults cimport ARENA_RUN_GIVEN, ARENA_RUN_MERGED, ARENA_RUN_SPLIT, ARENA_RUN_TAKEN, fault
from odradek._ext.shm.layout cimport ARENA_ORDERS, Header, region
from odradek._ext.shm.locks cimport initialise_robust
from odradek._ext.shm.slot cimport SLOT_DELETED, Slot, slot_at


cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<sys/mman.h>" nogil:
    int MADV_REMOVE


cdef enum:
    SPINS = 2000
    ORDER_SHIFT = 57              # of a word: the order of the run, 6 bits
    NEXT_SHIFT = 28               # of a free run's word: unit + 1 of the next and of the previous run in its list, 28 bits each
    SLOT_SHIFT = 32               # of a taken run's word: slot + 1, 25 bits; the slot's incarnation is below it
    LEAST_LIMIT = 64              # a joined write may bring this many new producers
    BYTES_PER_PRODUCER = 512      # an entry with its part of the index, and the same amount for growth

cdef uint64_t FREE_BIT = <uint64_t>1 << 63
cdef uint64_t SLOT_MASK = (<uint64_t>1 << (ORDER_SHIFT - SLOT_SHIFT)) - 1
cdef uint64_t LINK_MASK = (<uint64_t>1 << NEXT_SHIFT) - 1


cdef char* arena_start() noexcept nogil:
    return region().arena


def initialise_arena(int client_percent=25, uint32_t partition_producers=32768, int64_t silent_ms=900_000) -> None:
    """Prepare the arena. The creator of the mapping calls this once.

    :param client_percent: largest share of the arena, and of a partition's producers, that one client may have.
    :param partition_producers: most producers of one partition; limited to an eighth of the arena's entries.
    :param silent_ms: a producer that was silent for this long may be evicted for another client's, if the partition or the
    arena is full.
    """
    cdef Header* header = region().header
    cdef uint64_t entries = header.arena_units * ARENA_UNIT_BYTES // BYTES_PER_PRODUCER
    initialise_robust(&header.arena_mutex)
    header.producer_limit_of_client = max(entries * client_percent // 100, LEAST_LIMIT)
    header.producer_limit_of_partition = <uint32_t>max(min(<uint64_t>partition_producers, entries // 8), 2 * LEAST_LIMIT)
    header.producer_limit_of_client_in_partition = <uint32_t>max(
        <uint64_t>header.producer_limit_of_partition * client_percent // 100, LEAST_LIMIT)
    header.producer_silent_ms = silent_ms
    free_all()


# -- the words of runs -------------------------------------------------------------------------------------------------

cdef inline uint64_t free_word(int order, uint64_t following, uint64_t previous) noexcept nogil:
    return FREE_BIT | (<uint64_t>order << ORDER_SHIFT) | (following << NEXT_SHIFT) | previous


cdef inline int order_in(uint64_t word) noexcept nogil:
    return <int>(word >> ORDER_SHIFT) & 63


cdef inline bint is_free(uint64_t word) noexcept nogil:
    return word & FREE_BIT != 0


cdef inline uint32_t slot_in(uint64_t word) noexcept nogil:
    return <uint32_t>((word >> SLOT_SHIFT) & SLOT_MASK) - 1


cdef inline void put_word(uint64_t unit, uint64_t word) noexcept nogil:
    store_release_64(&region().arena_blocks[unit], word)


# -- the lists of free runs --------------------------------------------------------------------------------------------

cdef void enlist(uint64_t unit, int order) noexcept nogil:
    cdef uint64_t* first = &region().header.arena_free[order]
    cdef shared_u64* words = region().arena_blocks
    cdef uint64_t word
    put_word(unit, free_word(order, first[0], 0))
    if first[0]:
        word = words[first[0] - 1]
        put_word(first[0] - 1, free_word(order, (word >> NEXT_SHIFT) & LINK_MASK, unit + 1))
    first[0] = unit + 1


cdef void delist(uint64_t unit) noexcept nogil:
    cdef shared_u64* words = region().arena_blocks
    cdef uint64_t word = words[unit], other
    cdef int order = order_in(word)
    cdef uint64_t following = (word >> NEXT_SHIFT) & LINK_MASK, previous = word & LINK_MASK
    if previous:
        other = words[previous - 1]
        put_word(previous - 1, free_word(order, following, other & LINK_MASK))
    else:
        region().header.arena_free[order] = following
    if following:
        other = words[following - 1]
        put_word(following - 1, free_word(order, (other >> NEXT_SHIFT) & LINK_MASK, previous))


cdef void enlist_merged(uint64_t unit, int order, bint only_before) noexcept nogil:
    """Put a run that is marked as free into the lists, merged with its free neighbours. `only_before`: the runs after it are
    not in the lists yet."""
    cdef uint64_t units = region().header.arena_units, size, buddy, word
    while order + 1 < ARENA_ORDERS:
        size = <uint64_t>1 << order
        buddy = unit ^ size
        if buddy + size > units or (only_before and buddy > unit):
            break
        word = region().arena_blocks[buddy]
        if not is_free(word) or order_in(word) != order:
            break
        delist(buddy)
        unit = min(unit, buddy)
        order += 1
        put_word(unit, free_word(order, 0, 0))
        fault(ARENA_RUN_MERGED)
    enlist(unit, order)


cdef void free_all() noexcept nogil:
    cdef Header* header = region().header
    cdef uint64_t unit = 0
    cdef int order
    for order in range(ARENA_ORDERS):
        header.arena_free[order] = 0
    store_relaxed_64(&header.arena_used, 0)
    while unit < header.arena_units:
        order = ARENA_ORDERS - 1
        while unit & ((<uint64_t>1 << order) - 1) or unit + (<uint64_t>1 << order) > header.arena_units:
            order -= 1
        enlist(unit, order)
        unit += <uint64_t>1 << order


cdef void list_again() noexcept nogil:
    """Derive the lists and `arena_used` from the words again, after a holder of the mutex died."""
    cdef Header* header = region().header
    cdef uint64_t unit = 0, word, used = 0
    cdef int order
    for order in range(ARENA_ORDERS):
        header.arena_free[order] = 0
    while unit < header.arena_units:
        word = region().arena_blocks[unit]
        order = order_in(word)
        if is_free(word):
            enlist_merged(unit, order, True)
        else:
            used += <uint64_t>1 << order
        unit += <uint64_t>1 << order
    store_relaxed_64(&header.arena_used, used)


# -- taking and freeing runs -------------------------------------------------------------------------------------------

cdef bint lock_arena(bint patient) noexcept nogil:
    """Returns whether the mutex was taken. A stopped holder also holds a slot's mutex, so the supervisor ends it."""
    cdef Header* header = region().header
    cdef int result = pthread_mutex_trylock(&header.arena_mutex), spins = SPINS
    while result == EBUSY and (patient or spins > 0):
        if spins > 0:
            cpu_pause()
            spins -= 1
        else:
            sched_yield()
        result = pthread_mutex_trylock(&header.arena_mutex)
    if result == EBUSY:
        return False
    if result == EOWNERDEAD:
        list_again()
        pthread_mutex_consistent(&header.arena_mutex)
    return True


cdef void unlock_arena() noexcept nogil:
    pthread_mutex_unlock(&region().header.arena_mutex)


cdef ArenaResult take_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used, uint64_t* unit_out) noexcept nogil:
    cdef Header* header = region().header
    cdef uint64_t unit, size = <uint64_t>1 << order
    cdef int split = order
    if not lock_arena(patient):
        return ARENA_BUSY
    while split < ARENA_ORDERS and header.arena_free[split] == 0:
        split += 1
    if split == ARENA_ORDERS or (most_used and header.arena_used + size > most_used):
        unlock_arena()
        return ARENA_FULL
    unit = header.arena_free[split] - 1
    delist(unit)
    while split > order:
        split -= 1
        enlist(unit + (<uint64_t>1 << split), split)        # not a run yet: the one before it covers it
        fault(ARENA_RUN_SPLIT)
        put_word(unit, free_word(split, 0, 0))
    put_word(unit, (<uint64_t>order << ORDER_SHIFT) | (<uint64_t>(index + 1) << SLOT_SHIFT) | slot.incarnation)
    fault(ARENA_RUN_TAKEN)
    count_64(&header.arena_used, size)
    unlock_arena()
    unit_out[0] = unit
    return ARENA_READY


cdef void give_unit(uint64_t unit, int order) noexcept nogil:
    """Free a run. The caller holds the arena's mutex."""
    put_word(unit, free_word(order, 0, 0))
    fault(ARENA_RUN_GIVEN)
    count_64(&region().header.arena_used, -<uint64_t>1 << order)
    enlist_merged(unit, order, False)


cdef bint is_whole_pages(uint64_t start, uint64_t size, uint64_t page_bytes) noexcept nogil:
    return (start | size) % page_bytes == 0


cdef void give_run(uint64_t run, bint patient, bint clear) noexcept nogil:
    cdef uint64_t unit = run >> 8
    cdef int order = order_of_run(run)
    cdef char* start = region().arena + unit * ARENA_UNIT_BYTES
    cdef size_t size = <size_t>ARENA_UNIT_BYTES << max(order, 0)
    if run == 0:
        return
    # Before another slot can take it. On a failure the memory is kept.
    if clear and is_whole_pages(<uint64_t>start, size, <uint64_t>sysconf(_SC_PAGESIZE)):
        madvise(start, size, MADV_REMOVE)
    if not lock_arena(patient):
        return
    give_unit(unit, order)
    unlock_arena()


# -- reclaiming --------------------------------------------------------------------------------------------------------

cdef bint is_named(uint64_t unit, uint64_t word) noexcept nogil:
    """Whether the slot in a taken run's word names that run."""
    cdef Slot* slot = slot_at(slot_in(word))
    return slot.incarnation == <uint32_t>word and slot.state != SLOT_DELETED \
        and slot.producer_run == name_of_run(unit, order_in(word))


cdef int gather_unnamed(UnnamedRun* runs, int room) noexcept nogil:
    cdef uint64_t unit = 0, word
    cdef int count = 0
    lock_arena(True)
    while unit < region().header.arena_units and count < room:
        word = region().arena_blocks[unit]
        if not is_free(word) and not is_named(unit, word):
            runs[count].unit = unit
            runs[count].word = word
            runs[count].slot = slot_in(word)
            count += 1
        unit += <uint64_t>1 << order_in(word)
    unlock_arena()
    return count


cdef long long give_unnamed(uint64_t unit, uint64_t word) noexcept nogil:
    cdef long long freed = 0
    lock_arena(True)
    if region().arena_blocks[unit] == word and not is_named(unit, word):
        give_unit(unit, order_in(word))
        freed = <long long>1 << order_in(word)
    unlock_arena()
    return freed
