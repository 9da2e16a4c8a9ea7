"""The way of a Produce request: parse, check what needs no lock, append what one read brought jointly, answer.

Runs in a worker's loop. A request leaves the short way (and gets a ProducePending, with a copy of its frame) when it holds
compressed records, which an append thread opens and appends; when that thread has to convert message sets of old formats
(versions 0 to 2), or to compress records by the topic's own codec; when it is large; when a slot's lock is taken; when acks=all
must wait for the high watermark; or when `flush.messages` asks for records on the device before the answer. A Produce may
follow a Produce that is appended but not answered, nothing else may.
"""

import logging

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset, strlen

from broker._ext.appends cimport (
    APPEND_BUSY,
    APPEND_IO_ERROR,
    APPEND_OFFLINE,
    APPEND_OK,
    APPEND_STALE,
    MAX_JOINED,
    AppendItem,
    AppendOutcome,
    AppendResult,
    append_as_leader,
)
from broker._ext.connection cimport (
    FRAME_CLOSE,
    FRAME_DEFER,
    FRAME_JOINED,
    FRAME_PENDING,
    CLOSE_ERROR,
    CLOSE_HANDLER,
    Connection,
    Pending,
    ResponseOutput,
)
from broker._ext.cursor cimport (
    CURSOR_LENGTH,
    Cursor,
    WriteBuffer,
    buffer_free,
    buffer_init,
    cursor_fail,
    read_bytes,
    read_int16,
    read_int32,
    read_length,
    read_string_length,
    skip_tagged_fields,
    write_bytes,
    write_int16,
    write_int32,
    write_int64,
    write_length,
    write_string_length,
    write_uvarint,
)
from broker._ext.flushing cimport Flusher
from broker._ext.locks cimport SPINS_OF_LOOP, SPINS_OF_THREAD, set_lane
from broker._ext.log_dirs cimport is_full
from broker._ext.metering cimport (
    BYTES_REJECTED,
    PARKED_PRODUCES,
    PRODUCE_FAILED,
    TOPIC_NONE,
    USAGE_BYTES_IN,
    USAGE_BYTES_OUT,
    USAGE_ERRORS,
    USAGE_RECORDS_IN,
    USAGE_REQUESTS,
    add,
    count_error,
    count_request,
    still_client,
    usage_of,
)
from broker._ext.records cimport (
    AT_MAGIC,
    CODEC_NONE,
    CODEC_ZSTD,
    ERROR_CORRUPT_MESSAGE,
    ERROR_INVALID_RECORD,
    ERROR_INVALID_TIMESTAMP,
    ERROR_MESSAGE_TOO_LARGE,
    ERROR_UNSUPPORTED_COMPRESSION_TYPE,
    BatchInfo,
    check_batch,
    parse_batch_header,
    set_max_timestamp,
    store32,
)
from broker._ext.shared cimport SLOT_OFFLINE, SLOT_ONLINE, Commit, Slot, monotonic_ms, now_ms, read_commit, region, slot_at
from broker._ext.topics cimport Topic, TopicDirectory
from broker._ext.waiting cimport Waiter, WaitingRoom

LOG = logging.getLogger("broker.api.produce")

cdef enum:
    LARGE_REQUEST = 2 * 1024 * 1024   # appended on a thread, so that the loop goes on meanwhile
    FIRST_FLEXIBLE = 9
    FIRST_BY_ID = 13
    FIRST_WITH_STORAGE_ERROR = 4
    FIRST_WITH_BATCHES = 3            # before: message sets of formats v0 and v1
    AS_SENT = 255                     # compression.type=producer
    NEWEST = 13
    MAX_BUSY = 64
    MAX_PARTITIONS = 100000           # of one request: more would take memory out of proportion
    OPEN_LIMIT = 128 * 1024 * 1024    # the most that a compressed batch may open to, in bytes
    LOCK_PATIENCE_MS = 15000          # longer than the supervisor lets a holder stand still

cdef enum:
    PRODUCE = 0                       # the API's key
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    INVALID_TXN_STATE = 48
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_TOPIC_ID = 100


cdef const char* DISK_IS_FULL = "the disk of the partition's log directory is full: to be tried again"


cdef int refuse(ProduceItem* item, int error, const char* message) noexcept nogil:
    item.error = <int16_t>error
    item.message = message
    return 0


# -- appending ------------------------------------------------------------------------------------------------------

cdef int append_items(ProduceItem* items, int count, int spins, int64_t wall_ms) noexcept nogil:
    """Append every item that is neither refused nor appended yet, those of one slot together and in order.

    Returns at how many slots the lock is taken: what is neither is to be offered again, before anything behind it.
    """
    cdef AppendItem[MAX_JOINED] batches
    cdef int[MAX_JOINED] places
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef uint32_t[MAX_BUSY] taken         # slots whose lock is taken: nothing may overtake what was refused there
    cdef int i, j, n, busy = 0
    cdef Slot* slot
    cdef bint flush
    for i in range(count):
        if items[i].error or items[i].appended:
            continue
        n = 0
        while n < busy and taken[n] != items[i].slot:
            n += 1
        if n < busy or busy == MAX_BUSY:
            continue
        n = 0
        j = i
        while j < count and n < MAX_JOINED:
            if items[j].slot == items[i].slot and not items[j].error and not items[j].appended:
                batches[n] = items[j].append
                places[n] = j
                n += 1
            j += 1
        result = append_as_leader(items[i].slot - 1, items[i].incarnation, -1, batches, n, wall_ms, spins, &outcome)
        if result == APPEND_BUSY:
            taken[busy] = items[i].slot
            busy += 1
            continue
        slot = slot_at(items[i].slot - 1)
        # Kafka's rule: the append that makes them as many is the one that syncs.
        flush = (result == APPEND_OK or result == APPEND_IO_ERROR) \
            and outcome.log_end_offset - slot.flushed_offset >= slot.settings.flush_messages
        for j in range(n):
            items[places[j]].append = batches[j]
            if result == APPEND_OK or batches[j].appended or batches[j].duplicate or batches[j].error:
                items[places[j]].error = batches[j].error
                if batches[j].error == NOT_ENOUGH_REPLICAS:
                    items[places[j]].message = DISK_IS_FULL
                items[places[j]].appended = 1
                items[places[j]].leader_epoch = outcome.leader_epoch
                items[places[j]].required_offset = outcome.log_end_offset
                if batches[j].appended:
                    items[places[j]].required_offset = batches[j].base_offset + batches[j].info.last_offset_delta + 1
                if flush and batches[j].base_offset >= 0:       # a duplicate too: its first append may not be synced yet
                    items[places[j]].flush_offset = batches[j].base_offset + batches[j].info.last_offset_delta + 1
            elif result == APPEND_STALE:
                refuse(&items[places[j]], UNKNOWN_TOPIC_OR_PARTITION, NULL)
            elif result == APPEND_OFFLINE:
                refuse(&items[places[j]], KAFKA_STORAGE_ERROR, "the partition's log directory is offline")
            elif result == APPEND_IO_ERROR and is_full(-outcome.error_number):
                refuse(&items[places[j]], NOT_ENOUGH_REPLICAS, DISK_IS_FULL)
            elif result == APPEND_IO_ERROR:
                refuse(&items[places[j]], KAFKA_STORAGE_ERROR, "the log could not be written")
            else:
                refuse(&items[places[j]], NOT_LEADER_OR_FOLLOWER, NULL)
    return busy


cdef int enough_replicas(Slot* slot) noexcept nogil:
    """min.insync.replicas asks for no more than the partition has (as in Kafka 4)."""
    return slot.in_sync_count >= min(slot.settings.min_in_sync_replicas, slot.replica_count)


# -- the handler ----------------------------------------------------------------------------------------------------

cdef class Producing:
    """One a worker.

    offload(pending): call `pending.work()` on an append thread, then `pending.worked()` in the loop.
    retry(pending): call `pending.again()` in the loop, a moment later.
    prepare(data, old, codec, level, limit, max_message_bytes): check a batch with its compressed records, or convert a message
    set (old), and compress by `codec` (255: as sent); (Kafka's error code, what was found in the records, the batch to be
    appended instead or None). See `broker.storage.incoming`.
    """

    def __init__(self, TopicDirectory topics, WaitingRoom room, offload, retry, prepare):
        self.topics = topics
        self.room = room
        self.offload = offload
        self.retry = retry
        self.prepare = prepare
        self.flusher = Flusher()
        buffer_init(&self.response)

    def __dealloc__(self):
        free(self.items)
        free(self.requests)
        buffer_free(&self.response)

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1:
        """One request; `body` stands behind the header."""
        cdef ProducePending pending
        cdef ProduceRequest* request
        cdef bint slow = size > LARGE_REQUEST
        cdef int64_t wall_ms
        cdef int i
        if version > NEWEST or version < 0:
            connection.close_reason = f"Produce version {version} is not known; 0 to {NEWEST} are"
            return FRAME_CLOSE
        if must_wait(connection):
            self.execute(connection)
            return FRAME_DEFER
        self.joined_by = connection
        if not self.parse(version, correlation_id, body):
            connection.close_reason = f"a Produce request of version {version} cannot be read: error {body.error} at " \
                                      f"byte {body.ptr - frame} of {size}"
            self.execute(connection)
            return FRAME_CLOSE
        request = &self.requests[self.request_count - 1]
        request.client = connection.client
        wall_ms = now_ms()
        for i in range(request.first, request.first + request.count):
            self.look_up(&self.items[i], version >= FIRST_BY_ID)
            if not self.items[i].error:
                self.check(&self.items[i], request.acks, wall_ms)
            if self.items[i].slow and not self.items[i].error:
                slow = True
        if not slow:
            self.count_arrival(request, self.items, size + 4)
            return FRAME_JOINED
        # The slow way: what was joined before goes first, then this one with memory of its own.
        pending = ProducePending.__new__(ProducePending)
        pending.take(self, frame, size)
        self.execute(connection)
        if must_wait(connection):
            return FRAME_DEFER                # one of those met a taken lock, and is not to be overtaken
        self.count_arrival(&pending.request, pending.items, size + 4)
        connection.attach(pending)
        self.offload(pending)
        return FRAME_PENDING

    cdef int parse(self, int16_t version, int32_t correlation_id, Cursor* body) except -1:
        """Take a request's partitions into the arrays; 0 if it cannot be read."""
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int64_t topics, partitions, t, p, length, size
        cdef int first = self.item_count, room
        cdef const uint8_t* name
        cdef ProduceRequest* request
        cdef ProduceItem* item
        cdef int16_t acks
        cdef int32_t timeout_ms
        if version >= 3:
            length = read_string_length(body, flexible)
            if length > 0:
                read_bytes(body, length)      # the transactional id: batches say themselves that they are transactional
        acks = read_int16(body)
        timeout_ms = read_int32(body)
        topics = read_length(body, flexible)
        if body.error or topics < 0:
            return 0
        for _ in range(topics):
            if version >= FIRST_BY_ID:
                length = 16
            else:
                length = read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            if body.error or name == NULL or partitions < 0 or partitions > MAX_PARTITIONS - (self.item_count - first):
                self.item_count = first
                return 0
            for p in range(partitions):
                item = self.new_item()
                item.topic = name
                item.topic_bytes = <int32_t>length
                item.topic_partitions = <int32_t>partitions if p == 0 else 0
                item.request = self.request_count
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
                if body.error:
                    self.item_count = first
                    return 0
            if flexible:
                skip_tagged_fields(body)
        if flexible:
            skip_tagged_fields(body)
        if body.error:
            self.item_count = first
            return 0
        if self.request_count == self.request_room:
            room = max(16, self.request_room * 2)
            request = <ProduceRequest*>realloc(self.requests, room * sizeof(ProduceRequest))
            if request == NULL:
                raise MemoryError("no memory for produce requests")
            self.requests = request
            self.request_room = room
        request = &self.requests[self.request_count]
        self.request_count += 1
        request.correlation_id = correlation_id
        request.version = version
        request.acks = acks
        request.timeout_ms = timeout_ms
        request.first = first
        request.count = self.item_count - first
        request.topics = 0
        for t in range(first, self.item_count):
            request.topics += self.items[t].topic_partitions > 0
        return 1

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

    cdef int look_up(self, ProduceItem* item, bint by_id) except -1:
        """Find the slot of the item's partition."""
        cdef Topic topic
        cdef bytes name = self.last_name
        if name is None or len(name) != item.topic_bytes or memcmp(<const char*>name, item.topic, item.topic_bytes) != 0:
            name = self.last_name = (<const char*>item.topic)[:item.topic_bytes]
        topic = (self.topics.by_id if by_id else self.topics.by_name).get(name)
        if topic is None:
            return refuse(item, UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION, NULL)
        item.counted = topic.counted()
        if topic.internal:
            return refuse(item, INVALID_TOPIC_EXCEPTION, "clients must not write to an internal topic")
        if not 0 <= item.partition < topic.count or topic.slots[item.partition] == 0:
            return refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
        item.slot = topic.slots[item.partition]
        item.incarnation = topic.incarnations[item.partition]
        return 0

    cdef int check(self, ProduceItem* item, int16_t acks, int64_t wall_ms) noexcept:
        """Everything about a batch that needs no lock."""
        cdef Slot* slot = slot_at(item.slot - 1)
        cdef BatchInfo* info = &item.append.info
        cdef int64_t size = info.size
        cdef int16_t version = self.requests[item.request].version
        cdef int error
        if acks != 0 and acks != 1 and acks != -1:
            return refuse(item, INVALID_REQUIRED_ACKS, NULL)
        if version < FIRST_WITH_BATCHES and acks == -1 and not enough_replicas(slot):
            return refuse(item, NOT_ENOUGH_REPLICAS, NULL)
        if version < FIRST_WITH_BATCHES and item.append.data == NULL:
            item.appended = 1                 # an empty set: nothing is appended, at no offset, as in Kafka
            item.append.base_offset = item.append.append_time = -1
            item.append.log_start_offset = slot.log_start_offset
            item.leader_epoch = slot.leader_epoch
            return 0
        if version < FIRST_WITH_BATCHES and (size <= AT_MAGIC or item.append.data[AT_MAGIC] < 2):
            item.slow = SLOW_OLD
            return 0
        if item.append.data == NULL:
            return refuse(item, ERROR_INVALID_RECORD, "a produce request must hold exactly one record batch a partition, this holds none")
        if acks == -1 and not enough_replicas(slot):
            return refuse(item, NOT_ENOUGH_REPLICAS, NULL)
        error = check_batch(item.append.data, <size_t>size, True, info)
        if error:
            info.size = <int32_t>size
            return refuse(item, error, reason_of(error))
        if info.size != size:
            return refuse(item, ERROR_INVALID_RECORD, "a produce request must hold exactly one record batch a partition")
        if info.size > slot.settings.max_message_bytes:
            return refuse(item, ERROR_MESSAGE_TOO_LARGE, "the record batch is larger than max.message.bytes of the topic")
        if info.transactional:
            return refuse(item, INVALID_TXN_STATE, "transactions are not supported yet")
        if info.codec == CODEC_ZSTD and version < 7:
            return refuse(item, ERROR_UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce requests of version 7 or newer")
        if slot.settings.compression != AS_SENT and slot.settings.compression != info.codec:
            item.slow = SLOW_RECOMPRESS
            return 0
        if info.codec != CODEC_NONE:
            item.slow = SLOW_COMPRESSED
            return 0
        return check_framed(item, slot, wall_ms)

    cdef int execute(self, Connection connection) except -1:
        """Append all joined requests of the connection at hand and answer them, in order."""
        cdef int r
        cdef ProduceRequest* request
        cdef ProducePending pending
        cdef ResponseOutput out = connection.data_loop
        if self.request_count == 0:
            self.joined_by = None
            return 0
        if self.joined_by is not connection:
            raise RuntimeError("requests of another connection were left to be executed")
        append_items(self.items, self.item_count, SPINS_OF_LOOP, now_ms())
        for r in range(self.request_count):
            request = &self.requests[r]
            if not settled(request, self.items):
                pending = ProducePending.__new__(ProducePending)
                pending.take_request(self, request)
                connection.attach(pending)
                pending.api = PRODUCE
                out.not_executed(PRODUCE)
                pending.wait_or_answer()
                continue
            self.count_in(request, self.items)
            if request.acks == 0:
                self.ask_flush(request, self.items)
                self.count_answer(request, self.items, 0)
                if failed(request, self.items):
                    out.begin_close(connection, CLOSE_HANDLER, "a record sent with acks=0 was refused")
            else:
                self.write_response(out, request, self.items)
        self.request_count = self.item_count = 0
        self.joined_by = None
        return 0

    cdef int forget(self, Connection connection) except -1:
        """The connection is gone, perhaps amid its turn: what it joined must not be executed in another one's."""
        if self.joined_by is connection:
            self.request_count = self.item_count = 0
            self.joined_by = None
        return 0

    cdef int ask_flush(self, ProduceRequest* request, ProduceItem* items) except -1:
        """Have synced what the request's topics ask for."""
        cdef int i
        for i in range(request.first, request.first + request.count):
            if items[i].flush_offset and slot_at(items[i].slot - 1).flushed_offset < items[i].flush_offset:
                self.flusher.request(items[i].slot - 1)
        return 0

    cdef int count_arrival(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept:
        """A request whose frame has `size` bytes is going to be executed: the records are their topics', the rest nobody's."""
        cdef uint64_t* values
        cdef int i
        for i in range(request.first, request.first + request.count):
            if items[i].counted != TOPIC_NONE:
                values = usage_of(request.client.number, items[i].counted, PRODUCE).values
                values[USAGE_BYTES_IN] += <uint64_t>items[i].sent_bytes
                values[USAGE_REQUESTS] += items[i].topic_partitions > 0
                size -= items[i].sent_bytes
        values = usage_of(request.client.number, TOPIC_NONE, PRODUCE).values
        values[USAGE_BYTES_IN] += <uint64_t>size
        values[USAGE_REQUESTS] += 1
        count_request(PRODUCE, request.version)
        return 0

    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept:
        """A request is answered by `size` bytes. Errors are counted by partition for their topics, by request for nobody's."""
        cdef uint64_t* values
        cdef int i
        cdef bint refused = False
        still_client(&request.client)
        for i in range(request.first, request.first + request.count):
            if items[i].error:
                count_error(PRODUCE, items[i].error)
                add(PRODUCE_FAILED, 1)
                if not items[i].append.appended:
                    add(BYTES_REJECTED, items[i].sent_bytes)
                refused = True
                if items[i].counted != TOPIC_NONE:
                    usage_of(request.client.number, items[i].counted, PRODUCE).values[USAGE_ERRORS] += 1
        values = usage_of(request.client.number, TOPIC_NONE, PRODUCE).values
        values[USAGE_BYTES_OUT] += <uint64_t>size
        values[USAGE_ERRORS] += refused
        return 0

    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept:
        cdef int i
        still_client(&request.client)
        for i in range(request.first, request.first + request.count):
            if items[i].append.appended:
                self.batches_in += 1
                self.records_in += items[i].append.info.last_offset_delta + 1
                self.bytes_in += items[i].append.info.size
                usage_of(request.client.number, items[i].counted, PRODUCE).values[USAGE_RECORDS_IN] += <uint64_t>(
                    items[i].append.info.last_offset_delta + 1)
        return 0

    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items) except -1:
        """The response of a request all of whose items are decided."""
        cdef WriteBuffer* b = &self.response
        cdef int16_t version = request.version
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef ProduceItem* item
        cdef int i
        cdef int32_t length
        b.size = 0
        write_int32(b, 0)
        write_int32(b, request.correlation_id)
        if flexible:
            write_uvarint(b, 0)
        write_length(b, request.topics, flexible)
        for i in range(request.first, request.first + request.count):
            item = &items[i]
            if item.topic_partitions:
                if i > request.first and flexible:
                    write_uvarint(b, 0)
                if version >= FIRST_BY_ID:
                    write_bytes(b, item.topic, 16)
                else:
                    write_string_length(b, item.topic_bytes, flexible)
                    write_bytes(b, item.topic, item.topic_bytes)
                write_length(b, item.topic_partitions, flexible)
            write_int32(b, item.partition)
            if item.error == KAFKA_STORAGE_ERROR and version < FIRST_WITH_STORAGE_ERROR:
                write_int16(b, NOT_LEADER_OR_FOLLOWER)        # which these clients know, and try again
            else:
                write_int16(b, item.error)
            write_int64(b, item.append.base_offset if item.error == 0 else -1)
            if version >= 2:
                write_int64(b, item.append.append_time if item.error == 0 else -1)
            if version >= 5:
                write_int64(b, item.append.log_start_offset if item.error == 0 else -1)
            if version >= 8:
                write_length(b, 0, flexible)                  # record errors: the batch as a whole is refused
                if item.message == NULL:
                    write_string_length(b, -1, flexible)
                else:
                    length = <int32_t>strlen(item.message)
                    write_string_length(b, length, flexible)
                    write_bytes(b, item.message, length)
            if flexible:
                write_uvarint(b, 0)
        if request.count and flexible:
            write_uvarint(b, 0)
        if version >= 1:
            write_int32(b, 0)                                 # throttle time
        if flexible:
            write_uvarint(b, 0)
        if b.error:
            raise MemoryError("no memory for a produce response")
        store32(b.data, <uint32_t>(b.size - 4))
        out.out_bytes(b.data, b.size)
        self.count_answer(request, items, b.size)
        return 0


cdef const char* reason_of(int error) noexcept:
    if error == ERROR_CORRUPT_MESSAGE:
        return "the record batch is damaged: its CRC or its length is wrong"
    if error == ERROR_INVALID_RECORD:
        return "the record batch is not well formed: its records do not agree with its header"
    if error == ERROR_UNSUPPORTED_COMPRESSION_TYPE:
        return "the record batch has an unknown codec"
    if error == ERROR_INVALID_TIMESTAMP:
        return "a producer must not set the log append time"
    if error == ERROR_MESSAGE_TOO_LARGE:
        return "the record batch is larger than max.message.bytes, or opens to more than the broker takes"
    return NULL


cdef int check_framed(ProduceItem* item, Slot* slot, int64_t wall_ms) noexcept:
    """What the walk through the records found, against the topic's settings."""
    cdef BatchInfo* info = &item.append.info
    if slot.settings.compact and info.keyless:
        return refuse(item, ERROR_INVALID_RECORD, "a record of a compacted topic must have a key")
    if not slot.settings.log_append_time:
        if info.found_max_timestamp >= 0 and info.found_max_timestamp - wall_ms > slot.settings.timestamp_after_max_ms:
            return refuse(item, ERROR_INVALID_TIMESTAMP, "a timestamp is further ahead than message.timestamp.after.max.ms")
        if info.found_min_timestamp >= 0 and wall_ms - info.found_min_timestamp > slot.settings.timestamp_before_max_ms:
            return refuse(item, ERROR_INVALID_TIMESTAMP, "a timestamp is older than message.timestamp.before.max.ms")
        if info.found_max_timestamp != info.max_timestamp:
            set_max_timestamp(item.append.data, info, info.found_max_timestamp, False)
    return 0


cdef bint on_device(ProduceItem* item) noexcept:
    """Whether the item need not wait for a sync: it is synced, or never will be as what it was acknowledged for."""
    cdef Slot* slot = slot_at(item.slot - 1)
    if slot.flushed_offset >= item.flush_offset and slot.incarnation == item.incarnation:
        return True
    if slot.incarnation != item.incarnation:
        refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
    elif slot.state == SLOT_OFFLINE or region().header.log_dir_offline[slot.log_dir]:
        refuse(item, KAFKA_STORAGE_ERROR, "the log could not be synced to the device")
    elif slot.state != SLOT_ONLINE:
        refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
    elif slot.leader_epoch != item.leader_epoch:
        refuse(item, NOT_LEADER_OR_FOLLOWER, NULL)
    else:
        return False
    return True


cdef bint decided(ProduceItem* item, int16_t acks) noexcept:
    """Whether the item is refused, or appended and, where that is asked for, on the device and (acks=all) below the high
    watermark."""
    cdef Slot* slot
    cdef Commit commit
    if item.error:
        return True
    if not item.appended:
        return False
    if item.flush_offset and acks != 0 and not on_device(item):
        return False
    if acks != -1 or item.error:
        return True
    slot = slot_at(item.slot - 1)
    # One consistent look at epoch, high watermark and in-sync set decides [R 3].
    if slot.incarnation != item.incarnation or slot.leader_epoch != item.leader_epoch:
        refuse(item, NOT_LEADER_OR_FOLLOWER, NULL)
        return True
    read_commit(slot, &commit)
    if commit.high_watermark < item.required_offset:
        return False
    if not enough_replicas(slot):
        refuse(item, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NULL)
    return True


cdef bint settled(ProduceRequest* request, ProduceItem* items) noexcept:
    """Whether every item is decided."""
    cdef int i
    for i in range(request.first, request.first + request.count):
        if not decided(&items[i], request.acks):
            return False
    return True


cdef bint must_wait(Connection connection) noexcept:
    """Whether a Produce of the connection may not be executed yet: it is owed an answer to something else, or a Produce
    before it is not appended."""
    cdef Pending pending = connection.pending_head
    while pending is not None:
        if not isinstance(pending, ProducePending) or not (<ProducePending>pending).executed:
            return True
        pending = pending.next
    return False


cdef bint failed(ProduceRequest* request, ProduceItem* items) noexcept:
    cdef int i
    for i in range(request.first, request.first + request.count):
        if items[i].error:
            return True
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
            if failed(&self.request, self.items):
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
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR, f"a parked Produce failed: {error!r}")
        return 0
