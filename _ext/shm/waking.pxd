"""Wakes the processes that wait for a slot [R 6]: sets a bit in the waiter's bitmap, then writes to its event descriptor.

The thread that moved the slot calls these functions after it has unlocked. A waiter takes its ready slots in its own loop.
"""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.slot cimport Slot


# Wake the processes that wait for the log end, or for commits (high watermark, last stable offset, state).
cdef void wake_after(uint32_t index, Slot* slot, bint log_end, bint committed) noexcept nogil
# Wake the processes that wait until records are on the device; after a flush. `committed`: the flush also moved the high watermark.
cdef void wake_flushed(uint32_t index, Slot* slot, bint committed) noexcept nogil
# Wake all of them: the slot itself changed.
cdef void wake_everyone(uint32_t index, Slot* slot) noexcept nogil

# Set the slot's bit for each process of `mask` and wake it.
cdef void wake_slot(uint32_t index, uint64_t mask) noexcept nogil

# Make the loop of a process look at what has changed besides slots, and at its ready bitmap. Wake-ups that it has not taken yet
# share one write.
cdef void wake_process(int process) noexcept nogil
# Wake the loop of this process from inside that loop, so that it handles `self_wake` after its current work.
cdef void wake_own_loop() noexcept nogil
# Like `wake_process`, but writes whatever `event_pending` says: a dead process may have set the word without writing.
cdef void wake_after_death(int process) noexcept nogil

# Take up to `limit` slots from this process's ready bitmap into `out`. Returns the number taken.
cdef int take_ready(uint32_t* out, int limit) noexcept nogil
# Clear the ready bitmap of a process that died.
cdef void clear_ready(int process) noexcept nogil
