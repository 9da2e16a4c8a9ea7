"""A delayed produce: a Produce that cannot be answered at once; see delayed_produce.pxd.

Runs in the worker's event loop, except for `step`, which runs on the append thread, and `open_large`, which runs on the thread for
large batches; the loop does not touch the request until they are done. Rules: ``docs/decisions/0005-off-the-loop.md``,
``docs/decisions/0022-what-one-request-may-cost.md``, and [R 6] for waiting.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from odradek._ext.api.access cimport ACL_WRITE, Access, AccessControl
from odradek._ext.api.produce_items cimport (
    PRODUCE_BY_ID,
    SLOW_OLD,
    BatchProducer,
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
    producer_of,
    reason_of,
    refuse,
)
from odradek._ext.api.produce_responses cimport ProduceResponses, attach_record_errors
from odradek._ext.api.purgatory cimport Purgatory, Waiter
from odradek._ext.api.refused_batches cimport RefusedBatches
from odradek._ext.api.transactional_items cimport PRODUCE_ADDS_PARTITIONS, refuse_by_coordinator, refuse_unanswered
from odradek._ext.net.charging cimport charge_produce
from odradek._ext.net.connection cimport CLOSE_ERROR, CLOSE_HANDLER, Connection, Pending
from odradek._ext.partition.log_writing cimport UNVERIFIED
from odradek._ext.protocol.api_versions cimport PRODUCE
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.kafka_errors cimport (
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek._ext.records.record_batch cimport BatchInfo, parse_batch_header
from odradek._ext.shm.clock cimport monotonic_ms, now_ms
from odradek._ext.shm.locks cimport LANE_SECOND, SPINS_OF_LOOP, SPINS_OF_THREAD, set_lane
from odradek._ext.shm.metering cimport (
    PARKED_PRODUCES,
    VERIFICATION_FAILURES,
    VERIFICATION_US,
    VERIFICATIONS,
    add,
    clock_us,
)
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef enum:
    DECOMPRESSED_LIMIT = 128 * 1024 * 1024        # maximum decompressed size of a batch, in bytes
    SMALL_DECOMPRESSED_LIMIT = 2 * 1024 * 1024    # a batch with a larger decompressed size goes to the thread for large batches
    DECOMPRESSED_IN_A_STEP = 1024 * 1024          # decompressed bytes after which the append thread serves another request
    APPENDED_IN_A_STEP = 256                      # items
    LIMIT_REACHED = -1                            # returned by `prepare` as size: the decompressed records exceed its limit
    LOCK_PATIENCE_MS = 15000                      # longer than the supervisor lets a process that holds a lock stand still
    MOST_QUESTIONS = 3                            # that a request asks the coordinator of its transaction
    LEAST_QUESTION_MS = 1000                      # the client's timeout limits the time for all of them, within these limits
    MOST_QUESTION_MS = 30000


cdef const char* TOO_MUCH_DECOMPRESSED = \
    "the decompressed records of the request exceed odradek.produce.max.decompressed.bytes; send them again in smaller requests"


cdef const char* STOPPING = "the broker stops; send the batch again"
cdef const char* MARK_LOST = \
    "the partition lost what it knew of the transaction several times before the batch was appended; send the batch again"
cdef const char* NOT_ANSWERED = "the coordinator of the transaction did not answer; send the batch again"
cdef const char* NOT_IN_TIME = "the coordinator of the transaction did not answer in time; send the batch again"


cdef bint must_wait(Connection connection) noexcept:
    cdef Pending pending = connection.pending_head
    while pending is not None:
        if not isinstance(pending, DelayedProduce) or not (<DelayedProduce>pending).executed:
            return True
        pending = pending.next
    return False


cdef class ProduceDelays:
    def __init__(self, TopicDirectory topics not None, Purgatory purgatory not None, offload, retry, ask, prepare,
                 int64_t max_opened_bytes, ProduceResponses responses not None, RefusedBatches refused not None):
        self.topics = topics
        self.purgatory = purgatory
        self.offload = offload
        self.retry = retry
        self.ask = ask
        self.asking = {}
        self.prepare = prepare
        self.max_opened_bytes = max_opened_bytes
        self.responses = responses
        self.refused = refused


cdef class DelayedProduce(Pending):
    def __dealloc__(self):
        free(self.items)
        free(self.frame)
        if self.pool is None:
            free(self.buffer.data)                  # no buffer; or the garbage collector has cleared `pool`
        else:
            self.pool.give(&self.buffer)

    cdef adopt_frame(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors, uint8_t* frame,
                     int64_t size):
        """Own a request that is not executed yet, with a copy of its whole frame."""
        cdef int i
        self.frame = <uint8_t*>malloc(size)
        self.own_items(delays, request, items, record_errors)
        if self.frame == NULL:
            raise MemoryError(f"no memory for a copy of a Produce request of {size} bytes")
        memcpy(self.frame, frame, size)
        if request.transactional_id_bytes > 0:
            self.request.transactional_id = self.frame + (request.transactional_id - frame)
        for i in range(self.request.count):
            self.items[i].topic = self.frame + (self.items[i].topic - frame)
            if self.items[i].append.data != NULL:
                self.items[i].append.data = self.frame + (self.items[i].append.data - frame)

    cdef adopt_request(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors,
                       Connection connection):
        """Own a request that was executed as far as possible. Needs only its transactional id, its topic names, and the batches that
        are not appended yet: takes over the receive buffer of the request if these are a large part of it, otherwise copies them."""
        cdef int64_t room = max(request.transactional_id_bytes, 0), at = 0
        cdef int i
        cdef ProduceItem* item
        cdef const uint8_t* data = NULL
        self.own_items(delays, request, items, record_errors)
        for i in range(self.request.count):
            item = &self.items[i]
            room += item.topic_bytes
            if not item.appended and not item.error:
                room += item.append.info.size
                data = item.append.data
        if data != NULL and connection.move_part(data, room, &self.buffer):
            self.pool = connection.pool
            for i in range(self.request.count):
                if self.items[i].appended or self.items[i].error:
                    self.items[i].append.data = NULL
            return
        self.frame = <uint8_t*>malloc(max(room, <int64_t>1))
        if self.frame == NULL:
            raise MemoryError(f"no memory for {room} bytes of a delayed Produce request")
        if request.transactional_id_bytes > 0:
            memcpy(self.frame, request.transactional_id, request.transactional_id_bytes)
            self.request.transactional_id = self.frame
            at = request.transactional_id_bytes
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
        if delays.control is not None:
            self.authorized_by = delays.control.loaded
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

    def step(self) -> bool:
        """On the append thread: decompress some batches or, after the last one, append some items. Return whether another step on this
        thread follows; none follows if the client has closed its connection.
        """
        cdef int64_t began_us
        if not self.request.limited:
            return self.next_step()
        began_us = clock_us()
        try:
            return self.next_step()
        finally:
            self.spent_us += clock_us() - began_us

    cdef bint next_step(self) except -1:
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

    def open_large(self) -> bool:
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

    def worked(self) -> None:
        """Called in the loop after the last `step`."""
        if self.appended_items < self.request.count:        # the client has closed its connection
            self.drop()
        self.settle()
        self.go_on()

    def again(self) -> None:
        """Try again to append the items whose lock was taken, even if the client has closed its connection meanwhile."""
        self.tries += 1
        self.append_rest()
        self.go_on()

    cdef bint unappended(self) noexcept:
        """Return whether an item is neither appended nor refused."""
        cdef int i
        for i in range(self.request.count):
            if not self.items[i].error and not self.items[i].appended:
                return True
        return False

    cdef int append_rest(self) except -1:
        """Append the items that are neither appended nor refused; on the append thread if they are large."""
        cdef int64_t size = 0
        cdef int i, count = 0
        cdef ProduceItem* item
        if self.delays.control is not None and not self.cancelled:
            self.refuse_revoked()
        for i in range(self.request.count):
            item = &self.items[i]
            if item.error or item.appended:
                continue
            item.unverified = item.held = item.append.unverified = 0
            item.append.error = 0
            if not self.cancelled:
                self.delays.refused.judge(self.request.connection_id, item)
            size += item.append.info.size
            count += 1
        if size > LARGE_REQUEST or count > MANY_ITEMS:
            self.appended_items = 0
            self.delays.offload(self)
            return 0
        append_items(self.items, 0, self.request.count, SPINS_OF_LOOP, now_ms())
        return self.settle()

    cdef int refuse_revoked(self) except -1:
        """After a wait: refuse what is not appended yet and what the client may not write any more."""
        cdef AccessControl control = self.delays.control
        cdef Access access = control.of_connection(self.connection)
        cdef bint by_id = self.request.version >= PRODUCE_BY_ID
        cdef ProduceItem* item
        cdef Topic topic
        cdef int i
        if <uint64_t>control.refresh() == self.authorized_by:
            return 0
        self.authorized_by = control.loaded
        for i in range(self.request.count):
            item = &self.items[i]
            if item.error or item.appended:
                continue
            name = (<const char*>item.topic)[:item.topic_bytes]
            topic = (self.delays.topics.by_id if by_id else self.delays.topics.by_name).get(name)
            if topic is not None and not access.may_use_topic(ACL_WRITE, topic.name_bytes, PRODUCE):
                refuse(item, TOPIC_AUTHORIZATION_FAILED, NULL)
                self.delays.refused.note(self.request.connection_id, item)
        return 0

    cdef int go_on(self) except -1:
        """If the request is executed, execute those that waited for it. A loop: they may be as many as the requests of a read."""
        cdef DelayedProduce done = self, following
        while done.executed and done.behind is not None:
            following = done.behind
            done.behind = None
            following.waits_turn = False
            if done.dropped or (following.cancelled and done.questions):
                following.drop()
                following.settle()
            else:
                following.append_rest()
            done = following
        return 0

    cdef int drop(self) except -1:
        """Do not execute what is not executed yet: the client has closed the connection."""
        cdef int i
        self.dropped = True
        for i in range(self.request.count):
            if not self.items[i].error and not self.items[i].appended:
                refuse(&self.items[i], REQUEST_TIMED_OUT, NULL)
        return 0

    # -- questions to the coordinator of the transaction ----------------------------------------------------------------

    cdef int64_t question_deadline(self) noexcept:
        cdef int64_t timeout_ms = self.request.timeout_ms
        return self.deadline_ms - max(timeout_ms, <int64_t>0) + min(max(timeout_ms, <int64_t>LEAST_QUESTION_MS), <int64_t>MOST_QUESTION_MS)

    cdef bint ask(self) except -1:
        """Ask the coordinator of the transaction for the unverified partitions. Return False if they were refused instead.

        The question also contains the partitions of the requests behind this one, which then need no question of their own.
        """
        cdef Purgatory purgatory = self.delays.purgatory
        cdef DelayedProduce following = self.behind
        cdef QuestionWaiter asker
        cdef dict questions = {}
        cdef int64_t deadline_ms = self.question_deadline()
        if self.cancelled:
            self.drop()
            return False
        if purgatory.ending:
            return self.refuse_unverified(STOPPING)
        if self.questions == MOST_QUESTIONS:
            return self.refuse_unverified(MARK_LOST)
        if monotonic_ms() >= deadline_ms:
            return self.refuse_unverified(NOT_IN_TIME)
        self.put_question(questions)
        if not questions:
            return False
        while following is not None:
            following.put_question(questions)
            following = following.behind
        self.questions += 1
        self.asked_us = clock_us()
        asker = self.asker = QuestionWaiter.__new__(QuestionWaiter)
        asker.pending = self
        asker.gauge = PARKED_PRODUCES
        self.delays.asking[self.request.connection_id] = self
        purgatory.park(asker, deadline_ms)
        self.delays.ask(self, [(*producer, list(partitions.values())) for producer, partitions in questions.items()], deadline_ms)
        return True

    cdef int put_question(self, dict questions) except -1:
        """Add the unverified partitions to {(transactional id, producer id, epoch, verify only): {slot: (topic, partition)}}.
        Refuse those that were deleted."""
        cdef bint by_id = self.request.version >= PRODUCE_BY_ID
        cdef dict partitions = None
        cdef ProduceItem* item
        cdef BatchProducer producer
        cdef Topic topic
        cdef int i
        for i in range(self.request.count):
            item = &self.items[i]
            if item.unverified != UNVERIFIED or item.error:
                continue
            name = (<const char*>item.topic)[:item.topic_bytes]
            topic = (self.delays.topics.by_id if by_id else self.delays.topics.by_name).get(name)
            if topic is None:
                refuse(item, UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION, NULL)
                continue
            if partitions is None:
                producer = producer_of(item)
                name = (<const char*>self.request.transactional_id)[:self.request.transactional_id_bytes].decode("utf-8", "replace")
                partitions = questions.setdefault(
                    (name, producer.id, producer.epoch, self.request.version < PRODUCE_ADDS_PARTITIONS), {})
            partitions.setdefault(item.slot, (topic.name, item.partition))
        return 0

    def verified(self, int number, codes) -> None:
        """Called in the loop with the answer to a question: append what may be appended, and refuse the rest.

        :param number: `questions` at the time of the question. :param codes: Kafka's error code of each partition of the question, in
            order; None if there is no answer.
        :raises ValueError: there are fewer codes than partitions.
        """
        cdef int i, code, place = 0
        cdef tuple answers
        if self.asker is None or number != self.questions:
            return                                  # too late
        if codes is None:
            self.unanswered(NOT_ANSWERED)
            return
        answers = tuple(codes)
        for i in range(self.request.count):
            place += self.items[i].unverified == UNVERIFIED and not self.items[i].error
        if len(answers) < place:
            raise ValueError(f"{len(answers)} error codes for at least {place} partitions")
        self.end_question()
        place = 0
        for i in range(self.request.count):
            if self.items[i].unverified != UNVERIFIED or self.items[i].error:
                continue
            code = answers[place]
            place += 1
            if code:
                refuse_by_coordinator(self.items, i, code, self.request.version)
                add(VERIFICATION_FAILURES, 1)
        self.append_rest()
        self.go_on()

    cdef int end_question(self) except -1:
        cdef QuestionWaiter waiter = self.asker
        self.asker = None
        waiter.pending = None                       # may be the last reference to `self` except the caller's
        self.delays.purgatory.leave(waiter)
        self.delays.asking.pop(self.request.connection_id, None)
        add(VERIFICATIONS, 1)
        add(VERIFICATION_US, clock_us() - self.asked_us)
        return 0

    cdef int refuse_unverified(self, const char* message) except -1:
        """Refuse the unverified items; the client may send them again. Return 0."""
        cdef int i
        for i in range(self.request.count):
            if self.items[i].unverified == UNVERIFIED and not self.items[i].error:
                refuse_unanswered(self.items, i, message)
                add(VERIFICATION_FAILURES, 1)
        return 0

    cdef int unanswered(self, const char* message) except -1:
        """The question gets no answer."""
        self.end_question()
        self.refuse_unverified(message)
        self.append_rest()
        return self.go_on()

    cdef int connection_closed(self) except -1:
        """The client has closed the connection while the request waited for an answer: do not execute it."""
        self.end_question()
        self.drop()
        self.settle()
        return self.go_on()

    # -- the answer to the client ---------------------------------------------------------------------------------------

    cdef int note_refused(self) except -1:
        """Note the refused batches, so that later ones of their producers do not come before their retries."""
        cdef int i
        if self.cancelled:
            return 0
        for i in range(self.request.count):
            if self.items[i].error and self.items[i].slot:
                self.delays.refused.note(self.request.connection_id, &self.items[i])
        return 0

    cdef int settle(self) except -1:
        """Answer if all items are decided; else wait for its turn, for an answer of the coordinator, for a lock, for the high watermark
        or for a sync."""
        cdef int i
        cdef bint unappended = False, unverified = False
        cdef Purgatory purgatory = self.delays.purgatory
        cdef DelayedProduceWaiter waiter
        if self.waits_turn:
            return 0
        for i in range(self.request.count):
            if not self.items[i].error and not self.items[i].appended:
                unappended = True
                unverified |= self.items[i].unverified
        if unverified:
            if self.ask():
                return 0
            unappended = self.unappended()
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
        # A decided request must not arm its slots: the next append of another process would wake this process without need.
        self.undecided = first_undecided(&self.request, self.items, self.undecided)
        if self.waiter is None and self.undecided < self.request.count and (self.request.acks == -1 or self.awaits_flush()):
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
        cdef int64_t wait_ms = 0
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
        if self.request.limited:
            wait_ms = charge_produce(connection, &self.request.produce_quota, &self.request.time_quota, self.request.frame_bytes,
                                     self.spent_us if self.request.acks else -1)
        if self.request.acks == 0:
            self.delays.responses.count_answer(&self.request, self.items, 0)
            if any_refused(&self.request, self.items):
                connection.begin_close(CLOSE_HANDLER, self.delays.responses.text_of_refusal(&self.request, self.items))
            self.complete(())
            return 0
        self.begin()
        try:
            self.delays.responses.write_response(connection.responses, &self.request, self.items, self.record_errors, wait_ms)
        except BaseException:
            self.abandon()
            raise
        self.finish()
        return 0


cdef class QuestionWaiter(Waiter):
    cdef int expired(self) except -1:
        cdef DelayedProduce pending = self.pending      # `end_question` sets the field to None
        if pending is None:
            return 0
        return pending.unanswered(STOPPING if pending.delays.purgatory.ending else NOT_IN_TIME)

    cdef int failed(self, error) except -1:
        cdef DelayedProduce pending = self.pending
        self.pending = None
        if pending is not None and not pending.cancelled:
            pending.connection.close_now(CLOSE_ERROR, f"a delayed Produce failed: {type(error).__name__}: {error}")
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
            pending.connection.close_now(CLOSE_ERROR, f"a delayed Produce failed: {type(error).__name__}: {error}")
        return 0
