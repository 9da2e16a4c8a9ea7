"""One partition of a Produce request; see produce_items.pxd. No GIL is needed."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from odradek._ext.partition.leader_append cimport append_as_leader
from odradek._ext.partition.log_writing cimport MAX_JOINED, AppendItem, AppendOutcome
from odradek._ext.partition.producer_room cimport ROOM_OF_ARENA, ROOM_OF_CLIENT, ROOM_OF_PARTITION
from odradek._ext.partition.record_errors cimport check_rules
from odradek._ext.partition.slot_access cimport (
    APPEND_BUSY,
    APPEND_IO_ERROR,
    APPEND_OFFLINE,
    APPEND_OK,
    APPEND_STALE,
    AppendResult,
)
from odradek._ext.protocol.kafka_errors cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.protocol.byte_order cimport load16, load32, load64
from odradek._ext.records.record_batch cimport (
    AT_BASE_SEQUENCE,
    AT_MAGIC,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    BatchInfo,
    set_max_timestamp,
)
from odradek._ext.shm.atomics cimport fence_acquire, load_acquire_32, load_acquire_i32
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.pauses cimport in_doubt
from odradek._ext.shm.slot cimport (
    ROLE_LEADER,
    SLOT_DELETED,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    Slot,
    read_commit,
    slot_at,
    state_now,
)
from odradek._ext.storage.log_dirs cimport is_full


cdef enum:
    BATCH_HEADER_BYTES = 61
    PLACES_ON_STACK = 512             # size of the hash table that finds items of the same slot, if it is on the stack: a power of two

cdef const char* OUTSIDE_TRANSACTION = "the batch does not belong to the open transaction of its producer"
cdef const char* DISK_IS_FULL = "the disk of the partition's log directory is full; retry after space was freed"
cdef const char* CLIENT_HAS_ENOUGH = "the broker has as many idempotent producers from this address as " \
    "odradek.producer.state.client.max.percent allows: close some, or raise the limit"
cdef const char* PARTITION_HAS_ENOUGH = "the partition has as many idempotent producers as " \
    "odradek.producer.state.partition.max.producers allows, and all of them wrote recently"
cdef const char* ARENA_IS_FULL = "the broker's memory for idempotent producers is full: raise odradek.producer.state.max.bytes"


# -- checks ---------------------------------------------------------------------------------------------------------

cdef bint may_be_deposed(int16_t acks) noexcept nogil:
    return acks != -1 and region().header.clustered and in_doubt()


cdef int leading_error(Slot* slot, bint deposed) noexcept nogil:
    cdef uint32_t state
    if load_acquire_32(&slot.role) == ROLE_LEADER:
        return NOT_LEADER_OR_FOLLOWER if deposed and slot.replica_count > 1 else 0
    if not region().header.clustered:
        return 0
    state = state_now(slot)
    if state == SLOT_OFFLINE:
        return KAFKA_STORAGE_ERROR
    return UNKNOWN_TOPIC_OR_PARTITION if state == SLOT_DELETED else NOT_LEADER_OR_FOLLOWER


cdef const char* reason_of(int error) noexcept nogil:
    if error == CORRUPT_MESSAGE:
        return "the record batch is corrupt: its CRC or its length is wrong"
    if error == INVALID_RECORD:
        return "the record batch is malformed: its records do not match its header"
    if error == UNSUPPORTED_COMPRESSION_TYPE:
        return "the record batch has an unknown compression codec"
    if error == INVALID_TIMESTAMP:
        return "a timestamp of the record batch, or its timestamp type, is not allowed by the topic's configuration"
    if error == MESSAGE_TOO_LARGE:
        return "the record batch is larger than max.message.bytes, or its decompressed records exceed the broker's limit"
    return NULL


cdef const char* reason_of_room(int room) noexcept nogil:
    if room == ROOM_OF_CLIENT:
        return CLIENT_HAS_ENOUGH
    if room == ROOM_OF_PARTITION:
        return PARTITION_HAS_ENOUGH
    return ARENA_IS_FULL if room == ROOM_OF_ARENA else DISK_IS_FULL


cdef int check_framed(ProduceItem* item, Slot* slot, int64_t wall_ms) noexcept nogil:
    cdef BatchInfo* info = &item.append.info
    cdef int error = check_rules(slot, info, wall_ms)
    if error:
        item.bad_records = 1
        return refuse(item, error, reason_of(error))
    if not slot.settings.log_append_time and (info.log_append_time or info.found_max_timestamp != info.max_timestamp):
        set_max_timestamp(item.append.data, info, info.found_max_timestamp, False)
    return 0


# -- appending ------------------------------------------------------------------------------------------------------

cdef void link_items(ProduceItem* items, int count) noexcept nogil:
    cdef int[PLACES_ON_STACK] small
    cdef int* places = small              # hash table: the first item of a slot + 1, among the items visited (last item first)
    cdef uint32_t mask = 15, place
    cdef int i
    if count == 1:
        items[0].following = -1
        return
    while mask < 2 * <uint32_t>count:
        mask = 2 * mask + 1
    if mask >= PLACES_ON_STACK:
        places = <int*>calloc(mask + 1, sizeof(int))
        if places == NULL:
            link_slowly(items, count)
            return
    else:
        memset(small, 0, (mask + 1) * sizeof(int))
    for i in range(count - 1, -1, -1):
        items[i].following = -1
        if items[i].slot == 0:
            continue
        place = items[i].slot * <uint32_t>2654435761 & mask
        while places[place] and items[places[place] - 1].slot != items[i].slot:
            place = place + 1 & mask
        items[i].following = places[place] - 1
        places[place] = i + 1
    if places != small:
        free(places)


cdef void link_slowly(ProduceItem* items, int count) noexcept nogil:
    """As link_items, without allocating memory; the time is quadratic."""
    cdef int i, j
    for i in range(count):
        j = i + 1
        while j < count and items[j].slot != items[i].slot:
            j += 1
        items[i].following = j if j < count and items[i].slot else -1


cdef BatchProducer producer_of(ProduceItem* item) noexcept nogil:
    cdef BatchProducer found
    cdef const uint8_t* data = item.append.data
    found.id = found.epoch = found.base_sequence = -1
    if data == NULL and item.appended:
        found.id = item.append.info.producer_id
        found.epoch = item.append.info.producer_epoch
        found.base_sequence = item.append.info.base_sequence
    elif data != NULL and item.append.info.size >= BATCH_HEADER_BYTES and data[AT_MAGIC] == 2:
        found.id = <int64_t>load64(data + AT_PRODUCER_ID)
        found.epoch = <int16_t>load16(data + AT_PRODUCER_EPOCH)
        found.base_sequence = <int32_t>load32(data + AT_BASE_SEQUENCE)
    return found


cdef void mark_behind(ProduceItem* items, int refused) noexcept nogil:
    cdef BatchProducer producer = producer_of(&items[refused])
    cdef BatchProducer later
    cdef int j = items[refused].following
    if producer.id < 0 or producer.base_sequence < 0:
        return
    while j >= 0:
        later = producer_of(&items[j])
        if later.id == producer.id:
            if later.epoch != producer.epoch or items[j].append.after_refused \
                    or not follows(producer.base_sequence, later.base_sequence):
                return
            items[j].append.after_refused = 1
        j = items[j].following


cdef int append_items(ProduceItem* items, int first, int end, int spins, int64_t wall_ms) noexcept nogil:
    cdef AppendItem[MAX_JOINED] batches
    cdef int[MAX_JOINED] places
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef int i, j, n, k, busy = 0
    cdef Slot* slot
    cdef bint flush, unverified
    for i in range(first, end):
        if items[i].held:
            items[i].held = 0
            continue
        if items[i].error or items[i].appended:
            continue
        n = 0
        j = i
        while j >= 0 and n < MAX_JOINED:
            if not items[j].error and not items[j].appended and not items[j].held:
                batches[n] = items[j].append
                places[n] = j
                n += 1
            j = items[j].following
        result = append_as_leader(items[i].slot - 1, items[i].incarnation, -1, batches, n, wall_ms, spins, &outcome)
        if result == APPEND_BUSY:
            busy += 1
            j = items[i].following
            while j >= 0:                 # no later item of the slot may be appended before this one
                items[j].held = 1
                j = items[j].following
            continue
        slot = slot_at(items[i].slot - 1)
        # As in Kafka, the append that reaches flush.messages unsynced records requests the sync.
        flush = (result == APPEND_OK or result == APPEND_IO_ERROR) \
            and outcome.log_end_offset - slot.flushed_offset >= slot.settings.flush_messages
        unverified = False
        for k in range(n):
            items[places[k]].append = batches[k]
            if batches[k].unverified:
                unverified = True
                items[places[k]].unverified = batches[k].unverified
                items[places[k]].held = places[k] > i         # not appended again when the loop arrives there
            elif result == APPEND_OK or batches[k].appended or batches[k].duplicate or batches[k].error:
                items[places[k]].error = batches[k].error
                if batches[k].error == NOT_ENOUGH_REPLICAS:
                    items[places[k]].message = reason_of_room(batches[k].room)
                elif batches[k].error == INVALID_TXN_STATE:
                    items[places[k]].message = OUTSIDE_TRANSACTION
                items[places[k]].appended = 1
                items[places[k]].leader_epoch = outcome.leader_epoch
                items[places[k]].required_offset = outcome.log_end_offset
                if batches[k].appended:
                    items[places[k]].required_offset = batches[k].base_offset + batches[k].info.last_offset_delta + 1
                if flush and batches[k].base_offset >= 0:       # a duplicate too: its first append may not be synced yet
                    items[places[k]].flush_offset = batches[k].base_offset + batches[k].info.last_offset_delta + 1
            elif result == APPEND_STALE:
                refuse(&items[places[k]], UNKNOWN_TOPIC_OR_PARTITION, NULL)
            elif result == APPEND_OFFLINE:
                refuse(&items[places[k]], KAFKA_STORAGE_ERROR, "the partition's log directory is offline")
            elif result == APPEND_IO_ERROR and is_full(-outcome.error_number):
                refuse(&items[places[k]], NOT_ENOUGH_REPLICAS, DISK_IS_FULL)
            elif result == APPEND_IO_ERROR:
                refuse(&items[places[k]], KAFKA_STORAGE_ERROR, "the broker cannot write to the log")
            else:
                refuse(&items[places[k]], NOT_LEADER_OR_FOLLOWER, NULL)
        for k in range(n):
            if items[places[k]].error:
                mark_behind(items, places[k])
        if unverified:
            while j >= 0:                 # those that did not fit into this write
                items[j].held = 1
                j = items[j].following
    return busy


# -- whether items are decided ---------------------------------------------------------------------------------------

cdef inline bint leads_on(Slot* slot, ProduceItem* item) noexcept nogil:
    """Return whether this broker has led the partition since the item was appended, without interruption [R 10.6].

    The leader epoch may be another one: the controller begins one whenever a replica leaves. Role and beginning of the leadership are read
    last, with everything read before them complete: a former leader gives up the role before it truncates its log.
    """
    fence_acquire()
    return load_acquire_32(&slot.role) == ROLE_LEADER and slot.incarnation == item.incarnation \
        and load_acquire_i32(&slot.led_since) <= item.leader_epoch


cdef bint on_device(ProduceItem* item) noexcept nogil:
    cdef Slot* slot = slot_at(item.slot - 1)
    if slot.flushed_offset >= item.flush_offset and slot.incarnation == item.incarnation:
        return True
    if slot.incarnation != item.incarnation:
        refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
    elif slot.state == SLOT_OFFLINE or region().header.log_dir_offline[slot.log_dir]:
        refuse(item, KAFKA_STORAGE_ERROR, "the broker cannot sync the log to the device")
    elif slot.state != SLOT_ONLINE:
        refuse(item, UNKNOWN_TOPIC_OR_PARTITION, NULL)
    elif not leads_on(slot, item):
        refuse(item, NOT_LEADER_OR_FOLLOWER, NULL)
    else:
        return False
    return True


cdef inline bint replicas_after_append(Slot* slot) noexcept nogil:
    """Return whether the records, which are below the high watermark, are in min.insync.replicas replicas.

    The maximal in-sync set counts, because each of its members had the records when the high watermark moved.
    """
    return slot.max_in_sync_count >= min(slot.settings.min_in_sync_replicas, slot.replica_count)


cdef bint not_online(Slot* slot, ProduceItem* item) noexcept nogil:
    """Return whether no high watermark can decide the item, because the partition was deleted or its log failed; refuse it then."""
    cdef uint32_t state = state_now(slot)
    if state == SLOT_ONLINE:
        return False
    if state == SLOT_OFFLINE:
        refuse(item, KAFKA_STORAGE_ERROR, "the partition's log directory is offline")
    else:
        refuse(item, UNKNOWN_TOPIC_OR_PARTITION if state == SLOT_DELETED else NOT_LEADER_OR_FOLLOWER, NULL)
    return True


cdef bint acknowledged_by_leader(ProduceItem* item, bint deposed) noexcept nogil:
    """Decide an item with acks=1, which is appended: refuse it if the append may be that of a deposed leader.

    The role is read after the doubt was found to be none: a broker that was deposed during a pause gives up its roles before the pause is
    confirmed [R 12.3].
    """
    cdef Slot* slot
    if not region().header.clustered:
        return True
    slot = slot_at(item.slot - 1)
    if (deposed and slot.replica_count > 1) or not leads_on(slot, item):
        refuse(item, NOT_LEADER_OR_FOLLOWER, NULL)
    return True


cdef bint decided(ProduceItem* item, int16_t acks, bint deposed) noexcept nogil:
    cdef Slot* slot
    cdef Commit commit
    cdef bint enough
    if item.error:
        return True
    if not item.appended:
        return False
    if item.flush_offset and acks != 0 and not on_device(item):
        return False
    if item.error:
        return True
    if acks != -1:
        return acks == 0 or acknowledged_by_leader(item, deposed)
    slot = slot_at(item.slot - 1)
    read_commit(slot, &commit)
    enough = replicas_after_append(slot)
    # After the high watermark: between two reads this broker may have become a follower, truncated its log and received other records,
    # whose high watermark says nothing about this item's [R 3].
    if not leads_on(slot, item):
        refuse(item, NOT_LEADER_OR_FOLLOWER, NULL)
        return True
    if commit.high_watermark < item.required_offset:
        return not_online(slot, item)
    if not enough:
        refuse(item, NOT_ENOUGH_REPLICAS_AFTER_APPEND, NULL)
    return True


cdef bint settled(ProduceRequest* request, ProduceItem* items) noexcept nogil:
    return first_undecided(request, items, request.first) == request.first + request.count


cdef int first_undecided(ProduceRequest* request, ProduceItem* items, int at) noexcept nogil:
    # After the appends: a pause between the first check and the append is found here.
    cdef bint deposed = may_be_deposed(request.acks)
    while at < request.first + request.count and decided(&items[at], request.acks, deposed):
        at += 1
    return at


cdef bint any_refused(ProduceRequest* request, ProduceItem* items) noexcept nogil:
    cdef int i
    for i in range(request.first, request.first + request.count):
        if items[i].error:
            return True
    return False
