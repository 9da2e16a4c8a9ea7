"""The arena: the part of the shared mapping that holds the state of idempotent producers, one run for each partition [R 2.2].

A buddy allocator manages it. `arena_blocks` has one word for each unit of 1 KiB. The word of a run's first unit holds the order
and the owner of the run, or marks the run as free. Only these words are authoritative: after each single store they cut the
arena into runs without gap or overlap. The lists of free runs are derived from them.
"""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.slot cimport Slot


cdef enum:
    ARENA_UNIT_BYTES = 1024


cdef enum ArenaResult:
    ARENA_READY = 0
    ARENA_BUSY = 1
    ARENA_FULL = 2


cdef struct UnnamedRun:
    uint64_t unit
    uint64_t word
    uint32_t slot


# Take a run of 2**order units for a slot. The caller holds the slot's mutex. The run is not cleared. Returns ARENA_BUSY only if
# `patient` is false, and ARENA_FULL if more than `most_used` units would then be taken (`most_used` 0: no such limit).
cdef ArenaResult take_run(uint32_t index, Slot* slot, int order, bint patient, uint64_t most_used, uint64_t* unit) noexcept nogil

# Free a run (in the form of `name_of_run`) after the slot has stopped naming it. `clear`: return its memory to the system. If the
# arena is busy and the caller is not `patient`, the run stays taken until the cleaner frees it (`slot_upkeep.reclaim_arena`).
cdef void give_run(uint64_t run, bint patient, bint clear) noexcept nogil

# Whether memory consists of whole pages: madvise rounds up, and would clear runs of other partitions in the rest of a page.
cdef bint is_whole_pages(uint64_t start, uint64_t size, uint64_t page_bytes) noexcept nogil

# Runs that no slot names: left by processes that died between two stores, or by deleted partitions. `gather_unnamed` writes at most
# `room` of them and returns their number. `give_unnamed` frees one and returns its units. Its caller holds the mutex of the slot in
# the run's word, because another holder of that mutex may be about to name the run.
cdef int gather_unnamed(UnnamedRun* runs, int room) noexcept nogil
cdef long long give_unnamed(uint64_t unit, uint64_t word) noexcept nogil


cdef char* arena_start() noexcept nogil    # of this process's view of the mapping


cdef inline uint64_t name_of_run(uint64_t unit, int order) noexcept nogil:
    """The value of `Slot.producer_run` for a run."""
    return (unit << 8) | <uint64_t>(order + 1)


cdef inline int order_of_run(uint64_t run) noexcept nogil:
    return <int>(run & 0xFF) - 1
