"""The arena: memory of the shared mapping, cut into runs for the producers of partitions [R 2.2].

A buddy allocator. `arena_blocks` has a word for each unit of 1 KiB; the word of a run's first unit says whose the run is and how
large, or that it is free. These words alone are the truth: after each single store they cut the arena into runs without gap or overlap.
The lists of free runs are derived from them.
"""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.layout cimport Slot


cdef enum ArenaResult:
    ARENA_READY = 0
    ARENA_BUSY = 1
    ARENA_FULL = 2


cdef struct UnnamedRun:
    uint64_t unit
    uint64_t word
    uint32_t slot


# Take a run of 2**order units for a slot, whose mutex the caller holds; its content is what it happens to be. ARENA_BUSY only if not
# `patient`. `most_used`: ARENA_FULL if more units than that would be taken then; 0: no such bound.
cdef ArenaResult take_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used, uint64_t* unit) noexcept nogil

# Give back a run (as a slot names it) that the slot does not name any more. `clear`: its memory goes back to the system. If the
# arena is busy and the caller not `patient`, the cleaner finds it (`reclaim_runs`).
cdef void give_run(uint64_t run, bint patient, bint clear) noexcept nogil

# Runs that no slot names: of processes that died between two stores, of deleted partitions. Gather at most `room` of them, their number;
# then, with the mutex of the slot held whose they are (its holder may be about to name the run), give one back: its units.
cdef int gather_unnamed(UnnamedRun* found, int room) noexcept nogil
cdef long long give_unnamed(uint64_t unit, uint64_t word) noexcept nogil


cdef inline uint64_t name_of_run(uint64_t unit, int order) noexcept nogil:
    """As a slot names it."""
    return (unit << 8) | <uint64_t>(order + 1)


cdef inline int order_of_run(uint64_t run) noexcept nogil:
    return <int>(run & 0xFF) - 1
