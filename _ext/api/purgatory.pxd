"""Parked requests of a worker: woken when a slot moves [R 6], or when their time is up."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Waiter:
    cdef readonly bint waiting
    cdef int gauge                    # word of the meter page that says how many like it are parked
    cdef readonly int64_t deadline_ms
    cdef int64_t queued_ms            # of its entry in the room's heap, which may be earlier than its deadline; 0: none
    # A slot that it watches has moved: look at what it watches there, after arming that slot, so that no move is missed in
    # between. `what` is what `Purgatory.watch` was given for that slot.
    cdef int moved(self, object what) except -1
    cdef int expired(self) except -1
    # One of these two raised `error`: give up, without raising.
    cdef int failed(self, error) except -1


cdef class Purgatory:
    cdef dict of_slot                 # slot -> {Waiter: what it watches there}
    cdef list heap                    # (queued_ms, serial, Waiter)
    cdef int64_t serial
    cdef uint64_t own_bit
    cdef readonly int64_t waiters     # parked now
    cdef readonly bint ending         # the process stops: nobody is to wait for records
    cdef object on_deadline           # called with the new earliest deadline

    # `what` is handed to `waiter.moved` when the slot moves; it replaces what the waiter watched at this slot before.
    cdef int watch(self, uint32_t slot, Waiter waiter, object what) except -1
    cdef int unwatch(self, uint32_t slot, Waiter waiter) except -1
    cdef void arm_log_end(self, uint32_t slot) noexcept
    cdef void arm_committed(self, uint32_t slot) noexcept
    cdef void arm_flushed(self, uint32_t slot) noexcept
    cdef int park(self, Waiter waiter, int64_t deadline_ms) except -1
    cdef int enter(self, Waiter waiter) except -1
    cdef int drop_idle(self) except -1
    cdef int leave(self, Waiter waiter) except -1
    cdef int tell(self, Waiter waiter, object what) except -1
    cdef int tell_expired(self, Waiter waiter) except -1
    cdef int give_up(self, Waiter waiter, error) except -1
    cdef int tell_watchers(self, uint32_t slot) except -1
    cdef int serve_ready(self) except -1
