"""Marks and markers of transactions; see transactions.pxd.

Called by the coordinator process. The slot's lock is taken and released here; in between nothing is allocated and no GIL is needed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.high_watermark cimport is_lone_leader
from odradek._ext.partition.leader_append cimport finish_append, write_items
from odradek._ext.partition.log_writing cimport MAX_JOINED, AppendItem, AppendOutcome, set_outcome
from odradek._ext.partition.producer_entry cimport ProducerEntry, coordinator_epoch_of, entry_epoch, is_known, pack_mark
from odradek._ext.partition.producer_room cimport (
    ROOM_BUSY,
    ROOM_READY,
    PendingProducers,
    Room,
    reserve_for_mark,
    reserve_for_marker,
)
from odradek._ext.partition.producer_runs cimport find_producer, place_of_entry
from odradek._ext.partition.producers cimport put_mark
from odradek._ext.partition.redo cimport MARKER_ABORT, MARKER_COMMIT
from odradek._ext.partition.slot_access cimport APPEND_BUSY, APPEND_IO_ERROR, APPEND_OK, AppendResult, check_slot, note_failure, take_slot
from odradek._ext.protocol.byte_order cimport store16, store32, store64
from odradek._ext.protocol.kafka_errors cimport (
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    TRANSACTION_COORDINATOR_FENCED,
)
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.record_batch cimport (
    AT_ATTRIBUTES,
    AT_BASE_SEQUENCE,
    AT_BASE_TIMESTAMP,
    AT_BATCH_LENGTH,
    AT_CRC,
    AT_MAGIC,
    AT_MAX_TIMESTAMP,
    AT_PARTITION_LEADER_EPOCH,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    AT_RECORDS,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_OVERHEAD_BYTES,
    NO_SEQUENCE,
    parse_batch_header,
)
from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.faults cimport APPEND_LOCKED, MARKERS_RESERVED, fault
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.slot cimport ROLE_LEADER, Slot, slot_at


cdef enum:
    MARKER_BYTES = 78             # the header, and a record of 17 bytes
    LAST_EPOCH = 0x7FFF


# -- marks -------------------------------------------------------------------------------------------------------------

cdef AppendResult mark_producer(uint32_t index, Slot* slot, uint64_t id_hash, int64_t producer_id, int16_t producer_epoch,
                                int32_t coordinator_epoch, bint version_2, uint32_t owner, int16_t* error) noexcept nogil:
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    cdef PendingProducers pending
    cdef Room room
    pending.producers = pending.fresh = 0
    error[0] = 0
    if entry != NULL and producer_epoch < entry_epoch(entry):
        error[0] = INVALID_PRODUCER_EPOCH
        return APPEND_OK
    if entry != NULL and is_known(entry) and coordinator_epoch < coordinator_epoch_of(entry):
        error[0] = TRANSACTION_COORDINATOR_FENCED
        return APPEND_OK
    if entry == NULL:
        room = reserve_for_mark(index, slot, entry, owner, &pending)
        if room == ROOM_BUSY:
            return APPEND_BUSY
        if room != ROOM_READY:
            error[0] = NOT_ENOUGH_REPLICAS
            return APPEND_OK
    put_mark(slot, entry, producer_id, pack_mark(id_hash, producer_epoch, slot.led_since, version_2), owner, coarse_ms())
    return APPEND_OK


cdef AppendResult allow_transaction(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint64_t id_hash, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch, bint version_2, uint32_t owner, int spins,
                                    int16_t* error) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef AppendResult result
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    result = check_slot(slot, incarnation, leader_epoch, ROLE_LEADER)
    if result == APPEND_OK:
        result = mark_producer(index, slot, id_hash, producer_id, producer_epoch, coordinator_epoch, version_2, owner, error)
    unlock(index, slot)
    return result


# -- markers -----------------------------------------------------------------------------------------------------------

cdef void build_marker(uint8_t* out, const TransactionEnd* end, int64_t wall_ms) noexcept nogil:
    """A control batch of MARKER_BYTES with one record. The key is version 0 and the type, the value is version 0 and the epoch of the
    coordinator (`ControlRecordType`, `EndTransactionMarker`)."""
    cdef uint8_t* record = out + AT_RECORDS
    memset(out, 0, MARKER_BYTES)
    store32(out + AT_BATCH_LENGTH, MARKER_BYTES - BATCH_OVERHEAD_BYTES)
    store32(out + AT_PARTITION_LEADER_EPOCH, 0xFFFFFFFF)
    out[AT_MAGIC] = 2
    store16(out + AT_ATTRIBUTES, ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)
    store64(out + AT_BASE_TIMESTAMP, <uint64_t>wall_ms)
    store64(out + AT_MAX_TIMESTAMP, <uint64_t>wall_ms)
    store64(out + AT_PRODUCER_ID, <uint64_t>end.producer_id)
    store16(out + AT_PRODUCER_EPOCH, <uint32_t>end.producer_epoch & 0xFFFF)
    store32(out + AT_BASE_SEQUENCE, <uint32_t>NO_SEQUENCE)
    store32(out + AT_RECORD_COUNT, 1)
    record[0] = 16 << 1           # length of the record; lengths are zigzag varints
    record[4] = 4 << 1            # length of the key, after attributes, timestamp delta and offset delta, which are 0
    store16(record + 7, MARKER_COMMIT if end.commits else MARKER_ABORT)
    record[9] = 6 << 1            # length of the value
    store32(record + 12, <uint32_t>end.coordinator_epoch)
    store32(out + AT_CRC, crc32c(0, out + AT_ATTRIBUTES, MARKER_BYTES - AT_ATTRIBUTES))


cdef bint check_end(ProducerEntry* entry, TransactionEnd* end) noexcept nogil:
    """Return whether a marker must be appended. If not, `error` is the reason; 0: it repeats a marker of version 2 (KAFKA-19999).
    INVALID_TXN_STATE: another transaction is open than the one that begins at `first_offset`, or none.

    With version 2, the epoch of a marker is larger than that of the records, except for a producer that already had the last epoch.
    """
    cdef bint open = entry != NULL and entry.transaction_first_offset >= 0, repeated = False
    end.error = 0
    if end.producer_id < 0:
        end.error = INVALID_PRODUCER_ID_MAPPING
        return False
    if end.first_offset >= 0 and not (open and entry.transaction_first_offset == end.first_offset):
        end.error = INVALID_TXN_STATE
        return False
    if entry == NULL or not is_known(entry):
        return True
    if end.producer_epoch < entry_epoch(entry):
        end.error = INVALID_PRODUCER_EPOCH
    elif end.producer_epoch == entry_epoch(entry) and end.transaction_version >= 2:
        repeated = not open
        if open and end.producer_epoch != LAST_EPOCH:
            end.error = INVALID_PRODUCER_EPOCH
    if end.error == 0 and end.coordinator_epoch < coordinator_epoch_of(entry):
        end.error = TRANSACTION_COORDINATOR_FENCED
    return end.error == 0 and not repeated


cdef bint is_of_earlier(TransactionEnd* ends, int count, int64_t producer_id) noexcept nogil:
    cdef int i
    for i in range(count):
        if ends[i].producer_id == producer_id:
            return True
    return False


cdef Room prepare_marker(uint32_t index, Slot* slot, TransactionEnd* end, uint8_t* data, AppendItem* item, PendingProducers* pending,
                         int64_t wall_ms) noexcept nogil:
    """Check a marker, reserve room for its producer and build the batch. An item with an error is not written."""
    cdef ProducerEntry* entry = find_producer(slot, end.producer_id)
    cdef Room room = ROOM_READY
    memset(item, 0, sizeof(AppendItem))
    item.base_offset = -1
    item.error = 1                # until it is ready
    if not check_end(entry, end):
        return ROOM_READY
    room = reserve_for_marker(index, slot, entry, pending)
    if room != ROOM_READY:
        end.error = NOT_ENOUGH_REPLICAS
        return room
    build_marker(data, end, wall_ms)
    parse_batch_header(data, MARKER_BYTES, &item.info)
    item.data = data
    item.transaction_version = end.transaction_version
    item.place = place_of_entry(slot, entry)
    item.error = 0
    return ROOM_READY


cdef int append_some(uint32_t index, Slot* slot, TransactionEnd* ends, int count, bint alone, int64_t wall_ms, int* result) noexcept nogil:
    """Append the first markers of `ends`, at most MAX_JOINED of different producers, so that each is checked against the slot alone.
    Returns their number; 0 if the arena is busy. *result: 0, or -errno."""
    cdef uint8_t[MAX_JOINED * MARKER_BYTES] data
    cdef AppendItem[MAX_JOINED] items
    cdef PendingProducers pending
    cdef int n = 0, i, ready = 0
    pending.producers = pending.fresh = 0
    while n < count and n < MAX_JOINED and not is_of_earlier(ends, n, ends[n].producer_id):
        if prepare_marker(index, slot, &ends[n], data + n * MARKER_BYTES, &items[n], &pending, wall_ms) == ROOM_BUSY:
            break
        ready += items[n].error == 0
        n += 1
    fault(MARKERS_RESERVED)
    if ready:
        result[0] = write_items(index, slot, items, n, alone, wall_ms)
    for i in range(n):
        if items[i].appended:
            ends[i].offset = items[i].base_offset
        elif items[i].error == 0:
            ends[i].error = KAFKA_STORAGE_ERROR
    return n


cdef AppendResult append_markers(uint32_t index, uint32_t incarnation, int32_t leader_epoch, TransactionEnd* ends, int count,
                                 int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef int at = 0, n = 0, i, result = 0
    cdef int64_t before, end_before
    cdef bint alone
    outcome.error_number = 0
    for i in range(count):
        ends[i].error = NOT_ENOUGH_REPLICAS      # of markers that are not reached; retriable
        ends[i].offset = -1
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    fault(APPEND_LOCKED)
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_LEADER)
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    alone = is_lone_leader(slot)
    before = current(slot).high_watermark
    end_before = current(slot).log_end_offset
    while at < count and result == 0:
        n = append_some(index, slot, ends + at, count - at, alone, wall_ms, &result)
        if n == 0:
            break
        at += n
    if current(slot).log_end_offset == end_before:      # nothing was written, so nobody is woken
        set_outcome(slot, result, outcome)
        note_failure(slot, result)
        unlock(index, slot)
        if result != 0:
            return APPEND_IO_ERROR
        return APPEND_OK if at else APPEND_BUSY
    finish_append(index, slot, result, alone, before, outcome)
    return APPEND_OK
