"""Waking who waits for a slot [R 6]: a bit in the waiter's own bitmap, then its event descriptor.

By whoever moved the slot, after it unlocked; a waiter takes what is ready for it in its own loop.
"""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.layout cimport Slot


# Who waits for the log end, for what is committed (high watermark, last stable offset, state).
cdef void wake_after(uint32_t index, Slot* slot, bint log_end, bint committed) noexcept nogil
# Who waits for records to be on the device; after a flush. `committed`: it moved the high watermark, too.
cdef void wake_flushed(uint32_t index, Slot* slot, bint committed) noexcept nogil
# All of them: the slot itself changed.
cdef void wake_everyone(uint32_t index, Slot* slot) noexcept nogil

# Make the loop of a process look at its ready bitmap; one write for any number of wake-ups it has not yet taken.
cdef void wake_process(int process) noexcept nogil
# The own loop, from within, to have it do what `self_wake` asks for when it is through with what it does.
cdef void wake_own_loop() noexcept nogil
# Like `wake_process`, but written whatever `event_pending` says: the dead may have set it and written nothing.
cdef void wake_after_death(int process) noexcept nogil

# Take up to `limit` slots from this process's own ready bitmap into `out`; the number taken.
cdef int take_ready(uint32_t* out, int limit) noexcept nogil
# Clear the ready bitmap of a process that died.
cdef void clear_ready(int process) noexcept nogil
