"""The purgatory: parked requests of a worker. A request is woken when a slot that it watches moves [R 6], or at its deadline."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Waiter:
    """A request that can be parked. The purgatory stores Waiters and calls three hooks of a parked one, which a subclass must supply,
    and `touched` of one that is not parked, which does nothing unless a subclass supplies it.

    A subclass, not a member with callables: there is one object for a parked request, and a wake-up makes one call. The subclasses are
    DelayedFetch and DelayedProduceWaiter.
    """
    cdef readonly bint waiting        # parked
    cdef int gauge                    # word of the meter page that counts parked requests of this kind
    cdef readonly int64_t deadline_ms
    cdef int64_t queued_ms            # of its entry in the purgatory's heap, which may be earlier than its deadline; 0: no entry
    # A watched slot has moved. The method must first arm that slot and then examine it, so that it misses no later move. `target` is
    # the argument of `Purgatory.watch` for that slot.
    cdef int moved(self, object target) except -1
    cdef int expired(self) except -1
    # A watched slot has moved while the waiter is not parked.
    cdef int touched(self, object target) except -1
    # One of these two raised `error`: end the request, without raising.
    cdef int failed(self, error) except -1


cdef class Purgatory:
    cdef dict of_slot                 # slot -> {Waiter: target}
    cdef list heap                    # (queued_ms, serial, Waiter)
    cdef int64_t serial
    cdef uint64_t own_bit
    cdef readonly int64_t waiters     # parked now
    cdef readonly bint ending         # the process stops: no request may wait for records
    cdef object on_deadline           # called with the new earliest deadline

    # `target` is passed to `waiter.moved` when the slot moves. It replaces the waiter's previous target at this slot.
    cdef int watch(self, uint32_t slot, Waiter waiter, object target) except -1
    cdef int unwatch(self, uint32_t slot, Waiter waiter) except -1
    cdef void arm_log_end(self, uint32_t slot) noexcept
    cdef void arm_committed(self, uint32_t slot) noexcept
    cdef void arm_flushed(self, uint32_t slot) noexcept
    cdef int park(self, Waiter waiter, int64_t deadline_ms) except -1
    cdef int enter(self, Waiter waiter) except -1
    cdef int drop_idle(self) except -1
    cdef int leave(self, Waiter waiter) except -1
    cdef int wake(self, Waiter waiter, object target) except -1
    cdef int wake_expired(self, Waiter waiter) except -1
    cdef int fail_waiter(self, Waiter waiter, error) except -1
    cdef int wake_watchers(self, uint32_t slot) except -1
    cdef int serve_ready(self) except -1
