"""Writing of Fetch responses from plans, with the records as slices of the segments' files. Attributes the sent bytes and records to
client and topic. Used in a worker's event loop.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.api.fetch_context cimport (
    FIRST_BY_ID,
    FIRST_WITH_BATCHES,
    FIRST_WITH_ENDPOINTS,
    FetchContext,
    FetchPartition,
    answers_at_once,
    bytes_of_aborted,
    wants_aborted,
)
from odradek._ext.net.charging cimport charge_fetch
from odradek._ext.net.connection cimport Connection, Pending, ResponseOutput
from odradek._ext.protocol.api_versions cimport FETCH, FETCH_FLEXIBLE
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
from odradek._ext.protocol.kafka_errors cimport NO_ERROR, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from odradek._ext.shm.atomics cimport count_64, shared_u64
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.metering cimport (
    FETCH_FAILED,
    REPLICATION_BYTES_OUT,
    TOPIC_NONE,
    USAGE_BYTES_OUT,
    USAGE_ERRORS,
    USAGE_RECORDS_OUT,
    Client,
    add,
    count_error,
    count_usage,
    put_position,
    still_client,
    usage_of,
)
from odradek._ext.shm.replication_quota cimport QUOTA_LEADER, count_reassigned, is_adding, quota_record
from odradek._ext.shm.slot cimport slot_at
from odradek._ext.storage.segment_list cimport OpenSegment


cdef enum:
    KEPT_BYTES = 1 << 20              # of the buffer, between two responses: long lists of aborted transactions are rare

cdef enum:                            # tagged fields
    TAG_DIVERGING_EPOCH = 0
    TAG_CURRENT_LEADER = 1
    TAG_NODE_ENDPOINTS = 0
    DIVERGING_EPOCH_BYTES = 13        # epoch, end offset, no tagged fields
    CURRENT_LEADER_BYTES = 9          # broker id, epoch, no tagged fields


cdef inline void write_head(WriteBuffer* b, int16_t version, int32_t correlation_id, int16_t error, int32_t session_id,
                            int64_t wait_ms) noexcept:
    """Begin the response: the fields before the topics. Its length is stored later. :param wait_ms: the throttle time."""
    b.size = 0
    write_int32(b, 0)
    write_int32(b, correlation_id)
    if version >= FETCH_FLEXIBLE:
        write_uvarint(b, 0)
    if version >= 1:
        write_int32(b, <int32_t>wait_ms)
    if version >= 7:
        write_int16(b, error)
        write_int32(b, session_id)


cdef inline int32_t count_topics(list included) except -1:
    """Return how many entries of topics the response contains: adjacent partitions of a topic share one."""
    cdef FetchPartition p
    cdef bytes topic = None
    cdef int32_t topics = 0
    for p in included:
        if p.topic is not topic and p.topic != topic:
            topic = p.topic
            topics += 1
    return topics


cdef inline int64_t write_topics(WriteBuffer* b, FetchContext context, list included, list cuts) except -1:
    """Write the `included` partitions by topic, without their records, and the fields after them. Return the bytes of all records.

    Adds (number of bytes in the buffer before the records, partition) to `cuts` for each partition with records.
    """
    cdef bint flexible = context.version >= FETCH_FLEXIBLE, by_id = context.version >= FIRST_BY_ID
    cdef FetchPartition p
    cdef bytes topic
    cdef int64_t total = 0
    cdef Py_ssize_t n = len(included), i = 0, k
    cdef int32_t run
    write_length(b, count_topics(included), flexible)
    while i < n:
        topic = (<FetchPartition>included[i]).topic
        run = 1
        while i + run < n and (<FetchPartition>included[i + run]).topic == topic:
            run += 1
        if not by_id:
            write_string_length(b, <int32_t>len(topic), flexible)
        write_bytes(b, <const char*>topic, 16 if by_id else len(topic))
        write_length(b, run, flexible)
        for k in range(i, i + run):
            p = included[k]
            write_partition(b, context, p)
            if p.planned.length:
                cuts.append((b.size, p))
                total += p.planned.length
            if flexible:
                write_partition_tags(b, p)
        if flexible:
            write_uvarint(b, 0)
        i += run
    return total


cdef inline int note_sent(list included) except -1:
    """Note what the client of a session knows after the response."""
    cdef FetchPartition p
    for p in included:
        p.sent.valid = not p.found.error
        if p.sent.valid:
            p.sent.high_watermark = p.found.high_watermark
            p.sent.log_start_offset = p.found.log_start_offset
    return 0


cdef inline void write_partition_tags(WriteBuffer* b, FetchPartition p) noexcept:
    """Write the tagged fields of a partition: where the logs diverge, and the present leader."""
    cdef bint diverges = p.found.diverging_epoch >= 0, leader = p.found.current_leader_epoch >= 0
    write_uvarint(b, diverges + leader)
    if diverges:
        write_uvarint(b, TAG_DIVERGING_EPOCH)
        write_uvarint(b, DIVERGING_EPOCH_BYTES)
        write_int32(b, p.found.diverging_epoch)
        write_int64(b, p.found.diverging_end)
        write_uvarint(b, 0)
    if leader:
        write_uvarint(b, TAG_CURRENT_LEADER)
        write_uvarint(b, CURRENT_LEADER_BYTES)
        write_int32(b, p.found.current_leader)
        write_int32(b, p.found.current_leader_epoch)
        write_uvarint(b, 0)


cdef inline int write_response_tags(WriteBuffer* b, FetchContext context, list included, object replicas) except -1:
    """Write the tagged fields of the response: the addresses of the leaders that its partitions name."""
    cdef FetchPartition p
    cdef bytes endpoints = None
    cdef set leaders = None
    if context.version < FETCH_FLEXIBLE:
        return 0
    if replicas is not None and context.version >= FIRST_WITH_ENDPOINTS:
        for p in included:
            if p.found.current_leader >= 0:
                if leaders is None:
                    leaders = set()
                leaders.add(p.found.current_leader)
        if leaders is not None:
            endpoints = replicas.endpoints(leaders, context.listener)
    if endpoints is None:
        write_uvarint(b, 0)
        return 0
    write_uvarint(b, 1)
    write_uvarint(b, TAG_NODE_ENDPOINTS)
    write_uvarint(b, <uint32_t>len(endpoints))
    write_bytes(b, <const char*>endpoints, len(endpoints))
    return 0


cdef inline void write_partition(WriteBuffer* b, FetchContext context, FetchPartition p) noexcept:
    """Write a partition up to the length of its records."""
    cdef int16_t version = context.version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    write_int32(b, p.partition)
    write_int16(b, p.found.error)
    write_int64(b, p.found.high_watermark)
    if version >= FIRST_WITH_BATCHES:
        write_int64(b, p.found.last_stable_offset)
    if version >= 5:
        write_int64(b, p.found.log_start_offset)
    if version >= FIRST_WITH_BATCHES:
        # aborted transactions: null if none were looked up, as in Kafka, but an unknown or forbidden partition has none
        if p.aborted is not None:
            write_length(b, <int32_t>(len(p.aborted) // bytes_of_aborted(version)), flexible)
            write_bytes(b, <const char*>p.aborted, len(p.aborted))
            p.aborted = None
        elif wants_aborted(context) and not answers_at_once(p) or \
                p.found.error in (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED):
            write_length(b, 0, flexible)
        else:
            write_length(b, -1, flexible)
    if version >= 11:
        write_int32(b, p.found.preferred_replica)
    write_length(b, <int32_t>p.planned.length, flexible)


cdef inline int write_out(ResponseOutput out, WriteBuffer* b, FetchContext context, list cuts, list served) except -1:
    """Pass the buffer to `out`, with the records at the `cuts`. Adds the partitions with records to `served`, in a session."""
    cdef FetchPartition p
    cdef OpenSegment segment
    cdef int64_t at = 0
    for cut, p in cuts:
        out.out_bytes(b.data + at, <int64_t>cut - at)
        at = cut
        if p.converted is None:
            segment = p.segment
            out.out_file(segment, segment.log_fd, p.planned.position, p.planned.length)
        else:
            out.write(p.converted)
            p.converted = None
        p.segment = None
        if context.by_key is not None:
            served.append(p)
    out.out_bytes(b.data + at, b.size - at)
    return 0


cdef class FetchResponses:
    """Writes Fetch responses. A worker has one."""

    def __cinit__(self):
        buffer_init(&self.response)

    def __init__(self, replicas=None):
        """:param replicas: see FetchHandler."""
        self.replicas = replicas

    def __dealloc__(self):
        buffer_free(&self.response)

    cdef int answer(self, FetchContext context, Pending pending) except -1:
        """Answer a delayed request from the context's plan."""
        pending.begin()
        try:
            self.write(pending.connection.responses, context, pending.connection, pending.spent_us)
        except BaseException:
            pending.abandon()
            raise
        pending.finish()
        return 0

    cdef int write(self, ResponseOutput out, FetchContext context, Connection connection, int64_t spent_us) except -1:
        """Write the response to the context's request from its plan. Everything except the records is encoded first, because the
        response begins with its length.

        :param spent_us: the time that was spent on the request, for the client's quota.
        """
        cdef WriteBuffer* b = &self.response
        cdef list included = [q for q in context.planned_partitions() if (<FetchPartition>q).found.included]
        cdef list cuts = []
        cdef list served = []
        cdef int64_t records_bytes, wait_ms
        cdef bint empty
        write_head(b, context.version, context.correlation_id, NO_ERROR, context.session_id, 0)
        records_bytes = write_topics(b, context, included, cuts)
        write_response_tags(b, context, included, self.replicas)
        if b.error:
            buffer_free(b)
            raise MemoryError("no memory for a fetch response")
        if context.limited:
            wait_ms = charge_fetch(connection, &context.byte_quota, &context.time_quota,
                                   b.size - (5 if context.version >= FETCH_FLEXIBLE else 4) + records_bytes, spent_us, &empty)
            if empty:
                return self.write_throttled(out, context, cuts, wait_ms)
            if wait_ms and context.version >= 1:
                store32(b.data + (9 if context.version >= FETCH_FLEXIBLE else 8), <uint32_t>wait_ms)
        note_sent(included)
        store32(b.data, <uint32_t>(b.size - 4 + records_bytes))
        self.count_served(context, included, cuts)
        write_out(out, b, context, cuts, served)
        if b.capacity > KEPT_BYTES:
            buffer_free(b)
        self.bytes_out += records_bytes
        self.responses += 1
        if context.selective:
            context.settle_listed()
        elif served and len(context.partitions) > 1 and len(served) < len(context.partitions):
            # Partitions that contributed records move to the end: the next response begins with the others.
            moved = set(served)
            context.partitions = [q for q in context.partitions if q not in moved] + served
        return 0

    cdef int write_throttled(self, ResponseOutput out, FetchContext context, list cuts, int64_t wait_ms) except -1:
        """Write an empty response instead of the planned one. As in Kafka, a session that the request began does not exist then."""
        cdef FetchPartition p
        cdef bint begins = context.by_key is not None and not context.incremental
        for _, p in cuts:
            p.segment = None
            p.converted = None
        context.refused = begins
        still_client(&context.client)
        self.write_empty(out, &context.client, context.version, context.correlation_id, NO_ERROR,
                         0 if begins else context.session_id, wait_ms)
        self.responses += 1
        return 0

    cdef int write_empty(self, ResponseOutput out, Client* client, int16_t version, int32_t correlation_id, int16_t error,
                         int32_t session_id, int64_t wait_ms) except -1:
        """Write and count a response without partitions."""
        cdef WriteBuffer* b = &self.response
        write_head(b, version, correlation_id, error, session_id, wait_ms)
        write_length(b, 0, version >= FETCH_FLEXIBLE)
        if version >= FETCH_FLEXIBLE:
            write_uvarint(b, 0)
        if b.error:
            buffer_free(b)
            raise MemoryError("no memory for a fetch response")
        store32(b.data, <uint32_t>(b.size - 4))
        out.out_bytes(b.data, b.size)
        count_usage(client.number, TOPIC_NONE, FETCH, USAGE_BYTES_OUT, b.size)
        if b.capacity > KEPT_BYTES:
            buffer_free(b)
        return 0

    cdef int count_served(self, FetchContext context, list included, list cuts) except -1:
        """Count a response: the bytes of records for their topics, the other bytes, which are in the buffer, for no topic.

        The reader's position moves to the offset after the records. If a partition's records are cut at a limit, only the first batch
        is counted here; the others are counted when the reader requests the records that follow them. Records for another broker of
        the cluster are replication, and not usage of a client; the other bytes of its responses count for its client id.
        """
        cdef FetchPartition p
        cdef uint32_t client
        cdef int64_t rest = self.response.size
        cdef int64_t replicated = 0, throttled = 0, reassigned = 0
        cdef bint refused = False
        cdef shared_u64* values
        still_client(&context.client)
        client = context.client.number
        for _, p in cuts:
            if p.throttled:
                throttled += p.planned.length
            if context.replicates:
                if p.slot and is_adding(slot_at(p.slot - 1), context.replica_id):
                    reassigned += p.planned.length
                replicated += p.planned.length
                continue
            p.progress.served = True
            p.progress.end = max(p.planned.end, p.request.fetch_offset)
            p.progress.limit = p.planned.limit
            if p.counted is None:
                rest += p.planned.length
            else:
                values = usage_of(client, p.counted.counted(), FETCH).values
                count_64(&values[USAGE_BYTES_OUT], <uint64_t>p.planned.length)
                count_64(&values[USAGE_RECORDS_OUT], <uint64_t>(p.progress.end - p.request.fetch_offset))
                if p.slot:
                    put_position(client, p.slot - 1, p.incarnation, p.progress.end, &p.progress.place)
        for p in included:
            if p.found.error:
                count_error(FETCH, p.found.error)
                add(FETCH_FAILED, 1)
                refused = True
                if p.counted is not None and not context.replicates:
                    count_usage(client, p.counted.counted(), FETCH, USAGE_ERRORS, 1)
        if replicated:
            add(REPLICATION_BYTES_OUT, replicated)
        if reassigned:
            count_reassigned(QUOTA_LEADER, reassigned)
        if throttled:
            quota_record(QUOTA_LEADER, throttled, coarse_ms())
        values = usage_of(client, TOPIC_NONE, FETCH).values
        count_64(&values[USAGE_BYTES_OUT], <uint64_t>rest)
        count_64(&values[USAGE_ERRORS], refused)
        return 0

    cdef int write_error(self, ResponseOutput out, Client* client, int16_t version, int32_t correlation_id, int16_t error,
                         int64_t wait_ms) except -1:
        """Write a response that contains only the error code of the session."""
        self.write_empty(out, client, version, correlation_id, error, 0, wait_ms)
        count_error(FETCH, error)
        count_usage(client.number, TOPIC_NONE, FETCH, USAGE_ERRORS, 1)
        return 0
