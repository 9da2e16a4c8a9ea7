"""A delayed fetch: a Fetch that cannot be answered at once. It waits in the purgatory for records or for its deadline; or for a reader
that reads the pages its look-ups need; or, if it names many partitions, for its next slice of the loop's time.

Used in a worker's event loop. All partitions are planned when the request arrives, once more after its slots were armed, and when it is
answered. While the fetch is parked, a wake-up examines only the partition whose slot moved.
"""

from functools import partial

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.api.fetch_context cimport FIRST_WITH_BATCHES, WARM_ROUNDS, FetchContext, FetchPartition, reads_to_log_end
from odradek._ext.api.purgatory cimport Waiter
from odradek._ext.net.connection cimport CLOSE_ERROR, Pending
from odradek._ext.shm.atomics cimport fence
from odradek._ext.api.cold_look_ups import look_up_cold
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.metering cimport clock_us
from odradek._ext.shm.replication_quota cimport QUOTA_LEADER, quota_wait_ms
from odradek._ext.shm.slot cimport slot_at


cdef enum:
    REFRESH_MS = 2000                 # an idle follower is noted again within this time, or an eighth of replica.lag.time.max.ms
    SLICE = 256                       # partitions that are planned in one turn of the loop
    COLD_AT_ONCE = 32                 # look-ups that a reader does before it serves another request
    PARTITION_BYTES = 336             # memory of a FetchPartition and its entry in the list
    WATCHED_BYTES = 400               # memory of an entry of the purgatory for a slot that no other request watches
    KEYED_BYTES = 170                 # memory of a partition's key and entry in a session's dict
    BYTES_OBJECT = 40                 # memory of a bytes object without its content


cdef class DelayedFetch(Waiter):
    def __cinit__(self):
        self.context = FetchContext.__new__(FetchContext)

    # -- the plan ---------------------------------------------------------------------------------------------------

    cdef int begin_plan(self, int stage) except -1:
        """Start a new plan of all partitions; `step` makes it."""
        self.stage = stage
        self.planning = True
        if stage == STAGE_SECOND_PLAN and not self.context.selective:
            self.watch_all()
            self.arm_all()
        return self.plan.begin_plan(self.context)

    cdef int step(self) except -1:
        """Plan the next slice of the partitions and, after the last one, decide what follows. Return a Step."""
        cdef int64_t began_us
        cdef int step
        if not self.context.limited or self.pending is None:
            return self.next_step()
        began_us = clock_us()
        step = self.next_step()
        self.pending.spent_us += clock_us() - began_us
        return step

    cdef int next_step(self) except -1:
        cdef FetchContext context = self.context
        while self.plan_some():
            self.planning = False
            if self.stage == STAGE_FIRST_PLAN and not reads_to_log_end(context.replica_id):
                context.count_positions()
            if context.cold:
                return STEP_COLD
            if self.stage == STAGE_ANSWER or context.enough() or context.until_ms <= context.last_used_ms or self.purgatory.ending:
                return STEP_ANSWER
            if context.selective:
                if not context.dirty:
                    return STEP_PARK        # all slots were armed before their look
                context.begin_list()
                self.begin_plan(STAGE_FIRST_PLAN)
                continue
            if self.stage == STAGE_SECOND_PLAN:
                return STEP_PARK
            self.begin_plan(STAGE_SECOND_PLAN)
        return STEP_MORE

    cdef bint plan_some(self) except -1:
        """Plan the next slice of the partitions. Return whether all are planned. In the session of a follower, each slot is armed
        before its look [R 6], so that a later move is noticed between two requests, too.
        """
        cdef Py_ssize_t at
        cdef bint complete
        cdef list listed = self.context.listed
        if self.context.selective:
            for at in range(self.context.plan_at, min(self.context.plan_at + SLICE, <Py_ssize_t>len(listed))):
                self.follow_partition(listed[at])
            fence()
        complete = self.plan.plan_some(self.context, SLICE)
        self.note_later()
        return complete

    # -- the session of a follower ------------------------------------------------------------------------------------

    cdef int follow_partition(self, FetchPartition p) except -1:
        """Watch and arm the slot of a partition that is looked at next. The caller calls `fence`."""
        if self.plan.resolve(p) and not p.slot:
            return 0
        if p.watched != p.slot:
            if p.watched:
                self.purgatory.unwatch(p.watched - 1, self)
            self.purgatory.watch(p.slot - 1, self, p)
            p.watched = p.slot
        self.purgatory.arm_log_end(p.slot - 1)
        self.purgatory.arm_committed(p.slot - 1)
        return 0

    cdef int touched(self, object target) except -1:
        """The slot of a partition moved: the next plan of the session covers it."""
        if self.context.selective:
            self.context.mark_dirty(target)
        return 0

    cdef int refresh_idle(self) except -1:
        """Note again, for a share of the partitions, that the follower has all of their records: within REFRESH_MS, all partitions of
        the session are noted while the follower fetches.

        A follower counts as lagging if replica.lag.time.max.ms has passed since it last had all records. Without this, a partition in
        which nothing was written for that long would count as lagging at its next append, until the follower's next request.
        """
        cdef FetchContext context = self.context
        cdef FetchPartition p
        cdef Py_ssize_t count = len(context.partitions), due
        cdef int64_t passed = context.last_used_ms - context.refreshed_ms
        cdef int64_t refresh_ms = max(<int64_t>1, min(<int64_t>REFRESH_MS, region().header.lag_limit_ms // 8))
        if count == 0 or passed <= 0:
            return 0
        due = <Py_ssize_t>min(<int64_t>count, (count * passed + refresh_ms - 1) // refresh_ms)
        context.refreshed_ms = context.last_used_ms
        for _ in range(due):
            context.refresh_at = context.refresh_at + 1 if context.refresh_at + 1 < count else 0
            p = context.partitions[context.refresh_at]
            if p.dirty or p.listed_for == context.request:
                continue
            if not p.slot or not self.plan.replica_reads.refresh(p, context):
                context.mark_dirty(p)
        return 0

    cdef int drop_forgotten(self) except -1:
        """Stop watching the slots of partitions that the current request removed from the session."""
        cdef FetchPartition p
        for p in self.context.forgotten:
            if p.watched:
                self.purgatory.unwatch(p.watched - 1, self)
                p.watched = 0
        self.context.forgotten = []
        return 0

    cdef int note_later(self) except -1:
        """Note positions that met a taken lock in later turns of the loop."""
        if self.context.unnoted and not self.noting:
            self.noting = True
            self.slices(self.note_again)
        return 0

    def note_again(self) -> bool:
        """In the loop: note positions that met a taken lock. Return whether one did so again. A later request of the follower replaces
        its earlier position.
        """
        cdef FetchPartition p
        cdef list left = self.context.unnoted
        self.context.unnoted = []
        for p in left:
            if p.noted_for != self.context.request and not p.forgotten and not p.found.error and p.slot and not self.context.ended:
                if self.plan.replica_reads.note(p, self.context, slot_at(p.slot - 1)):
                    self.touched(p)
        self.noting = len(self.context.unnoted) > 0
        return self.noting

    cdef int wait_for(self, int step) except -1:
        """Continue the pending request according to `step`, the Step that its plan returned."""
        if step == STEP_ANSWER:
            return self.answer()
        if step == STEP_PARK:
            self.context.drop_lists()
            return self.purgatory.park(self, self.parked_until())
        if step == STEP_COLD:
            return self.warm()
        if not self.sliced:
            self.sliced = True
            self.slices(self.slice)
        return 0

    cdef int64_t parked_until(self) except -1:
        """Return the deadline of the wait: that of the request, or when replication that is throttled may go on."""
        cdef int64_t now
        if not self.context.throttled:
            return self.context.until_ms
        now = monotonic_ms()
        return min(self.context.until_ms, now + quota_wait_ms(QUOTA_LEADER, now))

    def slice(self) -> bool:
        """Plan the next slice of the partitions, in the loop. Return whether another slice follows."""
        cdef int step
        if self.pending is None or self.pending.cancelled or not self.planning:
            self.sliced = False
            return False
        try:
            step = self.step()
            if step == STEP_MORE:
                return True
            self.sliced = False
            self.wait_for(step)
        except Exception as failure:  # an error fails this request only
            self.sliced = False
            self.failed(failure)
        return False

    def plan_again(self, Pending pending, bint wait) -> None:
        """Plan the request, which has this place for its response, again: the client needs none of the records that were planned for
        some partitions.

        :param wait: whether it may wait for records; else it is answered with what is there.
        """
        self.pending = pending
        self.begin_plan(STAGE_FIRST_PLAN if wait else STAGE_ANSWER)
        self.wait_for(self.step())

    # -- pages that are not in the page cache -----------------------------------------------------------------------

    cdef int warm(self) except -1:
        """Repeat the look-ups that met cold pages on a reader's thread; `warmed` continues."""
        jobs, self.context.cold = self.context.cold, []
        self.warming = True
        self.context.warm_rounds += 1
        return self.read_some_cold(jobs)

    cdef int read_some_cold(self, list jobs) except -1:
        """Pass a few look-ups at a time to a reader, so that a request with many of them does not block the readers."""
        now, later = jobs[:COLD_AT_ONCE], jobs[COLD_AT_ONCE:]
        self.context.reader.call(partial(look_up_cold, now), partial(self.warmed, self.pending, later))
        return 0

    def warmed(self, Pending pending, list later, error) -> None:
        """Called in the loop after look-ups for `pending`. Ignores an error: the next plan meets it again, and answers with it."""
        if pending is not self.pending:
            return                      # a later request of the session has replaced it
        if later and error is None and not pending.cancelled:
            self.read_some_cold(later)
            return
        self.warming = False
        if error is not None:
            self.context.warm_rounds = WARM_ROUNDS
        if pending is None or pending.cancelled:
            return
        try:
            self.begin_plan(STAGE_ANSWER if self.stage == STAGE_ANSWER or monotonic_ms() >= self.context.until_ms else STAGE_FIRST_PLAN)
            self.wait_for(self.step())
        except Exception as failure:  # an error fails this request only
            self.failed(failure)
        pending.connection.flush_dirty()

    # -- waiting ----------------------------------------------------------------------------------------------------

    cdef int watch_all(self) except -1:
        cdef FetchPartition p
        if self.context.stale or self.watched is None:
            self.unwatch_all()
            self.watched = []
            for p in self.context.partitions:
                if p.slot:
                    self.purgatory.watch(p.slot - 1, self, p)
                    self.watched.append(p.slot - 1)
            self.context.stale = False
        return 0

    cdef int unwatch_all(self) except -1:
        cdef FetchPartition p
        if self.context.selective:
            for p in self.context.partitions:
                if p.watched:
                    self.purgatory.unwatch(p.watched - 1, self)
                    p.watched = 0
        if self.watched is not None:
            for slot in self.watched:
                self.purgatory.unwatch(slot, self)
            self.watched = None
        return 0

    cdef void arm(self, uint32_t slot) noexcept:
        if reads_to_log_end(self.context.replica_id):
            self.purgatory.arm_log_end(slot)
        else:
            self.purgatory.arm_committed(slot)

    cdef int64_t measure(self) noexcept:
        """Return the approximate memory of the partitions in bytes, with the purgatory's entries for those that are watched."""
        cdef FetchPartition p
        cdef bytes topic = None
        cdef int64_t total = 0
        cdef int64_t each = PARTITION_BYTES if self.watched is None else PARTITION_BYTES + WATCHED_BYTES
        if self.context.by_key is not None:
            each += KEYED_BYTES
        for p in self.context.partitions:
            total += each
            if p.topic is not topic:        # the partitions of a topic are usually adjacent and share its name
                topic = p.topic
                total += BYTES_OBJECT + len(topic)
        return total

    cdef int arm_all(self) noexcept:
        cdef FetchPartition p
        for p in self.context.partitions:
            if p.slot:
                self.arm(p.slot - 1)
        fence()
        return 0

    cdef int moved(self, object target) except -1:
        cdef FetchPartition p = target
        if self.pending is None or self.pending.cancelled:
            self.touched(p)
            return self.stop_waiting()
        if self.context.selective:
            # What moved besides the log end is in the response anyway: it does not end the wait, and is not awaited again.
            self.context.list_partition(p)
        if p.slot:
            self.arm(p.slot - 1)
            fence()
        self.plan.measure(p, self.context)
        if self.context.cold:
            self.purgatory.leave(self)
            return self.warm()
        if self.context.enough():
            return self.answer_soon()
        if self.context.stale and not self.context.selective:          # a partition moved to another slot: watch that slot
            self.purgatory.leave(self)
            self.begin_plan(STAGE_SECOND_PLAN)
            return self.wait_for(self.step())
        if self.context.throttled:
            return self.purgatory.park(self, min(self.deadline_ms, self.parked_until()))
        return 0

    cdef int expired(self) except -1:
        if self.pending is None or self.pending.cancelled:
            return self.stop_waiting()
        if self.context.throttled and self.deadline_ms < self.context.until_ms and monotonic_ms() >= self.deadline_ms:
            self.purgatory.leave(self)
            self.begin_plan(STAGE_FIRST_PLAN)
            return self.wait_for(self.step())
        return self.answer_soon()

    cdef int answer_soon(self) except -1:
        """Answer the pending request with the records that are available now."""
        self.purgatory.leave(self)
        self.begin_plan(STAGE_ANSWER)
        return self.wait_for(self.step())

    cdef int failed(self, error) except -1:
        cdef Pending pending = self.pending
        self.stop_waiting()
        if pending is not None and not pending.cancelled:
            pending.connection.close_now(CLOSE_ERROR, f"a delayed Fetch failed: {type(error).__name__}: {error}")
        return 0

    cdef int stop_waiting(self) except -1:
        self.purgatory.leave(self)
        self.pending = None
        self.planning = self.warming = False
        return 0

    cdef int answer(self) except -1:
        """Answer the pending request with the planned records."""
        cdef Pending pending = self.pending
        self.stop_waiting()
        try:
            if self.context.version < FIRST_WITH_BATCHES and self.context.planned_bytes:
                return self.conversion.start(self.context, pending, self.plan_again)
            self.responses.answer(self.context, pending)
            if self.context.refused:
                self.end_session(self)
        except BaseException:
            self.pending = pending              # `failed` closes its connection
            raise
        return 0
