"""One partition of a Produce request: its batch, the results of the checks and of the append, and whether it may be answered.

Plain memory and functions on it, for the event loop and the append threads of a worker; no locks except those of the slots.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.log_writing cimport AppendItem
from odradek._ext.shm.client_quotas cimport QuotaUse
from odradek._ext.shm.metering cimport Client
from odradek._ext.shm.slot cimport Slot


cdef enum Slow:
    SLOW_COMPRESSED = 1           # its records must be decompressed and checked
    SLOW_OLD = 2                  # a message set of format v0 or v1, which must be converted
    SLOW_RECOMPRESS = 3           # the topic's compression.type is another codec


cdef struct ProduceItem:          # one partition of one request
    AppendItem append
    uint32_t slot                 # slot + 1; 0: none
    uint32_t incarnation
    int32_t request
    int32_t partition
    const uint8_t* topic          # name without length, or 16 bytes of id
    int32_t topic_bytes
    int32_t topic_partitions      # > 0 on the first partition of a topic: how many follow, itself included
    int16_t error
    uint8_t appended
    uint8_t slow                  # Slow: why an append thread must process it first; 0: it need not
    uint8_t unverified            # Unverified: not appended before the transaction's coordinator was asked (transaction_checks.pxd)
    uint8_t bad_records           # refused because records violate a rule of the topic: the response must name them
    const char* message           # of the error, or NULL
    int32_t record_errors         # index in the request's list of RecordErrors + 1; 0: none
    int64_t required_offset       # acks=all: the high watermark that decides it
    int64_t flush_offset          # flush.messages: the flushed offset that decides it; 0: no sync is needed
    int32_t leader_epoch
    int32_t sent_bytes            # of records, as sent
    uint32_t counted              # number of the topic in the meter page
    int32_t following             # the next item of the same slot, -1: none; see link_items
    uint8_t held                  # during append_items: an earlier item of its slot met a taken lock or is unverified


cdef struct ProduceRequest:
    int32_t correlation_id
    int16_t version
    int16_t acks
    int32_t timeout_ms
    int32_t first
    int32_t count
    int32_t topics
    int32_t record_errors         # number of record errors that the response lists
    Client client
    int32_t listener              # index of the listener of its connection
    uint32_t owner                # of the producers that its connection creates (owners.pxd)
    int64_t connection_id
    const uint8_t* transactional_id
    int16_t transactional_id_bytes    # -1: none
    uint8_t transactional         # it contains a transactional batch
    uint8_t limited               # a quota applies to it (charging.pxd); CHARGED: and it is charged
    int64_t frame_bytes           # of the request, without its length
    QuotaUse produce_quota
    QuotaUse time_quota


cdef enum:
    PRODUCE_BY_ID = 13            # the first version that names topics by their ids
    CHARGED = 2                   # value of `ProduceRequest.limited`


cdef inline int refuse(ProduceItem* item, int error, const char* message) noexcept nogil:
    item.error = <int16_t>error
    item.message = message
    return 0


# Returns whether this broker may have been deposed during a pause that ended before this call, and must therefore not acknowledge a batch
# of a partition with other replicas. With acks=all the followers decide. In a cluster only.
cdef bint may_be_deposed(int16_t acks) noexcept nogil

# Returns the error of a batch for a partition that this broker does not lead, or perhaps does not lead any more (`deposed`), before any
# other check: clients look up the leader after it. 0: this broker leads the partition, or the append decides. In a cluster only.
cdef int leading_error(Slot* slot, bint deposed) noexcept nogil


cdef inline bint enough_replicas(Slot* slot) noexcept nogil:
    """Return whether the partition has min.insync.replicas, for a request that is not appended yet: the in-sync set that the
    controller knows counts. It never requires more replicas than are assigned (as in Kafka 4)."""
    return slot.in_sync_count >= min(slot.settings.min_in_sync_replicas, slot.replica_count)


# Returns the error message for the client if a check refuses a batch; NULL if the error code needs no message.
cdef const char* reason_of(int error) noexcept nogil
# Returns the error message if an append was refused with NOT_ENOUGH_REPLICAS. `room`: a Room.
cdef const char* reason_of_room(int room) noexcept nogil

# Checks the records' properties against the topic's settings. Refuses the item, or corrects timestamp type and maximum timestamp in
# the batch's header.
cdef int check_framed(ProduceItem* item, Slot* slot, int64_t wall_ms) noexcept nogil

# Sets `following` of all items. Must be called once, before `append_items`.
cdef void link_items(ProduceItem* items, int count) noexcept nogil

cdef struct BatchProducer:
    int64_t id                    # -1: the batch has no producer id
    int16_t epoch
    int32_t base_sequence


# Returns the producer of a batch, which is perhaps not checked yet.
cdef BatchProducer producer_of(ProduceItem* item) noexcept nogil


cdef inline bint follows(int32_t before, int32_t sequence) noexcept nogil:
    """Return whether a sequence lies behind another one; sequences begin at 0 again after the largest."""
    return 0 < ((<int64_t>sequence - before) & 0x7FFFFFFF) < 0x40000000


# Appends every item from `first` to `end` that is neither refused nor appended yet, the items of a slot together and in order,
# including those of the same slots after `end`. Returns the number of slots whose lock is taken: their items stay neither refused nor
# appended, and the caller must pass them again before any later batch of these slots. The same is true of unverified items and of the
# later items of their slots. The time is proportional to the number of items.
cdef int append_items(ProduceItem* items, int first, int end, int spins, int64_t wall_ms) noexcept nogil

# Marks the later items of a slot that continue the sequence of a refused one: a later append must not take one of them for the first
# batch of its producer. Ends at a retry of the refused batch, and at an item that is marked already.
cdef void mark_behind(ProduceItem* items, int refused) noexcept nogil

# Returns whether the item awaits no sync: it is synced; or its partition changed since the append (deleted, offline, another leader
# epoch), so that it cannot be acknowledged, and this function has refused it.
cdef bint on_device(ProduceItem* item) noexcept nogil

# Returns whether the item is refused, or appended and, where that is required, on the device and (acks=all) below the high watermark.
# `deposed`: what `may_be_deposed` returned after the append.
cdef bint decided(ProduceItem* item, int16_t acks, bint deposed) noexcept nogil

# Returns whether every item of the request is decided.
cdef bint settled(ProduceRequest* request, ProduceItem* items) noexcept nogil

# Returns the first item from `at` on that is not decided; the number of items if all are.
cdef int first_undecided(ProduceRequest* request, ProduceItem* items, int at) noexcept nogil

# Returns whether an item is refused.
cdef bint any_refused(ProduceRequest* request, ProduceItem* items) noexcept nogil
