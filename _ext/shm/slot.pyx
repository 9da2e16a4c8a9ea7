"""Access to slots, and consistent reads of a slot's commit block; see slot.pxd."""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.atomics cimport copy_words, cpu_pause, fence_acquire, load_acquire_64, load_relaxed_64
from odradek._ext.shm.layout cimport Region, region


cdef Region* here = region()      # it does not move; shared_memory fills it


cdef Slot* slot_at(uint32_t index) noexcept nogil:
    return <Slot*>(here.slots + <uint64_t>index * sizeof(Slot))


cdef inline uint64_t index_of(const Slot* slot) noexcept nogil:
    return <uint64_t>(<const char*>slot - here.slots) // sizeof(Slot)


cdef SlotViews* views_at(const Slot* slot) noexcept nogil:
    return <SlotViews*>(here.views + index_of(slot) * sizeof(SlotViews))


cdef Follower* followers_at(const Slot* slot) noexcept nogil:
    return <Follower*>(here.followers + index_of(slot) * (MAX_FOLLOWERS * sizeof(Follower)))


cdef uint32_t state_now(Slot* slot) noexcept nogil:
    cdef uint32_t state = slot.state
    if (state == SLOT_ONLINE or state == SLOT_LOADING) and here.header.log_dir_offline[slot.log_dir]:
        return SLOT_OFFLINE
    return state


cdef void read_commit(Slot* slot, Commit* out) noexcept nogil:
    """Copy the current commit block. Retry if a writer publishes the next block during the copy [R 1]."""
    cdef uint64_t sequence
    while True:
        sequence = load_acquire_64(&slot.sequence)
        copy_words(out, &slot.commits[sequence & 1], sizeof(Commit))
        fence_acquire()
        if load_relaxed_64(&slot.sequence) == sequence:
            return
        cpu_pause()
