"""A follower's changes to its log; see follower_append.pxd.

Each function takes and releases the slot's lock; no GIL, no allocation. No caller yet: replication.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.gap_limit cimport is_gap_limit_below, put_gap_limit
from odradek._ext.partition.high_watermark cimport set_high_watermark
from odradek._ext.partition.leader_epochs cimport cut_epochs, new_epoch, note_epoch
from odradek._ext.partition.log_writing cimport MAX_JOINED, AppendItem, AppendOutcome, advance, set_outcome, write_and_commit
from odradek._ext.partition.producer_entry cimport ProducerEntry
from odradek._ext.partition.producer_room cimport (
    ROOM_BUSY,
    ROOM_READY,
    PendingProducers,
    Room,
    reserve_anyhow,
    reserve_producer,
)
from odradek._ext.partition.producer_runs cimport find_producer
from odradek._ext.partition.rolling cimport must_roll, roll_now
from odradek._ext.partition.segment_files cimport locate_for_cut, segment_holding
from odradek._ext.partition.slot_access cimport (
    APPEND_BUSY,
    APPEND_IO_ERROR,
    APPEND_OK,
    APPEND_OUT_OF_RANGE,
    AppendResult,
    check_slot,
    give_up,
    note_failure,
    take_slot,
)
from odradek._ext.partition.truncation cimport INTENT_TRUNCATE, finish_truncation
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, message_crc_matches, parse_message
from odradek._ext.records.record_batch cimport BatchInfo, check_batch, parse_batch_header
from odradek._ext.shm.atomics cimport store_release_64
from odradek._ext.shm.faults cimport TRUNCATE_INTENT_STORED, fault
from odradek._ext.shm.layout cimport EPOCHS_KEPT, ROLE_FOLLOWER, Commit, Slot, slot_at
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.owners cimport OWNER_NOBODY
from odradek._ext.shm.waking cimport wake_after, wake_everyone


cdef enum:
    BATCH_SOUND = 0
    BATCH_INCOMPLETE = 1          # only the last batch of a fetch can be incomplete
    BATCH_BAD = 2


cdef int check_replicated(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    """Check what a leader sent: a batch, or a message of format v0 or v1, which a follower stores unchanged."""
    cdef int error = parse_batch_header(p, n, out)
    if error == INVALID_RECORD:       # the magic is not 2
        if n < MESSAGE_HEADER_BYTES and out.magic in (0, 1):
            return BATCH_INCOMPLETE
        if parse_message(p, n, out) != 0:
            return BATCH_BAD
        if <size_t>out.size > n:
            return BATCH_INCOMPLETE
        return BATCH_SOUND if message_crc_matches(p, out) else BATCH_BAD
    if error != 0 or <size_t>out.size > n:
        return BATCH_INCOMPLETE
    return BATCH_SOUND if check_batch(p, n, False, out) == 0 else BATCH_BAD


cdef int reserve_replicated(uint32_t index, Slot* slot, int64_t producer_id, PendingProducers* pending) noexcept nogil:
    """Reserve room for a producer whose batch the leader has. Returns 0, 1 if the arena is busy, or -errno."""
    cdef ProducerEntry* known = find_producer(slot, producer_id)
    cdef Room room = reserve_producer(index, slot, known, OWNER_NOBODY, pending)
    if room == ROOM_READY or room == ROOM_BUSY:
        return room == ROOM_BUSY
    return reserve_anyhow(index, slot, known, pending)


cdef struct Replicated:           # what the next commit of a follower's append contains
    AppendItem[MAX_JOINED] items
    AppendItem* ready[MAX_JOINED]
    int count                     # of the batches in `ready`
    int64_t gap                   # base offset of the last batch after a gap that the limit does not cover; -1: none
    bint roll                     # a roll follows
    AppendResult checked          # why the batches after them are not appended; APPEND_OK if nothing refused one


cdef int gather_replicated(uint32_t index, Slot* slot, uint8_t* data, int64_t size, int64_t* at, int64_t wall_ms,
                           Replicated* out) noexcept nogil:
    """The batches at data[at] that one commit can append, with room for their producers and their epochs in the file.

    Returns 0, or -errno. *at is behind them; it is `size` if a batch cannot be appended, or not now.
    """
    cdef Commit commit = current(slot)[0]
    cdef PendingProducers pending
    cdef AppendItem* item
    cdef int verdict, n = 0, result = 0
    out.count = 0
    out.gap = -1
    out.roll = False
    pending.producers = pending.fresh = 0
    while n < MAX_JOINED and at[0] < size:
        item = &out.items[n]
        memset(item, 0, sizeof(AppendItem))
        verdict = check_replicated(data + at[0], <size_t>(size - at[0]), &item.info)
        if verdict == BATCH_SOUND and item.info.base_offset < commit.log_end_offset:
            verdict = BATCH_BAD
        if verdict != BATCH_SOUND:
            if verdict == BATCH_BAD:
                out.checked = APPEND_OUT_OF_RANGE
            at[0] = size
            break
        if must_roll(slot, &commit, &item.info, item.info.base_offset + item.info.last_offset_delta, wall_ms):
            out.roll = True
            break
        if n and (item.info.control or out.ready[n - 1].info.control
                  or (item.info.magic == 2 and new_epoch(slot, item.info.partition_leader_epoch))):
            break                       # a marker is committed alone; an epoch must begin at the log end
        if item.info.producer_id >= 0:
            result = reserve_replicated(index, slot, item.info.producer_id, &pending)
            if result != 0:
                out.checked = APPEND_BUSY
                result = min(result, 0)
                at[0] = size            # after the batches that are ready are appended
                break
        # A limit that is not known covers every gap, but it will be replaced by one that may not cover this gap.
        if item.info.base_offset > commit.log_end_offset and is_gap_limit_below(slot, item.info.base_offset):
            out.gap = item.info.base_offset
        item.data = data + at[0]
        item.base_offset = item.info.base_offset
        advance(&commit, item)
        result = note_epoch(slot, item.info.partition_leader_epoch, item.base_offset)
        if result != 0:
            break
        out.ready[n] = item
        at[0] += item.info.size
        n += 1
        out.count = n
    return result


cdef AppendResult append_as_follower(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint8_t* data, int64_t size,
                                     int64_t leader_high_watermark, int64_t leader_log_start_offset, int64_t wall_ms, int spins,
                                     AppendOutcome* outcome) noexcept nogil:
    """Append what a leader sent, with its offsets and epochs. Only whole batches are appended; an incomplete one at the end is
    dropped.

    The first batch must begin at the log end offset, or after it where compaction left a gap; otherwise the result is
    APPEND_OUT_OF_RANGE. It is also the result after a truncation whose recovery point is not written yet: a start would take
    records appended there for durable [R 4].
    """
    cdef Slot* slot = slot_at(index)
    cdef Replicated replicated
    cdef int64_t at = 0, end
    cdef int result = 0
    outcome.error_number = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    replicated.checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    if replicated.checked != APPEND_OK:
        unlock(index, slot)
        return replicated.checked
    if slot.recovery_point > current(slot).log_end_offset:
        unlock(index, slot)
        return APPEND_OUT_OF_RANGE
    while result == 0:
        result = gather_replicated(index, slot, data, size, &at, wall_ms, &replicated)
        if result == 0 and replicated.gap >= 0:
            result = put_gap_limit(slot, replicated.gap, False)
        if result == 0 and replicated.count:
            result = write_and_commit(index, slot, replicated.ready, replicated.count, False)
        if result == 0 and replicated.roll:
            result = roll_now(index, slot, wall_ms)
        if at >= size:
            break
    if result == 0:
        end = current(slot).log_end_offset
        set_high_watermark(slot, min(leader_high_watermark, end))
        if slot.log_start_offset < leader_log_start_offset <= end:
            store_release_64(<uint64_t*>&slot.log_start_offset, <uint64_t>leader_log_start_offset)
    note_failure(slot, result)
    set_outcome(slot, result, outcome)
    unlock(index, slot)
    wake_after(index, slot, True, True)
    return APPEND_IO_ERROR if result != 0 else replicated.checked


cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil:
    """Cut the log of a follower so that it ends at `offset`, or where the batch that contains it begins.

    The intent is stored before the first file is changed, so that after a death the next process that takes the lock finishes
    the truncation. Before anything is appended, the recovery point must be written to its checkpoint
    (`odradek.shm.truncation`).
    """
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef Commit* commit
    cdef int64_t base, position = 0, first_cut = offset
    cdef int result = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    commit = current(slot)
    if checked == APPEND_OK and (offset > commit.log_end_offset or offset < 0):
        checked = APPEND_OUT_OF_RANGE
    if checked == APPEND_OK and offset == commit.log_end_offset:
        # An epoch that begins at the log end belongs to a leader that left no batch.
        if slot.epoch_count and slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].start_offset >= offset:
            result = cut_epochs(slot, offset)
            note_failure(slot, result)
        unlock(index, slot)
        return APPEND_OK if result == 0 else APPEND_IO_ERROR
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    base = segment_holding(slot, offset, 0x7FFFFFFFFFFFFFFF)
    if base < -1:
        result = <int>(base + 1)
    elif base < 0:
        base = offset                   # before every segment: remove all of them; the log begins at `offset`
    elif base < offset:
        result = locate_for_cut(slot, commit, base, offset, &position, &first_cut)
    if result == 0:
        slot.intent_arguments[0] = first_cut
        slot.intent_arguments[1] = base
        slot.intent_arguments[2] = position
        slot.intent_arguments[3] = wall_ms
        store_release_64(&slot.intent, INTENT_TRUNCATE)
        fault(TRUNCATE_INTENT_STORED)
        result = finish_truncation(index, slot)
        if result != 0:
            give_up(slot, result)       # only partly done
    note_failure(slot, result)
    unlock(index, slot)
    wake_everyone(index, slot)
    return APPEND_OK if result == 0 else APPEND_IO_ERROR
