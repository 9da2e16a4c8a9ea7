"""Counts the producers of each client again after events that may have left the counts wrong [R 2.6].

Runs in the cleaner. Functions that add and remove producers keep the counts up to date; a death during such a change, or a
partition that lost its producers, leaves them wrong.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from odradek._ext.partition.producer_runs cimport Run, open_run
from odradek._ext.shm.atomics cimport exchange_64, fetch_add_i32, load_acquire_64, store_relaxed_64
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.owners cimport PRODUCER_OWNERS
from odradek._ext.shm.slot cimport SLOT_DELETED, Slot, slot_at


cdef void count_slot(Slot* slot, int32_t* counts) noexcept nogil:
    """Runs without the slot's lock: concurrent changes may be counted or not."""
    cdef Run run
    cdef uint64_t word = load_acquire_64(&slot.producer_run)
    cdef uint32_t i
    if word == 0 or slot.state == SLOT_DELETED:
        return
    open_run(word, &run)
    for i in range(min(run.head.used, run.capacity)):
        if run.entries[i].key and run.entries[i].owner < PRODUCER_OWNERS:
            counts[run.entries[i].owner] += 1


cdef int count_all() noexcept nogil:
    """Correct the counts by the entries. Changes that other processes make meanwhile are kept. Returns 0, or -ENOMEM."""
    cdef int32_t* seen = <int32_t*>malloc(PRODUCER_OWNERS * sizeof(int32_t))
    cdef int32_t* counts = <int32_t*>calloc(PRODUCER_OWNERS, sizeof(int32_t))
    cdef uint64_t i
    cdef int result = 0
    if seen == NULL or counts == NULL:
        result = -ENOMEM
    else:
        memcpy(seen, region().owner_counts, PRODUCER_OWNERS * sizeof(int32_t))
        for i in range(region().header.slots_used):
            count_slot(slot_at(<uint32_t>i), counts)
        for i in range(1, PRODUCER_OWNERS):
            if counts[i] != seen[i]:
                fetch_add_i32(&region().owner_counts[i], counts[i] - seen[i])
    free(seen)
    free(counts)
    return result


def count_again() -> bool:
    """If a process died or a partition lost its producers since the last call, count every owner's producers. Returns whether
    it did."""
    cdef int result
    if exchange_64(&region().header.owners_stale, 0) == 0:
        return False
    with nogil:
        result = count_all()
    if result != 0:
        store_relaxed_64(&region().header.owners_stale, 1)
        raise MemoryError("no memory to count the producers of each client")
    return True
