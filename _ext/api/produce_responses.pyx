"""The end of a Produce request: its response, its metrics, and the sync that its topics require.

A worker has one `ProduceResponses`, used only in its event loop; `attach_record_errors` also runs on the append thread.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport strlen

from odradek._ext.api.produce_items cimport PRODUCE_BY_ID, ProduceItem, ProduceRequest, reason_of_room, refuse
from odradek._ext.net.connection cimport ResponseOutput
from odradek._ext.partition.flusher cimport Flusher
from odradek._ext.partition.record_errors cimport MOST_RECORD_ERRORS, RecordErrors, find_record_errors
from odradek._ext.protocol.api_versions cimport PRODUCE, PRODUCE_FLEXIBLE
from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.protocol.cursor cimport (
    WriteBuffer,
    buffer_free,
    buffer_init,
    write_bytes,
    write_int16,
    write_int32,
    write_int64,
    write_length,
    write_string_length,
    write_uvarint,
)
from odradek._ext.protocol.kafka_errors cimport (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    NO_ERROR,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.shm.atomics cimport count_64, shared_u64
from odradek._ext.shm.metering cimport (
    BYTES_REJECTED,
    PRODUCE_FAILED,
    TOPIC_NONE,
    USAGE_BYTES_OUT,
    USAGE_ERRORS,
    USAGE_RECORDS_IN,
    MeterClient,
    add,
    count_error,
    count_stored,
    count_usage,
    own_page,
    still_client,
    usage_of,
)
from odradek._ext.shm.slot cimport Slot, slot_at


cdef enum:
    FIRST_WITH_STORAGE_ERROR = 4
    FIRST_WITH_RECORD_ERRORS = 8
    FIRST_WITH_LEADER = 10        # from it on, the response names the present leader and its address (KIP-951)
    TAG_CURRENT_LEADER = 0
    TAG_NODE_ENDPOINTS = 0
    CURRENT_LEADER_BYTES = 9      # broker id, epoch, no tagged fields


cdef inline void write_message(WriteBuffer* b, const char* message, bint flexible) noexcept nogil:
    cdef int32_t length = <int32_t>strlen(message) if message != NULL else -1
    write_string_length(b, length, flexible)
    if length > 0:
        write_bytes(b, message, length)


cdef inline int write_none(WriteBuffer* b) noexcept:
    """Write that there are no tagged fields."""
    write_uvarint(b, 0)
    return 0


cdef int attach_record_errors(ProduceRequest* request, ProduceItem* item, list record_errors, const uint8_t* records, int64_t size,
                              int64_t wall_ms, bint first_decides) except -1:
    cdef bint listed = request.version >= FIRST_WITH_RECORD_ERRORS and request.acks != 0
    cdef int32_t most = MOST_RECORD_ERRORS - request.record_errors if listed else 0
    cdef RecordErrors errors = find_record_errors(records, size, &item.append.info, slot_at(item.slot - 1), wall_ms, most,
                                                  first_decides)
    if errors is None:
        return 0
    refuse(item, errors.code, NULL)
    record_errors.append(errors)
    item.record_errors = <int32_t>len(record_errors)
    request.record_errors += <int32_t>len(errors.listed)
    return 0


# Kafka's names of the errors of a batch, for the log
cdef dict ERROR_NAMES = {
    CORRUPT_MESSAGE: "CORRUPT_MESSAGE",
    UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_OR_FOLLOWER",
    REQUEST_TIMED_OUT: "REQUEST_TIMED_OUT",
    MESSAGE_TOO_LARGE: "MESSAGE_TOO_LARGE",
    NOT_ENOUGH_REPLICAS: "NOT_ENOUGH_REPLICAS",
    NOT_ENOUGH_REPLICAS_AFTER_APPEND: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    INVALID_REQUIRED_ACKS: "INVALID_REQUIRED_ACKS",
    TOPIC_AUTHORIZATION_FAILED: "TOPIC_AUTHORIZATION_FAILED",
    INVALID_TIMESTAMP: "INVALID_TIMESTAMP",
    OUT_OF_ORDER_SEQUENCE_NUMBER: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    INVALID_PRODUCER_EPOCH: "INVALID_PRODUCER_EPOCH",
    INVALID_TXN_STATE: "INVALID_TXN_STATE",
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    KAFKA_STORAGE_ERROR: "KAFKA_STORAGE_ERROR",
    UNSUPPORTED_COMPRESSION_TYPE: "UNSUPPORTED_COMPRESSION_TYPE",
    INVALID_RECORD: "INVALID_RECORD",
    UNKNOWN_TOPIC_ID: "UNKNOWN_TOPIC_ID",
    INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC_EXCEPTION",
}


cdef str name_of_topic(ProduceRequest* request, ProduceItem* item):
    """The topic's name for a line of the log, with escapes: clients choose it. Its id if the broker does not know the topic by its id."""
    cdef Slot* slot
    cdef str quoted
    if request.version < PRODUCE_BY_ID:
        quoted = ascii((<const char*>item.topic)[:item.topic_bytes].decode("utf-8", "backslashreplace"))
        return quoted[1:len(quoted) - 1]
    if item.slot:
        slot = slot_at(item.slot - 1)
        return (<const char*>slot.topic)[:slot.topic_bytes].decode("ascii", "backslashreplace")
    return f"with id {(<const char*>item.topic)[:16].hex()}"


cdef class ProduceResponses:
    def __init__(self, replicas=None):
        """:param replicas: see ProduceHandler."""
        self.replicas = replicas
        self.flusher = Flusher()
        buffer_init(&self.response)

    def __dealloc__(self):
        buffer_free(&self.response)

    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items, list record_errors,
                            int64_t wait_ms) except -1:
        """Write the response to a request all of whose items are decided. :param wait_ms: its throttle time."""
        cdef WriteBuffer* b = &self.response
        cdef int16_t version = request.version
        cdef bint flexible = version >= PRODUCE_FLEXIBLE
        cdef ProduceItem* item
        cdef set leaders = set() if self.replicas is not None and version >= FIRST_WITH_LEADER else None
        cdef int i
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
                if version >= PRODUCE_BY_ID:
                    write_bytes(b, item.topic, 16)
                else:
                    write_string_length(b, item.topic_bytes, flexible)
                    write_bytes(b, item.topic, item.topic_bytes)
                write_length(b, item.topic_partitions, flexible)
            write_int32(b, item.partition)
            if item.error == KAFKA_STORAGE_ERROR and version < FIRST_WITH_STORAGE_ERROR:
                write_int16(b, NOT_LEADER_OR_FOLLOWER)        # old clients do not know KAFKA_STORAGE_ERROR; they retry after this one
            else:
                write_int16(b, item.error)
            write_int64(b, item.append.base_offset if item.error == 0 else -1)
            if version >= 2:
                write_int64(b, item.append.append_time if item.error == 0 else -1)
            if version >= 5:
                write_int64(b, item.append.log_start_offset if item.error == 0 else -1)
            if version >= FIRST_WITH_RECORD_ERRORS:
                if item.record_errors:
                    (<RecordErrors>record_errors[item.record_errors - 1]).write(b, flexible)
                else:
                    write_length(b, 0, flexible)
                    write_message(b, item.message, flexible)
            if leaders is not None and item.error == NOT_LEADER_OR_FOLLOWER and item.slot:
                self.name_leader(item, leaders)
            elif flexible:
                write_uvarint(b, 0)
        if request.count and flexible:
            write_uvarint(b, 0)
        if version >= 1:
            write_int32(b, <int32_t>wait_ms)
        if flexible:
            self.write_response_tags(request, leaders)
        if b.error:
            raise MemoryError("no memory for a produce response")
        store32(b.data, <uint32_t>(b.size - 4))
        out.out_bytes(b.data, b.size)
        self.count_answer(request, items, b.size)
        return 0

    cdef int name_leader(self, ProduceItem* item, set leaders) except -1:
        """Write the tagged fields of a partition that this broker does not lead: its leader, which is added to `leaders`."""
        cdef WriteBuffer* b = &self.response
        cdef int32_t leader, epoch
        leader, epoch = self.replicas.leader_of(item.slot - 1)
        if leader < 0:
            return write_none(b)
        leaders.add(leader)
        write_uvarint(b, 1)
        write_uvarint(b, TAG_CURRENT_LEADER)
        write_uvarint(b, CURRENT_LEADER_BYTES)
        write_int32(b, leader)
        write_int32(b, epoch)
        write_uvarint(b, 0)
        return 0

    cdef int write_response_tags(self, ProduceRequest* request, set leaders) except -1:
        """Write the tagged fields of the response: the addresses of the `leaders` (None: none are named)."""
        cdef WriteBuffer* b = &self.response
        cdef bytes endpoints = self.replicas.endpoints(leaders, request.listener) if leaders else None
        if endpoints is None:
            return write_none(b)
        write_uvarint(b, 1)
        write_uvarint(b, TAG_NODE_ENDPOINTS)
        write_uvarint(b, <uint32_t>len(endpoints))
        write_bytes(b, <const char*>endpoints, len(endpoints))
        return 0

    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept:
        """Count the appended records of a request."""
        cdef int i
        still_client(&request.client)
        for i in range(request.first, request.first + request.count):
            if items[i].append.appended:
                count_stored(items[i].counted, <uint32_t>items[i].append.info.size)
                count_usage(request.client.number, items[i].counted, PRODUCE, USAGE_RECORDS_IN,
                            items[i].append.info.last_offset_delta + 1)
        return 0

    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept:
        """Count a response of `size` bytes. Errors count once per partition for its topic, and once per request without a topic."""
        cdef shared_u64* values
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
                if items[i].append.room:
                    self.refusals += 1
                    self.refused_room = items[i].append.room
                    self.refused_connection = request.connection_id
                    self.refused_client = request.client.number
                if items[i].counted != TOPIC_NONE:
                    count_usage(request.client.number, items[i].counted, PRODUCE, USAGE_ERRORS, 1)
        values = usage_of(request.client.number, TOPIC_NONE, PRODUCE).values
        count_64(&values[USAGE_BYTES_OUT], <uint64_t>size)
        count_64(&values[USAGE_ERRORS], refused)
        return 0

    cdef int request_flush(self, ProduceRequest* request, ProduceItem* items) except -1:
        """Request the syncs that the request's topics require."""
        cdef int i
        for i in range(request.first, request.first + request.count):
            self.request_flush_of(&items[i])
        return 0

    cdef int request_flush_of(self, ProduceItem* item) except -1:
        """Request a sync of the item's records, if its topic requires it and they are not synced yet."""
        if item.flush_offset and slot_at(item.slot - 1).flushed_offset < item.flush_offset:
            self.flusher.request(item.slot - 1)
        return 0

    cdef str text_of_refusal(self, ProduceRequest* request, ProduceItem* items):
        """Why the connection of a request with acks=0 is closed, for the log: its client receives no response. One item is refused."""
        cdef int i, more = 0
        cdef ProduceItem* refused = NULL
        for i in range(request.first, request.first + request.count):
            if items[i].error == NO_ERROR:
                continue
            if refused == NULL:
                refused = &items[i]
            else:
                more += 1
        others = f", and {more} other batches of the request" if more else ""
        reason = "" if refused.message == NULL else f" ({refused.message.decode()})"
        error = ERROR_NAMES.get(refused.error, f"error {refused.error}")
        return (f"the record batch for partition {refused.partition} of topic {name_of_topic(request, refused)}{others}, sent with acks=0, "
                f"was refused with {error}{reason}; the client learns this only by the end of its connection")

    def take_refusals(self) -> tuple[int, str, int, str] | None:
        """Return the refusals since the last call because of a lack of room for producers; None if there were none.

        :returns: (number of refused batches; and of the last one the reason, the connection's id and the client id).
        """
        cdef MeterClient* client = &own_page().clients[self.refused_client]
        if self.refusals == 0:
            return None
        count, self.refusals = self.refusals, 0
        name = (<char*>client.client_id)[:client.client_bytes].decode("utf-8", "replace") if self.refused_client else ""
        return count, reason_of_room(self.refused_room).decode(), self.refused_connection, name
