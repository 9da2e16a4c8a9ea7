"""Execution of Produce requests: parse, run the checks that need no lock, append the requests of one read jointly, answer.

Runs in a worker's event loop. A request becomes a delayed produce (DelayedProduce, with a copy of its frame) if it contains compressed
records, which an append thread decompresses and appends; if that thread must convert message sets of old formats (versions 0 to 2), or
compress records with the topic's own codec; if it is large; if a slot's lock is taken; if the coordinator of its transaction must be
asked first; if acks=all must wait for the high watermark; or if `flush.messages` requires a sync to the device before the answer. A
Produce may be executed while earlier Produces are appended but not answered; requests of other APIs wait until these are answered.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from odradek._ext.api.access cimport ACL_TRANSACTIONAL_ID, ACL_WRITE, Access, AccessControl, access_of, writes_again
from odradek._ext.api.delayed_produce cimport LARGE_REQUEST, MANY_ITEMS, DelayedProduce, ProduceDelays, must_wait
from odradek._ext.api.produce_items cimport (
    CHARGED,
    PRODUCE_BY_ID,
    SLOW_COMPRESSED,
    SLOW_OLD,
    SLOW_RECOMPRESS,
    ProduceItem,
    ProduceRequest,
    any_refused,
    append_items,
    check_framed,
    enough_replicas,
    leading_error,
    link_items,
    may_be_deposed,
    reason_of,
    refuse,
    settled,
)
from odradek._ext.api.produce_responses cimport ProduceResponses, attach_record_errors
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.api.refused_batches cimport RefusedBatches
from odradek._ext.api.transactional_items cimport check_transactional, is_transactional
from odradek._ext.net.charging cimport JointCharge, charge_joined, charge_produce, spend, wait_of_joined
from odradek._ext.net.connection cimport (
    CLOSE_HANDLER,
    FRAME_CLOSE,
    FRAME_DEFER,
    FRAME_JOINED,
    FRAME_PENDING,
    Connection,
    ConnectionQuotas,
    ResponseOutput,
)
from odradek._ext.protocol.api_versions cimport PRODUCE, PRODUCE_FLEXIBLE, PRODUCE_NEWEST
from odradek._ext.protocol.cursor cimport (
    CURSOR_LENGTH,
    Cursor,
    cursor_fail,
    read_bytes,
    read_int16,
    read_int32,
    read_length,
    read_string_length,
    skip_tagged_fields,
)
from odradek._ext.protocol.kafka_errors cimport (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.records.codecs cimport CODEC_AS_SENT, CODEC_NONE, first_produce
from odradek._ext.records.record_batch cimport AT_MAGIC, AT_RECORDS, BatchInfo, check_batch
from odradek._ext.shm.atomics cimport count_64, shared_u64
from odradek._ext.shm.clock cimport now_ms
from odradek._ext.shm.locks cimport SPINS_OF_LOOP
from odradek._ext.shm.metering cimport (
    AUTHORIZATIONS_ALLOWED,
    TOPIC_NONE,
    USAGE_BYTES_IN,
    USAGE_REQUESTS,
    add,
    count_batch,
    count_request,
    usage_of,
)
from odradek._ext.shm.slot cimport Slot, slot_at
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef enum:
    FIRST_WITH_BATCHES = 3            # earlier versions: message sets of formats v0 and v1


cdef inline bint parse_partition(ProduceItem* item, bint flexible, Cursor* body) noexcept:
    """Read a partition's number and its batch, which stays where it is. Return whether they are well-formed."""
    cdef int64_t size
    item.partition = read_int32(body)
    size = read_length(body, flexible)
    if size > INT32_MAX:
        cursor_fail(body, CURSOR_LENGTH, size)
    item.append.info.size = <int32_t>size
    item.sent_bytes = max(item.append.info.size, 0)
    item.append.data = NULL
    if item.append.info.size > 0:
        item.append.data = <uint8_t*>read_bytes(body, item.append.info.size)
    if flexible:
        skip_tagged_fields(body)
    return not body.error


@cython.final
cdef class ProduceHandler:
    """Executes Produce requests. A worker has one.

    :param offload: (pending): calls `pending.step()` on the append thread until it returns False; then, if `pending.large_next`,
        `pending.open_large()` on the thread for large batches, and `step` again; finally `pending.worked()` in the loop.
    :param retry: (pending): calls `pending.again()` in the loop, a moment later.
    :param ask: (pending, questions, deadline_ms): asks the coordinator of transactions, and calls `pending.verified()` in the loop,
        never before it returns; `deadline_ms`: CLOCK_MONOTONIC. `questions`: [(transactional id, producer id, producer epoch, whether
        to verify only, [(topic, partition)])]. See `odradek.processes.worker.transaction_questions`.
    :param prepare: (data, old, codec, level, limit, max_message_bytes): checks a batch with its compressed records, or converts a
        message set (old), and compresses with `codec` (255: as sent); see `odradek.storage.incoming.prepare`.
    :param max_opened_bytes: limit of the decompressed size of a request's records.
    :param max_partitions: limit of the partitions of a request.
    :param replicas: in a cluster, what is known about other brokers (`odradek.api.replicas.ReplicaView`); None: there are none.
    """

    def __init__(self, TopicDirectory topics, Purgatory purgatory, offload, retry, ask, prepare, *, int64_t max_opened_bytes,
                 int64_t max_partitions, replicas=None):
        self.verify_transactions = True
        self.max_partitions = max_partitions
        self.topics = topics
        self.offload = offload
        self.responses = ProduceResponses(replicas)
        self.refused = RefusedBatches()
        self.delays = ProduceDelays(topics, purgatory, offload, retry, ask, prepare, max_opened_bytes, self.responses, self.refused)

    def __dealloc__(self):
        free(self.items)
        free(self.requests)

    def authorize(self, AccessControl control) -> None:
        """Let an authorizer decide which topics and transactional ids clients may write to."""
        self.control = self.delays.control = control

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1:
        """Parse and check a request. Return a FrameResult. :param body: cursor after the request's header."""
        cdef DelayedProduce pending
        cdef AccessControl control
        cdef ProduceRequest* request
        cdef bint slow = size > LARGE_REQUEST, deposed
        cdef int64_t wall_ms
        cdef int i
        if version > PRODUCE_NEWEST or version < 0:
            connection.close_reason = f"Produce version {version} is not supported, supported are 0 to {PRODUCE_NEWEST}"
            return FRAME_CLOSE
        if must_wait(connection):
            self.execute(connection)
            return FRAME_DEFER
        self.joined_by = connection
        if not self.parse(version, correlation_id, body):
            connection.close_reason = f"a Produce request of version {version} is malformed: error {body.error} at " \
                                      f"byte {body.ptr - frame} of {size}"
            if self.too_many:
                connection.close_reason = f"a Produce request names more than {self.max_partitions} partitions"
            self.execute(connection)
            return FRAME_CLOSE
        request = &self.requests[self.request_count - 1]
        request.client = connection.metering.client
        slow = slow or request.count > MANY_ITEMS
        request.owner = connection.owner
        request.listener = connection.listener_index
        request.connection_id = connection.connection_id
        request.limited = connection.quotas.limited
        if request.limited:
            request.frame_bytes = size
            request.produce_quota = connection.quotas.produce
            request.time_quota = connection.quotas.request
        wall_ms = now_ms()
        deposed = may_be_deposed(request.acks)
        control = self.control
        if control is not None:
            self.access = access_of(control, connection)
        for i in range(request.first, request.first + request.count):
            self.look_up(&self.items[i], version >= PRODUCE_BY_ID, deposed)
            if not self.items[i].error:
                self.check(&self.items[i], request.acks, wall_ms)
                if self.items[i].bad_records:
                    self.name_bad_records(&self.items[i], wall_ms)
            if self.items[i].error:
                self.refused.note(connection.connection_id, &self.items[i])
                request.transactional |= is_transactional(&self.items[i])
                continue
            self.refused.judge(connection.connection_id, &self.items[i])
            request.transactional |= self.items[i].append.info.transactional
            if self.items[i].slow:
                slow = True
        if request.transactional and self.refused_transaction(connection, request):
            slow = False
        if not slow:
            self.count_arrival(request, self.items, size + 4)
            return FRAME_JOINED
        # A delayed produce: first execute the requests that were joined before, then this one with its own copy of the frame.
        pending = DelayedProduce.__new__(DelayedProduce)
        pending.adopt_frame(self.delays, request, self.items, self.record_errors, frame, size)
        self.item_count = request.first
        self.request_count -= 1
        self.execute(connection)
        if must_wait(connection):
            return FRAME_DEFER                # an earlier request met a taken lock; this one must not be appended before it
        for i in range(pending.request.count):
            if not pending.items[i].error:    # again: a batch of the joined requests may have been refused just now
                self.refused.judge(connection.connection_id, &pending.items[i])
        self.count_arrival(&pending.request, pending.items, size + 4)
        connection.attach(pending)
        self.offload(pending)
        return FRAME_PENDING

    cdef bint refused_transaction(self, Connection connection, ProduceRequest* request) except -1:
        """Apply the rules of requests with transactional batches. Return whether all items are refused."""
        cdef int i
        cdef bytes name
        if self.control is not None and request.transactional_id_bytes >= 0:
            name = (<const char*>request.transactional_id)[:request.transactional_id_bytes]
            if not self.access.allows(ACL_WRITE, ACL_TRANSACTIONAL_ID, name.decode("utf-8", "replace"), PRODUCE):
                for i in range(request.first, request.first + request.count):
                    refuse(&self.items[i], TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NULL)
                    self.refused.note(connection.connection_id, &self.items[i])
                return True
        if not check_transactional(request, self.items, self.verify_transactions):
            return False
        for i in range(request.first, request.first + request.count):
            self.refused.note(connection.connection_id, &self.items[i])
        return True

    cdef int parse(self, int16_t version, int32_t correlation_id, Cursor* body) except -1:
        """Add a request and its partitions to the arrays. Return 0 if the request is malformed or names too many partitions."""
        cdef int first = self.item_count, i
        cdef int64_t topics, length = -1
        cdef int16_t acks
        cdef int32_t timeout_ms
        cdef const uint8_t* transactional_id = NULL
        cdef ProduceRequest* request
        if version >= 3:
            length = read_string_length(body, version >= PRODUCE_FLEXIBLE)
            if length > 0:
                transactional_id = read_bytes(body, length)
        acks = read_int16(body)
        timeout_ms = read_int32(body)
        topics = read_length(body, version >= PRODUCE_FLEXIBLE)
        if not self.parse_topics(version, topics, body):
            self.item_count = first
            return 0
        request = self.new_request()
        request.correlation_id = correlation_id
        request.version = version
        request.acks = acks
        request.timeout_ms = timeout_ms
        request.first = first
        request.count = self.item_count - first
        request.topics = request.record_errors = request.transactional = 0
        request.transactional_id = transactional_id
        request.transactional_id_bytes = <int16_t>length
        for i in range(first, self.item_count):
            request.topics += self.items[i].topic_partitions > 0
        return 1

    cdef int parse_topics(self, int16_t version, int64_t topics, Cursor* body) except -1:
        """Add the partitions of a request's topics to the items. Returns as `parse`."""
        cdef bint flexible = version >= PRODUCE_FLEXIBLE
        cdef int64_t partitions, p, length
        cdef int64_t left = self.max_partitions
        cdef const uint8_t* name
        cdef ProduceItem* item
        self.too_many = topics > left
        if body.error or topics < 0 or self.too_many:
            return 0
        for _ in range(topics):
            length = 16 if version >= PRODUCE_BY_ID else read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            left -= partitions
            self.too_many = left < 0
            if body.error or name == NULL or partitions < 0 or self.too_many:
                return 0
            for p in range(partitions):
                item = self.new_item()
                item.topic = name
                item.topic_bytes = <int32_t>length
                item.topic_partitions = <int32_t>partitions if p == 0 else 0
                item.request = self.request_count
                if not parse_partition(item, flexible, body):
                    return 0
            if flexible:
                skip_tagged_fields(body)
        if flexible:
            skip_tagged_fields(body)
        return not body.error

    cdef ProduceRequest* new_request(self) except NULL:
        cdef ProduceRequest* grown
        cdef int room
        if self.request_count == self.request_room:
            room = max(16, self.request_room * 2)
            grown = <ProduceRequest*>realloc(self.requests, room * sizeof(ProduceRequest))
            if grown == NULL:
                raise MemoryError("no memory for produce requests")
            self.requests = grown
            self.request_room = room
        grown = &self.requests[self.request_count]
        self.request_count += 1
        return grown

    cdef ProduceItem* new_item(self) except NULL:
        cdef ProduceItem* grown
        cdef int room
        if self.item_count == self.item_room:
            room = max(64, self.item_room * 2)
            grown = <ProduceItem*>realloc(self.items, room * sizeof(ProduceItem))
            if grown == NULL:
                raise MemoryError("no memory for produce items")
            self.items = grown
            self.item_room = room
        grown = &self.items[self.item_count]
        self.item_count += 1
        memset(grown, 0, sizeof(ProduceItem))
        return grown

    cdef int look_up(self, ProduceItem* item, bint by_id, bint deposed) except -1:
        """Find the slot of the item's partition. :param deposed: see `may_be_deposed`."""
        cdef Topic topic
        cdef int error
        cdef bytes name = self.last_name
        if name is None or len(name) != item.topic_bytes or memcmp(<const char*>name, item.topic, item.topic_bytes) != 0:
            name = self.last_name = (<const char*>item.topic)[:item.topic_bytes]
        topic = (self.topics.by_id if by_id else self.topics.by_name).get(name)
        if self.control is not None and not (by_id and topic is None) and self.denied(item, topic, name):
            return refuse(item, TOPIC_AUTHORIZATION_FAILED, NULL)
        if topic is None:
            return refuse(item, UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION, NULL)
        item.counted = topic.counted()
        if topic.internal:
            return refuse(item, INVALID_TOPIC_EXCEPTION, "clients must not write to an internal topic")
        if not 0 <= item.partition < topic.count or topic.slots[item.partition] == 0:
            return refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
        item.slot = topic.slots[item.partition]
        item.incarnation = topic.incarnations[item.partition]
        error = leading_error(slot_at(item.slot - 1), deposed)
        return refuse(item, error, NULL) if error else 0

    cdef bint denied(self, ProduceItem* item, Topic topic, bytes name) except -1:
        """Return whether the client may not write to the item's topic. A topic is decided at its first partition.

        :param topic: None: there is no topic of that name.
        """
        cdef Access access = self.access
        if item.topic_partitions > 0:
            if topic is not None and writes_again(access, topic.name_bytes):
                self.allowed += 1
                self.topic_denied = False
            else:
                self.topic_denied = not access.may_use_topic(ACL_WRITE, name if topic is None else topic.name_bytes, PRODUCE)
        return self.topic_denied

    cdef int check(self, ProduceItem* item, int16_t acks, int64_t wall_ms) noexcept:
        """Run the checks of a batch that need no lock."""
        cdef Slot* slot = slot_at(item.slot - 1)
        cdef BatchInfo* info = &item.append.info
        cdef int64_t size = info.size
        cdef int16_t version = self.requests[item.request].version
        cdef int error
        item.append.owner = self.requests[item.request].owner
        if acks != 0 and acks != 1 and acks != -1:
            return refuse(item, INVALID_REQUIRED_ACKS, NULL)
        if version < FIRST_WITH_BATCHES and acks == -1 and not enough_replicas(slot):
            return refuse(item, NOT_ENOUGH_REPLICAS, NULL)
        if version < FIRST_WITH_BATCHES and item.append.data == NULL:
            item.appended = 1                 # an empty message set: as in Kafka, it succeeds without an offset
            item.append.base_offset = item.append.append_time = -1
            item.append.log_start_offset = slot.log_start_offset
            item.leader_epoch = slot.leader_epoch
            return 0
        if version < FIRST_WITH_BATCHES and (size <= AT_MAGIC or item.append.data[AT_MAGIC] < 2):
            item.slow = SLOW_OLD
            return 0
        if item.append.data == NULL:
            return refuse(item, INVALID_RECORD, "a Produce request must contain exactly one record batch per partition, found none")
        if acks == -1 and not enough_replicas(slot):
            return refuse(item, NOT_ENOUGH_REPLICAS, NULL)
        error = check_batch(item.append.data, <size_t>size, True, info)
        if error:
            info.size = <int32_t>size
            return refuse(item, error, reason_of(error))
        if info.size != size:
            return refuse(item, INVALID_RECORD, "a Produce request must contain exactly one record batch per partition")
        if info.size > slot.settings.max_message_bytes:
            return refuse(item, MESSAGE_TOO_LARGE, "the record batch is larger than the topic's max.message.bytes")
        if version < first_produce(info.codec):
            return refuse(item, UNSUPPORTED_COMPRESSION_TYPE, "zstd requires Produce requests of version 7 or newer")
        if slot.settings.compression != CODEC_AS_SENT and slot.settings.compression != info.codec:
            item.slow = SLOW_RECOMPRESS
            return 0
        if info.codec != CODEC_NONE:
            item.slow = SLOW_COMPRESSED
            return 0
        return check_framed(item, slot, wall_ms)

    cdef int name_bad_records(self, ProduceItem* item, int64_t wall_ms) except -1:
        """Find the records because of which the item's batch, which is not compressed, is refused."""
        if self.record_errors is None:
            self.record_errors = []
        attach_record_errors(&self.requests[item.request], item, self.record_errors, item.append.data + AT_RECORDS,
                             item.append.info.size - AT_RECORDS, wall_ms, False)
        return 0

    cdef int execute(self, Connection connection) except -1:
        """Append and answer all joined requests of the connection, in order."""
        cdef int r
        cdef int64_t wait_ms
        cdef ProduceRequest* request
        cdef DelayedProduce pending, first = None, last = None
        cdef list delayed = None
        cdef JointCharge joint
        cdef ResponseOutput out = connection.responses
        if self.allowed:
            add(AUTHORIZATIONS_ALLOWED, self.allowed)
            self.allowed = 0
        if self.request_count == 0:
            self.joined_by = self.record_errors = None
            return 0
        if self.joined_by is not connection:
            raise RuntimeError("joined Produce requests of another connection were not executed")
        link_items(self.items, self.item_count)
        append_items(self.items, 0, self.item_count, SPINS_OF_LOOP, now_ms())
        for r in range(self.item_count):
            if self.items[r].error and self.items[r].slot:
                self.refused.note(connection.connection_id, &self.items[r])
        if connection.quotas.limited:
            self.charge_read(connection, &joint)
        for r in range(self.request_count):
            request = &self.requests[r]
            if request.limited != CHARGED and not settled(request, self.items):
                pending = DelayedProduce.__new__(DelayedProduce)
                pending.adopt_request(self.delays, request, self.items, self.record_errors, connection)
                connection.attach(pending)
                pending.api = PRODUCE
                out.not_executed(PRODUCE)
                if delayed is None:
                    delayed = []
                delayed.append(pending)
                if pending.unappended():
                    if last is None:
                        first = pending
                    else:
                        last.behind = pending
                        pending.waits_turn = True
                    last = pending
                continue
            self.responses.count_in(request, self.items)
            wait_ms = 0
            if request.limited == CHARGED:
                if joint.above:
                    wait_ms = wait_of_joined(connection, &request.produce_quota, &request.time_quota, request.frame_bytes,
                                             request.acks != 0, &joint)
            elif request.limited:
                wait_ms = charge_produce(connection, &request.produce_quota, &request.time_quota, request.frame_bytes,
                                         spend(connection) if request.acks and request.time_quota.key else -1)
            if request.acks == 0:
                self.responses.request_flush(request, self.items)
                self.responses.count_answer(request, self.items, 0)
                if any_refused(request, self.items):
                    connection.begin_close(CLOSE_HANDLER, self.responses.text_of_refusal(request, self.items))
            else:
                self.responses.write_response(out, request, self.items, self.record_errors, wait_ms)
        self.request_count = self.item_count = 0
        self.joined_by = self.record_errors = None
        if delayed is not None:
            for pending in delayed:
                pending.settle()
            if first is not None:
                first.go_on()
        return 0

    cdef int charge_read(self, Connection connection, JointCharge* joint) noexcept:
        """Charge the joined requests that are answered at once and have the quotas of the last one."""
        cdef ConnectionQuotas* quotas = &connection.quotas
        cdef ProduceRequest* request
        cdef int64_t size = 0
        cdef bint timed = False
        cdef int r, charged = 0
        for r in range(self.request_count):
            request = &self.requests[r]
            if request.limited and request.produce_quota.key == quotas.produce.key and request.time_quota.key == quotas.request.key \
                    and settled(request, self.items):
                request.limited = CHARGED
                charged += 1
                size += request.frame_bytes
                timed = timed or request.acks != 0
        if charged:
            charge_joined(&quotas.produce, &quotas.request, size, spend(connection) if timed and quotas.request.key else -1, joint)
        return 0

    cdef int forget(self, Connection connection) except -1:
        """The connection is closed, possibly during its turn: its joined requests must not be executed in another connection's turn."""
        cdef DelayedProduce asking
        self.refused.forget(connection.connection_id)
        if self.delays.asking:
            asking = self.delays.asking.get(connection.connection_id)
            if asking is not None:
                asking.connection_closed()
        if self.joined_by is connection:
            self.request_count = self.item_count = 0
            self.joined_by = self.record_errors = None
        return 0

    cdef int count_arrival(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept:
        """Count a request, with a frame of `size` bytes, that will be executed: records for their topics, other bytes for no topic."""
        cdef shared_u64* values
        cdef int i
        for i in range(request.first, request.first + request.count):
            if items[i].counted != TOPIC_NONE:
                values = usage_of(request.client.number, items[i].counted, PRODUCE).values
                count_64(&values[USAGE_BYTES_IN], <uint64_t>items[i].sent_bytes)
                count_64(&values[USAGE_REQUESTS], items[i].topic_partitions > 0)
                if items[i].sent_bytes:
                    count_batch(<uint32_t>items[i].sent_bytes)
                size -= items[i].sent_bytes
        values = usage_of(request.client.number, TOPIC_NONE, PRODUCE).values
        count_64(&values[USAGE_BYTES_IN], <uint64_t>size)
        count_64(&values[USAGE_REQUESTS], 1)
        count_request(PRODUCE, request.version)
        return 0
