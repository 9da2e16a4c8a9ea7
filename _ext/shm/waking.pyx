"""Wakes the processes that wait for a slot; see waking.pxd. Any process and thread: all words are atomic, no lock is taken.

A bitmap has two levels: one bit for each slot, preceded by a summary with one bit for each word of slot bits.
"""

from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport write

from odradek._ext.shm.atomics cimport (
    clear_words,
    exchange_32,
    exchange_64,
    fence,
    fetch_or_64,
    load_relaxed_64,
    shared_u64,
    store_release_32,
)
from odradek._ext.shm.c_library cimport this_thread
from odradek._ext.shm.faults cimport WAKE_PENDING_SET, fault
from odradek._ext.shm.layout cimport Process, region
from odradek._ext.shm.slot cimport Slot


cdef extern from *:
    int __builtin_ctzll(unsigned long long x) noexcept nogil


cdef inline uint64_t word_count() noexcept nogil:
    return (region().header.max_slots + 63) // 64


cdef inline shared_u64* summary_words(int process) noexcept nogil:
    return <shared_u64*>(region().base + region().header.bitmaps_at + process * region().header.bitmap_bytes)


cdef inline shared_u64* ready_words(int process) noexcept nogil:
    return summary_words(process) + (word_count() + 63) // 64


cdef void clear_ready(int process) noexcept nogil:
    clear_words(summary_words(process), region().header.bitmap_bytes)


cdef inline void ring(Process* p) noexcept nogil:
    """Write to the process's event descriptor, unless a write is pending that the process has not read yet."""
    cdef uint64_t increment = 1
    if exchange_32(&p.event_pending, 1) == 0:
        fault(WAKE_PENDING_SET)
        write(p.event_fd, &increment, 8)


cdef inline void wake_loop(int process) noexcept nogil:
    cdef Process* p = &region().processes[process]
    if process == region().self and region().loop_thread == this_thread():
        region().self_wake = True       # not enough for an append thread of the same process: the loop may be asleep
        return
    ring(p)


cdef void wake_process(int process) noexcept nogil:
    """`news` is stored with release, because the process may see it, and then the changes, before this wake-up."""
    store_release_32(&region().processes[process].news, 1)
    wake_loop(process)


cdef void wake_own_loop() noexcept nogil:
    ring(&region().processes[region().self])


cdef void wake_after_death(int process) noexcept nogil:
    cdef uint64_t increment = 1
    cdef Process* p = &region().processes[process]
    store_release_32(&p.news, 1)
    exchange_32(&p.event_pending, 1)
    write(p.event_fd, &increment, 8)


cdef void wake_slot(uint32_t index, uint64_t mask) noexcept nogil:
    """Notify every process of `mask` that the slot moved [R 6]: set its bit, then the summary bit, then write to its event
    descriptor."""
    cdef int process
    cdef uint64_t bits = mask
    while bits:
        process = __builtin_ctzll(bits)
        bits &= bits - 1
        fetch_or_64(ready_words(process) + index // 64, <uint64_t>1 << (index % 64))
        fetch_or_64(summary_words(process) + index // 4096, <uint64_t>1 << (index // 64 % 64))
        wake_loop(process)


cdef int take_ready(uint32_t* out, int limit) noexcept nogil:
    """Clear the summary bit before taking its word, so that a waker that comes in between sets the bit again."""
    cdef int me = region().self, taken = 0, high, low
    cdef shared_u64* summary = summary_words(me)
    cdef shared_u64* words = ready_words(me)
    cdef uint64_t groups = (word_count() + 63) // 64, group, bits, word
    for group in range(groups):
        if load_relaxed_64(summary + group) == 0:
            continue
        bits = exchange_64(summary + group, 0)
        while bits:
            if taken + 64 > limit:
                fetch_or_64(summary + group, bits)
                return taken
            high = __builtin_ctzll(bits)
            bits &= bits - 1
            word = exchange_64(words + group * 64 + high, 0)
            while word:
                low = __builtin_ctzll(word)
                word &= word - 1
                out[taken] = <uint32_t>((group * 64 + high) * 64 + low)
                taken += 1
    return taken


cdef void wake_after(uint32_t index, Slot* slot, bint log_end, bint committed) noexcept nogil:
    """The fence pairs with the waiter's fence between setting its bit and its second look at the slot."""
    cdef uint64_t mask = 0
    fence()
    if log_end and load_relaxed_64(&slot.waiters_log_end):
        mask |= exchange_64(&slot.waiters_log_end, 0)
    if committed and load_relaxed_64(&slot.waiters_committed):
        mask |= exchange_64(&slot.waiters_committed, 0)
    if mask:
        wake_slot(index, mask)


cdef void wake_flushed(uint32_t index, Slot* slot, bint committed) noexcept nogil:
    cdef uint64_t mask = 0
    fence()
    if load_relaxed_64(&slot.waiters_flushed):
        mask = exchange_64(&slot.waiters_flushed, 0)
    if committed and load_relaxed_64(&slot.waiters_committed):
        mask |= exchange_64(&slot.waiters_committed, 0)
    if mask:
        wake_slot(index, mask)


cdef void wake_everyone(uint32_t index, Slot* slot) noexcept nogil:
    wake_after(index, slot, True, True)
    wake_flushed(index, slot, False)
