"""A Fetch that waits: for records or its time, in the room, or for a reader that brings in the pages its look-ups need.

Used in a worker's loop.
"""

from broker._ext.atomics cimport fence
from broker._ext.connection cimport CLOSE_ERROR, Pending
from broker._ext.fetch_context cimport FIRST_WITH_BATCHES, WARM_ROUNDS, FetchPartition
from broker._ext.fetch_places import look_up_cold
from broker._ext.shared cimport monotonic_ms


cdef class FetchWait(FetchContext):
    cdef int watch_all(self) except -1:
        cdef FetchPartition p
        if self.stale or self.watched is None:
            self.unwatch_all()
            self.watched = []
            for p in self.partitions:
                if p.slot:
                    self.watched.append(p.slot - 1)
                    self.room.watch(p.slot - 1, self)
            self.stale = False
        return 0

    cdef int unwatch_all(self) except -1:
        if self.watched is not None:
            for slot in self.watched:
                self.room.unwatch(slot, self)
            self.watched = None
        return 0

    cdef int arm_all(self) noexcept:
        cdef FetchPartition p
        for p in self.partitions:
            if p.slot:
                if self.replica_id >= 0:
                    self.room.arm_log_end(p.slot - 1)
                else:
                    self.room.arm_committed(p.slot - 1)
        fence()
        return 0

    cdef int warm(self) except -1:
        """Have the look-ups that met cold pages done by a reader; `warmed` goes on."""
        jobs, self.cold = self.cold, []
        self.warming = True
        self.warm_rounds += 1
        self.reader.call(lambda: look_up_cold(jobs), self.warmed)
        return 0

    def warmed(self, error):
        """In the loop. An error is not told here: the plan meets it again, and tells the client."""
        cdef Pending pending = self.pending
        self.warming = False
        if error is not None:
            self.warm_rounds = WARM_ROUNDS
        if pending is None or pending.cancelled:
            return
        try:
            self.go_on()
        except Exception as failure:  # the border of a parked request
            self.failed(failure)
        pending.connection.data_loop.flush_dirty()

    cdef int go_on(self) except -1:
        """The pending request once more from its plan on."""
        self.places.plan(self)
        if self.cold:
            return self.warm()
        if self.enough() or monotonic_ms() >= self.until_ms:
            return self.answer()
        self.watch_all()
        self.arm_all()
        self.places.plan(self)
        if self.cold:
            return self.warm()
        if self.enough():
            return self.answer()
        return self.room.park(self, self.until_ms)

    cdef int moved(self) except -1:
        if self.pending is None or self.pending.cancelled:
            return self.stop_waiting()
        if self.warming:
            return 0                    # `warmed` arms and looks
        self.arm_all()
        self.places.plan(self)
        if self.stale and not self.enough():
            # A partition went to another slot: wait there.
            self.watch_all()
            self.arm_all()
            self.places.plan(self)
        if self.cold:
            return self.warm()
        if self.enough():
            self.answer()
        return 0

    cdef int failed(self, error) except -1:
        cdef Pending pending = self.pending
        self.stop_waiting()
        if pending is not None and not pending.cancelled:
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR,
                                                   f"a parked Fetch failed: {type(error).__name__}: {error}")
        return 0

    cdef int expired(self) except -1:
        if self.pending is None or self.pending.cancelled:
            return self.stop_waiting()
        self.places.plan(self)
        return self.answer()

    cdef int stop_waiting(self) except -1:
        self.room.leave(self)
        self.pending = None
        return 0

    cdef int answer(self) except -1:
        """Answer the pending request with what is planned."""
        cdef Pending pending = self.pending
        self.stop_waiting()
        try:
            if self.version < FIRST_WITH_BATCHES and self.planned_bytes:
                return self.conversion.start(self, pending)
            self.responses.give(self, pending)
        except BaseException:
            self.pending = pending              # `failed` closes its connection
            raise
        return 0
