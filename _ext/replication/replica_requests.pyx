"""Builds the Fetch requests of a replica fetcher; see replica_requests.pxd. Called by the fetcher's thread without the GIL."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcmp

from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.protocol.cursor cimport (
    WriteBuffer,
    write_bytes,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
    write_length,
    write_string_length,
    write_uvarint,
)
from odradek._ext.replication.fetched_partitions cimport DEVICE_READY, NO_PLACE, FetchedPartition, FetchedPartitions, FetchedTopic
from odradek._ext.replication.throttled_partitions cimport is_throttled


cdef enum:
    FETCH_KEY = 1
    REPLICA_STATE_TAG = 1
    REPLICA_STATE_BYTES = 13


cdef void build_fetch(WriteBuffer* out, FetchedPartitions partitions, const FetchSettings* settings, const FetchSession* session,
                      int16_t version, int32_t correlation_id, const uint8_t* client_id, int16_t client_id_bytes,
                      int64_t broker_epoch) noexcept nogil:
    cdef uint32_t place
    out.size = 0
    write_int32(out, 0)
    write_int16(out, FETCH_KEY)
    write_int16(out, version)
    write_int32(out, correlation_id)
    write_int16(out, client_id_bytes)
    write_bytes(out, client_id, client_id_bytes)
    write_uvarint(out, 0)
    if version < FETCH_WITH_STATE:
        write_int32(out, settings.replica_id)
    write_int32(out, settings.max_wait_ms)
    write_int32(out, settings.min_bytes)
    write_int32(out, settings.max_bytes)
    write_int8(out, 0)                  # read uncommitted
    write_int32(out, session.session_id)
    write_int32(out, session.epoch)
    write_positions(out, partitions, settings, version, session.epoch == 0)
    write_forgotten(out, partitions, version, session.epoch == 0)
    write_string_length(out, 0, True)   # no rack
    if version < FETCH_WITH_STATE:
        write_uvarint(out, 0)
    else:
        write_uvarint(out, 1)
        write_uvarint(out, REPLICA_STATE_TAG)
        write_uvarint(out, REPLICA_STATE_BYTES)
        write_int32(out, settings.replica_id)
        write_int64(out, broker_epoch)
        write_uvarint(out, 0)
    if out.error == 0:
        store32(out.data, <uint32_t>(out.size - 4))
        for place in range(partitions.partitions_used):
            settle_place(partitions, place)


cdef void refresh_unsent(FetchedPartitions partitions) noexcept nogil:
    cdef uint32_t place
    cdef FetchedPartition* fetched
    for place in range(partitions.partitions_used):
        fetched = &partitions.partitions[place]
        if fetched.used and fetched.active and not fetched.sent:
            partitions.refresh(fetched)


cdef inline bint is_fetched(const FetchedPartition* fetched) noexcept nogil:
    """Whether the leader's session is to contain the partition. The position of one that waits for its device is not reported, because
    that would acknowledge its records."""
    return fetched.active and not fetched.held and fetched.device == DEVICE_READY


cdef inline bint in_request(const FetchedPartition* fetched, bint full) noexcept nogil:
    return fetched.used and is_fetched(fetched) and (full or not fetched.sent or not fetched.in_session)


cdef inline bint to_forget(FetchedPartitions partitions, const FetchedPartition* fetched, int16_t version) noexcept nogil:
    return fetched.used and fetched.in_session and not is_fetched(fetched) \
        and not (version < FETCH_BY_ID and has_namesake(partitions, fetched))


cdef bint has_namesake(FetchedPartitions partitions, const FetchedPartition* fetched) noexcept nogil:
    """Whether a partition of a topic with the same name, which was created again, is fetched. In a request without topic ids it
    takes the place of the former one in the leader's session, and a leader removes what is to be forgotten after it has added."""
    cdef const FetchedTopic* topic = &partitions.topics[fetched.topic]
    cdef uint32_t at = partitions.find_topic_by_name(topic.name, topic.name_bytes)
    cdef uint32_t place
    while at != NO_PLACE:
        if at != fetched.topic and partitions.topics[at].name_bytes == topic.name_bytes \
                and memcmp(partitions.topics[at].name, topic.name, topic.name_bytes) == 0:
            place = partitions.find(at, fetched.partition)
            if place != NO_PLACE and is_fetched(&partitions.partitions[place]):
                return True
        at = partitions.topics[at].name_next - 1
    return False


cdef void write_topic(WriteBuffer* out, const FetchedTopic* topic, int16_t version) noexcept nogil:
    if version >= FETCH_BY_ID:
        write_bytes(out, topic.topic_id, 16)
    else:
        write_string_length(out, topic.name_bytes, True)
        write_bytes(out, topic.name, topic.name_bytes)
    write_length(out, <int32_t>topic.to_send, True)


cdef int32_t count_topics(FetchedPartitions partitions, int16_t version, bint forgotten, bint full) noexcept nogil:
    """The number of topics with partitions to write; sets `to_send` of each topic."""
    cdef uint32_t place, at
    cdef int32_t count = 0
    cdef FetchedTopic* topic
    cdef FetchedPartition* fetched
    for place in range(partitions.topics_used):
        topic = &partitions.topics[place]
        topic.to_send = 0
        at = topic.first
        while at:
            fetched = &partitions.partitions[at - 1]
            if to_forget(partitions, fetched, version) if forgotten else in_request(fetched, full):
                topic.to_send += 1
            at = fetched.next
        count += topic.to_send > 0
    return count


cdef void write_positions(WriteBuffer* out, FetchedPartitions partitions, const FetchSettings* settings, int16_t version,
                          bint full) noexcept nogil:
    cdef uint32_t place, at
    cdef FetchedTopic* topic
    cdef FetchedPartition* fetched
    write_length(out, count_topics(partitions, version, False, full), True)
    for place in range(partitions.topics_used):
        topic = &partitions.topics[place]
        if topic.to_send == 0:
            continue
        write_topic(out, topic, version)
        at = topic.first
        while at:
            fetched = &partitions.partitions[at - 1]
            at = fetched.next
            if not in_request(fetched, full):
                continue
            write_int32(out, fetched.partition)
            write_int32(out, fetched.leader_epoch)
            write_int64(out, fetched.fetch_offset)
            write_int32(out, fetched.last_epoch)
            write_int64(out, fetched.log_start_offset)
            write_int32(out, settings.throttled_max_bytes if is_throttled(fetched) else settings.partition_max_bytes)
            write_uvarint(out, 0)
        write_uvarint(out, 0)


cdef void write_forgotten(WriteBuffer* out, FetchedPartitions partitions, int16_t version, bint full) noexcept nogil:
    """A request with all partitions begins a new session, which has nothing to forget."""
    cdef uint32_t place, at
    cdef FetchedTopic* topic
    write_length(out, 0 if full else count_topics(partitions, version, True, False), True)
    if full:
        return
    for place in range(partitions.topics_used):
        topic = &partitions.topics[place]
        if topic.to_send == 0:
            continue
        write_topic(out, topic, version)
        at = topic.first
        while at:
            if to_forget(partitions, &partitions.partitions[at - 1], version):
                write_int32(out, partitions.partitions[at - 1].partition)
            at = partitions.partitions[at - 1].next
        write_uvarint(out, 0)


cdef void settle_place(FetchedPartitions partitions, uint32_t place) noexcept nogil:
    """The leader's session contains exactly the partitions that are to be fetched once it has read the request."""
    cdef FetchedPartition* fetched = &partitions.partitions[place]
    if not fetched.used:
        return
    fetched.in_session = is_fetched(fetched)
    if fetched.in_session:
        fetched.sent = True
    elif fetched.dropped:
        partitions.release(place)
