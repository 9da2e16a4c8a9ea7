"""A Produce request that could not be answered at once; see parked_produce.pxd.

In the worker's loop, but `work`, which an append thread runs; the loop leaves the request alone until it is back. Rules:
``docs/decisions/0005-off-the-loop.md``, and [R 6] for whom waits.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker._ext.connection cimport CLOSE_ERROR, CLOSE_HANDLER, Connection, Pending
from broker._ext.locks cimport SPINS_OF_LOOP, SPINS_OF_THREAD, set_lane
from broker._ext.metering cimport PARKED_PRODUCES
from broker._ext.produce cimport Producing
from broker._ext.produce_items cimport (
    any_refused,
    REQUEST_TIMED_OUT,
    SLOW_OLD,
    ProduceItem,
    ProduceRequest,
    append_items,
    check_framed,
    decided,
    on_device,
    reason_of,
    refuse,
    settled,
)
from broker._ext.records cimport ERROR_MESSAGE_TOO_LARGE, BatchInfo, parse_batch_header
from broker._ext.shared cimport Slot, monotonic_ms, now_ms, slot_at
from broker._ext.waiting cimport Waiter, WaitingRoom


cdef enum:
    OPEN_LIMIT = 128 * 1024 * 1024    # the most that a compressed batch may open to, in bytes
    LOCK_PATIENCE_MS = 15000          # longer than the supervisor lets a holder stand still


cdef bint must_wait(Connection connection) noexcept:
    cdef Pending pending = connection.pending_head
    while pending is not None:
        if not isinstance(pending, ProducePending) or not (<ProducePending>pending).executed:
            return True
        pending = pending.next
    return False


cdef class ProducePending(Pending):
    def __dealloc__(self):
        free(self.items)
        free(self.frame)

    cdef take(self, Producing producing, uint8_t* frame, int64_t size):
        """Take over the newest request of `producing` with a copy of its frame, before it is executed."""
        cdef ProduceRequest* request = &producing.requests[producing.request_count - 1]
        cdef int i
        self.frame = <uint8_t*>malloc(size)
        self.own_items(producing, request)
        if self.frame == NULL:
            raise MemoryError(f"no memory for a request of {size} bytes")
        memcpy(self.frame, frame, size)
        for i in range(self.request.count):
            self.items[i].topic = self.frame + (self.items[i].topic - frame)
            if self.items[i].append.data != NULL:
                self.items[i].append.data = self.frame + (self.items[i].append.data - frame)
        producing.item_count = request.first
        producing.request_count -= 1

    cdef take_request(self, Producing producing, ProduceRequest* request):
        """Take over a request that was executed as far as it could be; only what is not appended yet is copied."""
        cdef int64_t room = 0, at = 0
        cdef int i
        cdef ProduceItem* item
        self.own_items(producing, request)
        for i in range(self.request.count):
            item = &self.items[i]
            room += item.topic_bytes
            if not item.appended and not item.error:
                room += item.append.info.size
        self.frame = <uint8_t*>malloc(max(room, <int64_t>1))
        if self.frame == NULL:
            raise MemoryError(f"no memory for {room} bytes of a parked request")
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

    cdef own_items(self, Producing producing, ProduceRequest* request):
        self.producing = producing
        self.request = request[0]
        self.request.first = 0
        self.deadline_ms = monotonic_ms() + max(request.timeout_ms, 0)
        self.patience_ms = max(self.deadline_ms, monotonic_ms() + LOCK_PATIENCE_MS)
        self.items = <ProduceItem*>malloc(max(request.count, 1) * sizeof(ProduceItem))
        if self.items == NULL:
            raise MemoryError("no memory for a parked produce request")
        memcpy(self.items, producing.items + request.first, request.count * sizeof(ProduceItem))

    def work(self):
        """On an append thread: open compressed batches, then append all."""
        cdef int i, busy
        cdef int64_t wall_ms = now_ms()
        cdef ProduceItem* item
        set_lane(1)
        for i in range(self.request.count):
            item = &self.items[i]
            if item.error or item.appended or not item.slow:
                continue
            self.prepare(item, wall_ms)
            item.slow = 0
        with nogil:
            busy = append_items(self.items, self.request.count, SPINS_OF_THREAD, wall_ms)
        self.result = busy

    cdef prepare(self, ProduceItem* item, int64_t wall_ms):
        cdef Slot* slot = slot_at(item.slot - 1)
        cdef int codec = slot.settings.compression
        found = self.producing.prepare(<const unsigned char[:item.append.info.size]>item.append.data, item.slow == SLOW_OLD,
                                       codec, slot.settings.compression_level, OPEN_LIMIT, slot.settings.max_message_bytes)
        self.prepared(item, found, wall_ms)

    cdef prepared(self, ProduceItem* item, found, int64_t wall_ms):
        cdef BatchInfo* info = &item.append.info
        cdef bytes batch
        error, details, batch = found
        if error:
            refuse(item, error, reason_of(error))
            return
        if batch is not None:
            if self.kept is None:
                self.kept = []
            self.kept.append(batch)
            item.append.data = <uint8_t*><char*>batch         # nobody else has it: it may be patched
            parse_batch_header(item.append.data, <size_t>len(batch), info)
            if info.size > slot_at(item.slot - 1).settings.max_message_bytes:
                refuse(item, ERROR_MESSAGE_TOO_LARGE, "the record batch, as it would be stored, is larger than max.message.bytes")
                return
        info.keyless = details["keyless"]
        info.found_max_timestamp = details["found_max_timestamp"]
        info.found_min_timestamp = details["found_min_timestamp"]
        check_framed(item, slot_at(item.slot - 1), wall_ms)

    def worked(self):
        """In the loop, after `work`."""
        self.wait_or_answer()

    def again(self):
        """In the loop: try once more what met a taken lock; also for a client that is gone, as if it had gone after."""
        self.tries += 1
        append_items(self.items, self.request.count, SPINS_OF_LOOP, now_ms())
        self.wait_or_answer()

    cdef int wait_or_answer(self) except -1:
        """Answer if all is decided; else wait: for a lock, or for the high watermark."""
        cdef int i
        cdef bint unappended = False
        cdef WaitingRoom room = self.producing.room
        for i in range(self.request.count):
            if not self.items[i].error and not self.items[i].appended:
                unappended = True
        if unappended:
            if monotonic_ms() < self.patience_ms:
                self.producing.retry(self)
                return 0
            for i in range(self.request.count):
                if not self.items[i].error and not self.items[i].appended:
                    refuse(&self.items[i], REQUEST_TIMED_OUT, "the partition stayed busy")
        self.executed = True
        self.producing.count_in(&self.request, self.items)
        if self.waiter is None and (self.request.acks == -1 or self.awaits_flush()):
            self.waiter = ProduceWaiter.__new__(ProduceWaiter)
            self.waiter.pending = self
            self.waiter.gauge = PARKED_PRODUCES
            for i in range(self.request.count):
                if not self.items[i].error:
                    room.watch(self.items[i].slot - 1, self.waiter)
            # The client's time-out is for replicas; what one asks that waits for none, is written and will be synced.
            room.park(self.waiter, self.deadline_ms if self.request.acks == -1 else self.patience_ms)
        return self.look()

    cdef bint awaits_flush(self) noexcept:
        cdef int i
        for i in range(self.request.count):
            if self.items[i].flush_offset and not self.items[i].error and self.request.acks != 0:
                return True
        return False

    cdef int look(self) except -1:
        """Arm, look, and answer if it is decided; else have synced what must be."""
        cdef int i
        if self.waiter is not None:
            for i in range(self.request.count):
                if self.items[i].error:
                    continue
                if self.request.acks == -1:
                    self.producing.room.arm_committed(self.items[i].slot - 1)
                if self.items[i].flush_offset:
                    self.producing.room.arm_flushed(self.items[i].slot - 1)
        if settled(&self.request, self.items):
            if self.request.acks == 0:
                self.producing.ask_flush(&self.request, self.items)
            self.answer_now()
        else:
            self.producing.ask_flush(&self.request, self.items)
        return 0

    cdef bint only_flush(self) noexcept:
        """Whether a sync is all that is waited for."""
        cdef int i
        cdef bint waits = False
        for i in range(self.request.count):
            if not decided(&self.items[i], self.request.acks):
                waits = True
                if not self.items[i].flush_offset or on_device(&self.items[i]):
                    return False
        return waits

    cdef int answer_now(self) except -1:
        cdef int i
        cdef Connection connection = self.connection
        if self.waiter is not None:
            self.producing.room.leave(self.waiter)
            for i in range(self.request.count):
                if self.items[i].slot:
                    self.producing.room.unwatch(self.items[i].slot - 1, self.waiter)
            self.waiter.pending = None
            self.waiter = None
        if self.cancelled or self.done:
            return 0
        if self.request.acks == 0:
            self.producing.count_answer(&self.request, self.items, 0)
            if any_refused(&self.request, self.items):
                connection.data_loop.begin_close(connection, CLOSE_HANDLER, "a record sent with acks=0 was refused")
            self.complete(())
            return 0
        self.begin()
        try:
            self.producing.write_response(connection.data_loop, &self.request, self.items)
        except BaseException:
            self.abandon()
            raise
        self.finish()
        return 0


cdef class ProduceWaiter(Waiter):
    cdef int moved(self) except -1:
        if self.pending is not None:
            self.pending.look()
        return 0

    cdef int expired(self) except -1:
        cdef int i
        cdef ProducePending pending = self.pending
        if pending is None:
            return 0
        if monotonic_ms() < self.deadline_ms and pending.only_flush():
            # The worker stops, and the records are in the log: their sync is under way.
            return pending.producing.room.park(self, self.deadline_ms)
        for i in range(pending.request.count):
            if not decided(&pending.items[i], pending.request.acks):
                refuse(&pending.items[i], REQUEST_TIMED_OUT, NULL)
        return pending.answer_now()

    cdef int failed(self, error) except -1:
        cdef ProducePending pending = self.pending
        self.pending = None
        if pending is not None and not pending.cancelled:
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR,
                                                   f"a parked Produce failed: {type(error).__name__}: {error}")
        return 0
