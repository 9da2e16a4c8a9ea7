"""A worker's purgatory: which parked request waits for which slot, and until when. A worker has one, used in its event loop's thread.

A waiter sets its process's bit in the slot, and examines the slot once more before it sleeps. The process that moves the slot
sets the slot's bit in this process's ready bitmap and then signals its event descriptor. A wake-up names the slot that moved, so that
the cost, for 1,000 waiters on 100 slots or for one waiter on 10,000 slots, depends only on the slots that moved.
"""

import heapq
import logging

from libc.stdint cimport int64_t, uint32_t, uint64_t

from odradek._ext.partition.slot_access cimport recover_dead_owners
from odradek._ext.shm.atomics cimport fetch_or_64, load_relaxed_64
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.metering cimport add
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.shm.waking cimport take_ready


LOG = logging.getLogger("odradek.requests")

cdef enum:
    READY_AT_ONCE = 4096
    HEAP_SPARE = 1024                 # entries of answered waiters that the heap may hold in addition to as many as there are waiters


cdef class Waiter:
    cdef int moved(self, object target) except -1:
        raise NotImplementedError

    cdef int expired(self) except -1:
        raise NotImplementedError

    cdef int failed(self, error) except -1:
        raise NotImplementedError

    cdef int touched(self, object target) except -1:
        return 0


cdef class Purgatory:
    """The parked requests of a worker.

    :param on_deadline: called with a new deadline (CLOCK_MONOTONIC ms) if it is earlier than all others.
    """

    def __init__(self, on_deadline):
        self.of_slot = {}
        self.heap = []
        self.on_deadline = on_deadline
        self.own_bit = <uint64_t>1 << region().self

    @property
    def entries(self) -> int:
        """Number of deadlines in the heap, including those of answered waiters."""
        return len(self.heap)

    cdef int watch(self, uint32_t slot, Waiter waiter, object target) except -1:
        watchers = self.of_slot.get(slot)
        if watchers is None:
            watchers = self.of_slot[slot] = {}
        watchers[waiter] = target
        return 0

    cdef int unwatch(self, uint32_t slot, Waiter waiter) except -1:
        watchers = self.of_slot.get(slot)
        if watchers is not None:
            watchers.pop(waiter, None)
            if not watchers:
                del self.of_slot[slot]
        return 0

    cdef void arm_log_end(self, uint32_t slot) noexcept:
        cdef Slot* at = slot_at(slot)
        if not load_relaxed_64(&at.waiters_log_end) & self.own_bit:
            fetch_or_64(&at.waiters_log_end, self.own_bit)

    cdef void arm_committed(self, uint32_t slot) noexcept:
        cdef Slot* at = slot_at(slot)
        if not load_relaxed_64(&at.waiters_committed) & self.own_bit:
            fetch_or_64(&at.waiters_committed, self.own_bit)

    cdef void arm_flushed(self, uint32_t slot) noexcept:
        cdef Slot* at = slot_at(slot)
        if not load_relaxed_64(&at.waiters_flushed) & self.own_bit:
            fetch_or_64(&at.waiters_flushed, self.own_bit)

    cdef int park(self, Waiter waiter, int64_t deadline_ms) except -1:
        """Park `waiter`: it is woken when a slot that it watches moves, and at its deadline."""
        if not waiter.waiting:
            waiter.waiting = True
            self.waiters += 1
            add(waiter.gauge, 1)
        waiter.deadline_ms = deadline_ms
        if waiter.queued_ms and waiter.queued_ms <= deadline_ms:
            return 0                    # `expire` meets its entry before the deadline, and then enters it again
        if len(self.heap) > 2 * self.waiters + HEAP_SPARE:
            # Entries of long polls that were answered long before their deadline must not accumulate until then.
            self.drop_idle()
        earliest = not self.heap or deadline_ms < self.heap[0][0]
        self.enter(waiter)
        if earliest:
            self.on_deadline(deadline_ms)
        return 0

    cdef int enter(self, Waiter waiter) except -1:
        """Add the waiter to the heap with its deadline."""
        self.serial += 1
        heapq.heappush(self.heap, (waiter.deadline_ms, self.serial, waiter))
        waiter.queued_ms = waiter.deadline_ms
        return 0

    cdef int drop_idle(self) except -1:
        cdef Waiter waiter
        cdef list kept = []
        for entry in self.heap:
            waiter = entry[2]
            if waiter.queued_ms != <int64_t>entry[0]:
                continue
            if waiter.waiting:
                kept.append(entry)
            else:
                waiter.queued_ms = 0
        heapq.heapify(kept)
        self.heap = kept
        return 0

    cdef int leave(self, Waiter waiter) except -1:
        """Unpark `waiter`: it was answered or cancelled. `expire` removes its entry from the heap later."""
        if waiter.waiting:
            waiter.waiting = False
            self.waiters -= 1
            add(waiter.gauge, -1)
        return 0

    cdef int wake(self, Waiter waiter, object target) except -1:
        """Wake a waiter. If that fails, close its connection; the error is not raised, because the caller has other waiters to wake."""
        try:
            waiter.moved(target)
        except Exception as error:
            self.fail_waiter(waiter, error)
        return 0

    cdef int wake_expired(self, Waiter waiter) except -1:
        """As `wake`, for a waiter whose deadline has passed."""
        try:
            waiter.expired()
        except Exception as error:
            self.fail_waiter(waiter, error)
        return 0

    cdef int fail_waiter(self, Waiter waiter, error) except -1:
        """Log the error of a waiter, and close its connection."""
        LOG.error("a parked request failed, closing its connection", exc_info=error)
        try:
            self.leave(waiter)
            waiter.failed(error)
        except Exception:
            LOG.exception("cannot close the connection of the failed request")
        return 0

    cdef int wake_watchers(self, uint32_t slot) except -1:
        """Wake the parked waiters of a slot that moved, and notify the others that watch it."""
        cdef Waiter waiter
        watchers = self.of_slot.get(slot)
        if watchers is not None:
            for waiter, target in list(watchers.items()):
                if waiter.waiting:
                    self.wake(waiter, target)
                else:
                    waiter.touched(target)
        return 0

    def expire(self) -> int:
        """Wake the waiters whose deadline has passed. Return the next deadline, -1 if there is none."""
        cdef int64_t now = monotonic_ms()
        cdef Waiter waiter
        cdef int64_t deadline
        while self.heap:
            deadline, _, waiter = self.heap[0]
            if waiter.queued_ms == deadline and waiter.waiting and waiter.deadline_ms <= deadline:
                if deadline > now:
                    return deadline
                heapq.heappop(self.heap)
                waiter.queued_ms = 0
                self.wake_expired(waiter)
                continue
            heapq.heappop(self.heap)
            if waiter.queued_ms == deadline:        # else it has another entry
                waiter.queued_ms = 0
                if waiter.waiting:                  # it was parked again with a later deadline
                    self.enter(waiter)
        return -1

    cdef int serve_ready(self) except -1:
        """Wake the waiters of every slot that moved. Makes no system call if none moved."""
        cdef uint32_t[READY_AT_ONCE] ready
        cdef int n, i
        while True:
            region().self_wake = False
            n = take_ready(ready, READY_AT_ONCE)
            if n == 0:
                return 0
            for i in range(n):
                self.wake_watchers(ready[i])

    def serve(self) -> None:
        """Handle a wake-up of the process. The caller has drained the event descriptor before."""
        self.serve_ready()

    def serve_own(self) -> None:
        """Wake the waiters of the slots that this process itself moved outside of a turn of the data loop."""
        if region().self_wake:
            self.serve_ready()

    def look_at_all(self) -> None:
        """After the death of another process: recover the slots whose locks it held, then wake every waiter once [R 6.4]."""
        with nogil:
            recover_dead_owners()
        for slot in list(self.of_slot):
            self.wake_watchers(slot)

    def end(self) -> None:
        """The broker stops: expire every waiter, also those that would be parked later."""
        self.ending = True
        self.finish_all()

    def finish_all(self) -> None:
        """Expire every waiter. A waiter may park itself again (a Produce whose sync is in progress)."""
        cdef Waiter waiter
        entries, self.heap = sorted(self.heap), []
        for _, _, waiter in entries:
            waiter.queued_ms = 0
        for _, _, waiter in entries:
            if waiter.waiting:
                self.wake_expired(waiter)
