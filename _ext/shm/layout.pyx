"""Access to the shared mapping in this process, and consistent reads of a slot's commit block; see layout.pxd.

`shared_memory` creates the mapping. Before that the region is empty and its pointers are NULL.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from odradek._ext.shm.atomics cimport cpu_pause, fence, load_acquire_64


cdef Region the_region
memset(&the_region, 0, sizeof(Region))
the_region.memfd = -1
the_region.self = -1


cdef Region* region() noexcept nogil:
    return &the_region


cdef Slot* slot_at(uint32_t index) noexcept nogil:
    return <Slot*>(the_region.slots + <uint64_t>index * sizeof(Slot))


cdef uint32_t state_now(Slot* slot) noexcept nogil:
    cdef uint32_t state = slot.state
    if (state == SLOT_ONLINE or state == SLOT_LOADING) and the_region.header.log_dir_offline[slot.log_dir]:
        return SLOT_OFFLINE
    return state


cdef int64_t now_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef int64_t monotonic_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef void read_commit(Slot* slot, Commit* out) noexcept nogil:
    """Copy the current commit block. Retry if a writer publishes the next block during the copy [R 1]."""
    cdef uint64_t sequence
    while True:
        sequence = load_acquire_64(&slot.sequence)
        memcpy(out, &slot.commits[sequence & 1], sizeof(Commit))
        fence()
        if load_acquire_64(&slot.sequence) == sequence:
            return
        cpu_pause()
