"""A delayed produce: a Produce that cannot be answered at once; see delayed_produce.pxd.

Runs in the worker's event loop, except for `step`, which runs on the append thread, and `open_large`, which runs on the thread for
large batches; the loop does not touch the request until they are done. Rules: ``docs/decisions/0005-off-the-loop.md``,
``docs/decisions/0022-what-one-request-may-cost.md``, and [R 6] for waiting.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from odradek._ext.api.produce_items cimport (
    SLOW_OLD,
    ProduceItem,
    ProduceRequest,
    any_refused,
    append_items,
    check_framed,
    decided,
    first_undecided,
    link_items,
    may_be_deposed,
    on_device,
    reason_of,
    refuse,
)
from odradek._ext.api.produce_responses cimport ProduceResponses, attach_record_errors
from odradek._ext.api.purgatory cimport Purgatory, Waiter
from odradek._ext.api.refused_batches cimport RefusedBatches
from odradek._ext.net.connection cimport CLOSE_ERROR, CLOSE_HANDLER, Connection, Pending
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.kafka_errors cimport MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT
from odradek._ext.records.record_batch cimport BatchInfo, parse_batch_header
from odradek._ext.shm.layout cimport Slot, monotonic_ms, now_ms, slot_at
from odradek._ext.shm.locks cimport LANE_SECOND, SPINS_OF_LOOP, SPINS_OF_THREAD, set_lane
from odradek._ext.shm.metering cimport PARKED_PRODUCES


cdef enum:
    DECOMPRESSED_LIMIT = 128 * 1024 * 1024        # maximum decompressed size of a batch, in bytes
    SMALL_DECOMPRESSED_LIMIT = 2 * 1024 * 1024    # a batch with a larger decompressed size goes to the thread for large batches
    DECOMPRESSED_IN_A_STEP = 1024 * 1024          # decompressed bytes after which the append thread serves another request
    APPENDED_IN_A_STEP = 256                      # items
    LIMIT_REACHED = -1                            # returned by `prepare` as size: the decompressed records exceed its limit
    LOCK_PATIENCE_MS = 15000                      # longer than the supervisor lets a process that holds a lock stand still


cdef const char* TOO_MUCH_DECOMPRESSED = \
    "the decompressed records of the request exceed odradek.produce.max.decompressed.bytes; send them again in smaller requests"


cdef bint must_wait(Connection connection) noexcept:
    cdef Pending pending = connection.pending_head
    while pending is not None:
        if not isinstance(pending, DelayedProduce) or not (<DelayedProduce>pending).executed:
            return True
        pending = pending.next
    return False


cdef class ProduceDelays:
    def __init__(self, Purgatory purgatory not None, retry, prepare, int64_t max_opened_bytes, ProduceResponses responses not None,
                 RefusedBatches refused not None):
        self.purgatory = purgatory
        self.retry = retry
        self.prepare = prepare
        self.max_opened_bytes = max_opened_bytes
        self.responses = responses
        self.refused = refused


cdef class DelayedProduce(Pending):
    def __dealloc__(self):
        free(self.items)
        free(self.frame)

    cdef adopt_frame(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors, uint8_t* frame,
                     int64_t size):
        """Own a request that is not executed yet, with a copy of its whole frame."""
        cdef int i
        self.frame = <uint8_t*>malloc(size)
        self.own_items(delays, request, items, record_errors)
        if self.frame == NULL:
            raise MemoryError(f"no memory for a copy of a Produce request of {size} bytes")
        memcpy(self.frame, frame, size)
        for i in range(self.request.count):
            self.items[i].topic = self.frame + (self.items[i].topic - frame)
            if self.items[i].append.data != NULL:
                self.items[i].append.data = self.frame + (self.items[i].append.data - frame)

    cdef adopt_request(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors):
        """Own a request that was executed as far as possible. Copies only its topic names and the batches that are not appended yet."""
        cdef int64_t room = 0, at = 0
        cdef int i
        cdef ProduceItem* item
        self.own_items(delays, request, items, record_errors)
        for i in range(self.request.count):
            item = &self.items[i]
            room += item.topic_bytes
            if not item.appended and not item.error:
                room += item.append.info.size
        self.frame = <uint8_t*>malloc(max(room, <int64_t>1))
        if self.frame == NULL:
            raise MemoryError(f"no memory for {room} bytes of a delayed Produce request")
        for i in range(self.request.count):
            item = &self.items[i]
            memcpy(self.frame + at, item.topic, item.topic_bytes)
            item.topic = self.frame + at
            at += item.topic_bytes
            if not item.appended and not item.error:
                memcpy(self.frame + at, item.append.data, item.append.info.size)
                item.append.data = self.frame + at
                at += item.append.info.size
            else:
                item.append.data = NULL

    cdef own_items(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors):
        self.delays = delays
        self.request = request[0]
        self.request.first = 0
        self.deadline_ms = monotonic_ms() + max(request.timeout_ms, 0)
        self.patience_ms = max(self.deadline_ms, monotonic_ms() + LOCK_PATIENCE_MS)
        self.items = <ProduceItem*>malloc(max(request.count, 1) * sizeof(ProduceItem))
        if self.items == NULL:
            raise MemoryError("no memory for a delayed Produce request")
        memcpy(self.items, items + request.first, request.count * sizeof(ProduceItem))
        link_items(self.items, self.request.count)
        if record_errors is not None:
            self.record_errors = list(record_errors)      # the items contain indices of it

    # -- on the threads ---------------------------------------------------------------------------------------------

    def step(self):
        """On the append thread: decompress some batches or, after the last one, append some items. Return whether another step on this
        thread follows; none follows if the client has closed its connection.
        """
        cdef int end
        set_lane(LANE_SECOND)
        if self.cancelled:
            return False
        if self.prepared_items < self.request.count and self.prepare_some():
            return not self.large_next
        end = min(self.appended_items + APPENDED_IN_A_STEP, self.request.count)
        with nogil:
            append_items(self.items, self.appended_items, end, SPINS_OF_THREAD, now_ms())
        self.appended_items = end
        return end < self.request.count

    def open_large(self):
        """On the thread for large batches: decompress the batch at which `step` stopped."""
        cdef ProduceItem* item = &self.items[self.prepared_items]
        self.large_next = False
        if self.cancelled:
            return False
        if not self.prepare_item(item, DECOMPRESSED_LIMIT):
            refuse(item, MESSAGE_TOO_LARGE, reason_of(MESSAGE_TOO_LARGE))
        self.prepared_items += 1
        return False

    cdef bint prepare_some(self) except -1:
        """Decompress batches up to the limit of a step. Return whether the step ends after that."""
        cdef int64_t before = self.decompressed_bytes, left
        cdef ProduceItem* item
        while self.prepared_items < self.request.count:
            item = &self.items[self.prepared_items]
            if item.slow and not item.error and not item.appended:
                if self.decompressed_bytes - before >= DECOMPRESSED_IN_A_STEP:
                    return True
                left = self.delays.max_opened_bytes - self.decompressed_bytes
                if left <= 0:
                    refuse(item, NOT_ENOUGH_REPLICAS, TOO_MUCH_DECOMPRESSED)
                elif not self.prepare_item(item, SMALL_DECOMPRESSED_LIMIT):
                    if left >= DECOMPRESSED_LIMIT:
                        self.large_next = True
                        return True
                    refuse(item, NOT_ENOUGH_REPLICAS, TOO_MUCH_DECOMPRESSED)
            self.prepared_items += 1
        return False

    cdef bint prepare_item(self, ProduceItem* item, int64_t limit) except -1:
        """Decompress or convert the records of an item. Return False if their decompressed size exceeds `limit` bytes."""
        cdef Slot* slot = slot_at(item.slot - 1)
        cdef int64_t size
        error, details, batch, size = self.delays.prepare(
            PyMemoryView_FromMemory(<char*>item.append.data, item.append.info.size, PyBUF_READ), item.slow == SLOW_OLD,
            slot.settings.compression, slot.settings.compression_level, limit, slot.settings.max_message_bytes)
        self.decompressed_bytes += limit if size == LIMIT_REACHED else size
        if size == LIMIT_REACHED:
            return False
        item.slow = 0
        if error:
            refuse(item, error, reason_of(error))
        else:
            self.prepared(item, details, batch)
        return True

    cdef prepared(self, ProduceItem* item, details, bytes batch):
        """Check the details of the decompressed records, and use `batch`, if it is not None, instead of the batch that was sent."""
        cdef BatchInfo* info = &item.append.info
        cdef int64_t wall_ms = now_ms()
        if batch is not None:
            if len(batch) > slot_at(item.slot - 1).settings.max_message_bytes:
                refuse(item, MESSAGE_TOO_LARGE, "the record batch, in the form to be stored, is larger than max.message.bytes")
                return
            if self.kept is None:
                self.kept = []
            self.kept.append(batch)
            item.append.data = <uint8_t*><char*>batch         # no other code refers to it: the append may patch it
            parse_batch_header(item.append.data, <size_t>len(batch), info)
        info.keyless = details["keyless"]
        info.found_max_timestamp = details["found_max_timestamp"]
        info.found_min_timestamp = details["found_min_timestamp"]
        info.log_append_time |= details["log_append_time"]
        check_framed(item, slot_at(item.slot - 1), wall_ms)
        if item.bad_records:
            self.name_bad_records(item, details["records"], details["separate"], wall_ms)

    cdef name_bad_records(self, ProduceItem* item, object records, bint separate, int64_t wall_ms):
        """Find the records for which the item's batch is refused."""
        cdef ByteView view = ByteView(records)
        if self.record_errors is None:
            self.record_errors = []
        attach_record_errors(&self.request, item, self.record_errors, view.data, view.size, wall_ms, separate)

    # -- in the loop ------------------------------------------------------------------------------------------------

    def worked(self):
        """Called in the loop after the last `step`."""
        cdef int i
        if self.appended_items < self.request.count:        # the client has closed its connection
            for i in range(self.request.count):
                if not self.items[i].error and not self.items[i].appended:
                    refuse(&self.items[i], REQUEST_TIMED_OUT, NULL)
        self.wait_or_answer()

    def again(self):
        """Try again to append the items whose lock was taken, even if the client has closed its connection meanwhile."""
        self.tries += 1
        append_items(self.items, 0, self.request.count, SPINS_OF_LOOP, now_ms())
        self.wait_or_answer()

    cdef int note_refused(self) except -1:
        """Note the refused batches, so that later ones of their producers do not come before their retries."""
        cdef int i
        if self.cancelled:
            return 0
        for i in range(self.request.count):
            if self.items[i].error and self.items[i].slot:
                self.delays.refused.note(self.request.connection_id, &self.items[i])
        return 0

    cdef int wait_or_answer(self) except -1:
        """Answer if all items are decided; else wait for a lock, for the high watermark or for a sync."""
        cdef int i
        cdef bint unappended = False
        cdef Purgatory purgatory = self.delays.purgatory
        cdef DelayedProduceWaiter waiter
        for i in range(self.request.count):
            if not self.items[i].error and not self.items[i].appended:
                unappended = True
        if unappended:
            if monotonic_ms() < self.patience_ms:
                self.delays.retry(self)
                return 0
            for i in range(self.request.count):
                if not self.items[i].error and not self.items[i].appended:
                    refuse(&self.items[i], REQUEST_TIMED_OUT, "another append held the partition's lock for too long")
        self.executed = True
        self.note_refused()
        self.delays.responses.count_in(&self.request, self.items)
        if self.waiter is None and (self.request.acks == -1 or self.awaits_flush()):
            waiter = self.waiter = DelayedProduceWaiter.__new__(DelayedProduceWaiter)
            waiter.pending = self
            waiter.gauge = PARKED_PRODUCES
            for i in range(self.request.count - 1, -1, -1):
                if not self.items[i].error:
                    purgatory.watch(self.items[i].slot - 1, waiter, i)
            # The client's timeout applies to replicas. Without acks=all the records are written, and only their sync is awaited.
            purgatory.park(waiter, self.deadline_ms if self.request.acks == -1 else self.patience_ms)
        return self.check_all()

    cdef bint awaits_flush(self) noexcept:
        cdef int i
        for i in range(self.request.count):
            if self.items[i].flush_offset and not self.items[i].error and self.request.acks != 0:
                return True
        return False

    cdef int check_all(self) except -1:
        """Arm all slots, check all items, and answer if they are decided; else request a sync for the items that await it."""
        cdef int i
        if self.waiter is not None:
            for i in range(self.request.count):
                if not self.items[i].error:
                    self.arm(&self.items[i])
        self.undecided = first_undecided(&self.request, self.items, self.undecided)
        if self.undecided == self.request.count:
            if self.request.acks == 0:
                self.delays.responses.request_flush(&self.request, self.items)
            self.answer_now()
        else:
            self.delays.responses.request_flush(&self.request, self.items)
        return 0

    cdef int check_slot_of(self, int item) except -1:
        """As `check_all`, for `item` and the later items of its slot: only that slot has moved.

        A decided item stays decided, so all wake-ups together check each item at most once more than its slot moves.
        """
        cdef int i = item
        cdef bint deposed
        while i >= 0:
            if not self.items[i].error:
                self.arm(&self.items[i])
            i = self.items[i].following
        self.undecided = first_undecided(&self.request, self.items, self.undecided)
        if self.undecided == self.request.count:
            return self.answer_now()
        i = item
        deposed = may_be_deposed(self.request.acks)
        while i >= 0:
            if not decided(&self.items[i], self.request.acks, deposed):
                self.delays.responses.request_flush_of(&self.items[i])
            i = self.items[i].following
        return 0

    cdef void arm(self, ProduceItem* item) noexcept:
        if self.request.acks == -1:
            self.delays.purgatory.arm_committed(item.slot - 1)
        if item.flush_offset:
            self.delays.purgatory.arm_flushed(item.slot - 1)

    cdef bint only_flush(self) noexcept:
        """Return whether the request awaits only syncs."""
        cdef int i
        cdef bint waits = False, deposed = may_be_deposed(self.request.acks)
        for i in range(self.request.count):
            if not decided(&self.items[i], self.request.acks, deposed):
                waits = True
                if not self.items[i].flush_offset or on_device(&self.items[i]):
                    return False
        return waits

    cdef int answer_now(self) except -1:
        cdef int i
        cdef Connection connection = self.connection
        cdef DelayedProduceWaiter waiter = self.waiter
        cdef Purgatory purgatory = self.delays.purgatory
        if waiter is not None:
            purgatory.leave(waiter)
            for i in range(self.request.count):
                if self.items[i].slot:
                    purgatory.unwatch(self.items[i].slot - 1, waiter)
            self.waiter = None
            waiter.pending = None               # may be the last reference to `self` except the caller's
        if self.cancelled or self.done:
            return 0
        self.note_refused()
        if self.request.acks == 0:
            self.delays.responses.count_answer(&self.request, self.items, 0)
            if any_refused(&self.request, self.items):
                connection.data_loop.begin_close(connection, CLOSE_HANDLER, "a record batch sent with acks=0 was refused")
            self.complete(())
            return 0
        self.begin()
        try:
            self.delays.responses.write_response(connection.data_loop, &self.request, self.items, self.record_errors)
        except BaseException:
            self.abandon()
            raise
        self.finish()
        return 0


cdef class DelayedProduceWaiter(Waiter):
    cdef int moved(self, object target) except -1:
        cdef DelayedProduce pending = self.pending      # `answer_now` sets the field to None
        return 0 if pending is None else pending.check_slot_of(target)

    cdef int expired(self) except -1:
        cdef int i
        cdef DelayedProduce pending = self.pending
        cdef bint deposed
        if pending is None:
            return 0
        if monotonic_ms() < self.deadline_ms and pending.only_flush():
            # The worker stops, and the records are in the log: their sync is in progress.
            return pending.delays.purgatory.park(self, self.deadline_ms)
        deposed = may_be_deposed(pending.request.acks)
        for i in range(pending.request.count):
            if not decided(&pending.items[i], pending.request.acks, deposed):
                refuse(&pending.items[i], REQUEST_TIMED_OUT, NULL)
        return pending.answer_now()

    cdef int failed(self, error) except -1:
        cdef DelayedProduce pending = self.pending
        self.pending = None
        if pending is not None and not pending.cancelled:
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR,
                                                   f"a delayed Produce failed: {type(error).__name__}: {error}")
        return 0
