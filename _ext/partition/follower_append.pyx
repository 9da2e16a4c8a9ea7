"""A follower's changes to its log; see follower_append.pxd.

Each function that changes the log takes and releases the slot's lock; no GIL, no allocation.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memset

from odradek._ext.partition.commits cimport current, new_generation
from odradek._ext.partition.gap_limit cimport is_gap_limit_below, put_gap_limit
from odradek._ext.partition.high_watermark cimport set_high_watermark
from odradek._ext.partition.leader_epochs cimport EpochRing, copy_epochs, cut_epochs, new_epoch, note_epoch
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
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.rolling cimport must_roll, roll_now
from odradek._ext.partition.segment_files cimport locate_for_cut, segment_holding
from odradek._ext.partition.slot_access cimport (
    APPEND_BEFORE_LOG,
    APPEND_BUSY,
    APPEND_CORRUPT,
    APPEND_IO_ERROR,
    APPEND_OK,
    APPEND_OUT_OF_RANGE,
    APPEND_UNSETTLED,
    AppendResult,
    check_slot,
    give_up,
    note_failure,
    take_slot,
)
from odradek._ext.partition.truncation cimport INTENT_RESTART, INTENT_TRUNCATE, finish_restart, finish_truncation
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, message_crc_matches, parse_message
from odradek._ext.records.record_batch cimport BatchInfo, check_batch, parse_batch_header
from odradek._ext.shm.atomics cimport fence_acquire, load_acquire_32, load_acquire_i64, store_release_64, store_release_i64
from odradek._ext.shm.faults cimport (
    FOLLOW_BEFORE_UNLOCK,
    FOLLOW_LOG_START_STORED,
    RESTART_INTENT_STORED,
    TRUNCATE_INTENT_STORED,
    fault,
)
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.owners cimport OWNER_NOBODY
from odradek._ext.shm.slot cimport EPOCHS_KEPT, ROLE_FOLLOWER, Commit, Slot, slot_at, state_now
from odradek._ext.shm.waking cimport wake_after, wake_everyone


cdef enum:
    BATCH_SOUND = 0
    BATCH_INCOMPLETE = 1          # only the last batch of a fetch can be incomplete
    BATCH_BAD = 2
    POSITION_TRIES = 100          # of a copy of the position while the slot is changed


cdef int parse_replicated(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    """Parse the header of a batch, or of a message of format v0 or v1, which a follower stores unchanged."""
    cdef int error = parse_batch_header(p, n, out)
    if error == INVALID_RECORD:       # the magic is not 2
        if n < MESSAGE_HEADER_BYTES and out.magic in (0, 1):
            return BATCH_INCOMPLETE
        if parse_message(p, n, out) != 0:
            return BATCH_BAD
    elif error != 0:
        return BATCH_INCOMPLETE
    return BATCH_SOUND if <size_t>out.size <= n else BATCH_INCOMPLETE


cdef int64_t sound_bytes(const uint8_t* data, int64_t size, int32_t leader_epoch, bint* bad) noexcept nogil:
    """The size of the sound batches at the beginning of what a leader sent. *bad: a damaged one follows them, or one of a newer
    leader epoch than `leader_epoch` (-1: any).

    Called before the slot's lock is taken: to compute the checksums takes longer than everything under the lock.
    """
    cdef BatchInfo info
    cdef int64_t at = 0
    cdef int verdict
    bad[0] = False
    while at < size:
        verdict = parse_replicated(data + at, <size_t>(size - at), &info)
        if verdict == BATCH_SOUND and not (check_batch(data + at, <size_t>(size - at), False, &info) == 0 if info.magic == 2
                                           else message_crc_matches(data + at, &info)):
            verdict = BATCH_BAD
        if verdict == BATCH_SOUND and info.magic == 2 and info.partition_leader_epoch > leader_epoch >= 0:
            verdict = BATCH_BAD
        if verdict != BATCH_SOUND:
            bad[0] = verdict == BATCH_BAD
            break
        at += info.size
    return at


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
    """The sound batches at data[at] that one commit can append, with room for their producers and their epochs in the file.

    Returns 0, or -errno. *at is behind them; it is `size` if a batch cannot be appended, or not now.
    """
    cdef Commit commit = current(slot)[0]
    cdef PendingProducers pending
    cdef AppendItem* item
    cdef int n = 0, result = 0
    out.count = 0
    out.gap = -1
    out.roll = False
    pending.producers = pending.fresh = 0
    while n < MAX_JOINED and at[0] < size:
        item = &out.items[n]
        memset(item, 0, sizeof(AppendItem))
        parse_replicated(data + at[0], <size_t>(size - at[0]), &item.info)
        if item.info.base_offset < commit.log_end_offset:
            out.checked = APPEND_OUT_OF_RANGE
            at[0] = size
            break
        if must_roll(slot, &commit, &item.info, item.info.base_offset + item.info.last_offset_delta, wall_ms):
            out.roll = True
            break
        if n and (item.info.control != out.ready[n - 1].info.control
                  or (item.info.magic == 2 and new_epoch(slot, item.info.partition_leader_epoch))):
            break                       # markers are written apart from data [R 1.7]; an epoch must begin at the log end
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
    APPEND_OUT_OF_RANGE. If the log is empty because its start was moved into a batch of the leader, the result is
    APPEND_BEFORE_LOG. After a truncation whose recovery point is not written yet, it is APPEND_UNSETTLED: a start would take
    records appended there for durable [R 4.10].
    """
    cdef Slot* slot = slot_at(index)
    cdef Replicated replicated
    cdef bint bad = False
    cdef int64_t at = 0, sound = sound_bytes(data, size, leader_epoch, &bad)
    cdef int result = 0
    outcome.error_number = 0
    outcome.restart_at = -1
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    replicated.checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    if replicated.checked == APPEND_OK and slot.recovery_point > current(slot).log_end_offset:
        replicated.checked = APPEND_UNSETTLED
    if replicated.checked == APPEND_OK and sound:
        replicated.checked = check_begin(slot, data, sound, &outcome.restart_at)
    if replicated.checked != APPEND_OK:
        unlock(index, slot)
        return replicated.checked
    while result == 0:
        result = gather_replicated(index, slot, data, sound, &at, wall_ms, &replicated)
        if result == 0 and replicated.gap >= 0:
            result = put_gap_limit(slot, replicated.gap, False)
        if result == 0 and replicated.count:
            result = write_and_commit(index, slot, replicated.ready, replicated.count, False)
        if result == 0 and replicated.roll:
            result = roll_now(index, slot, wall_ms)
        if at >= sound:
            break
    if result == 0:
        follow_leader(slot, leader_high_watermark, leader_log_start_offset)
    note_failure(slot, result)
    set_outcome(slot, result, outcome)
    fault(FOLLOW_BEFORE_UNLOCK)
    unlock(index, slot)
    wake_after(index, slot, True, True)
    if result != 0:
        return APPEND_IO_ERROR
    return APPEND_CORRUPT if bad and replicated.checked == APPEND_OK else replicated.checked


cdef AppendResult check_begin(Slot* slot, const uint8_t* data, int64_t size, int64_t* restart_at) noexcept nogil:
    """Whether the first batch may follow the log. If DeleteRecords moved the leader's log start into a batch, a follower that
    begins there gets the whole batch."""
    cdef BatchInfo info
    cdef int64_t end = current(slot).log_end_offset
    parse_replicated(data, <size_t>size, &info)
    if info.base_offset >= end:
        return APPEND_OK
    if slot.log_start_offset == end and info.base_offset + info.last_offset_delta >= end:
        restart_at[0] = info.base_offset
        return APPEND_BEFORE_LOG
    return APPEND_OUT_OF_RANGE


cdef void follow_leader(Slot* slot, int64_t leader_high_watermark, int64_t leader_log_start_offset) noexcept nogil:
    """Take over the leader's high watermark and log start offset, as far as the log has them. Records above the high watermark
    are not removed."""
    cdef int64_t high_watermark
    set_high_watermark(slot, min(leader_high_watermark, current(slot).log_end_offset))
    high_watermark = current(slot).high_watermark
    if slot.log_start_offset < leader_log_start_offset <= high_watermark:
        store_release_i64(&slot.log_start_offset, leader_log_start_offset)
        fault(FOLLOW_LOG_START_STORED)
        settle_last_stable(slot, high_watermark)
        new_generation(slot)


cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil:
    """Cut the log of a follower so that it ends at `offset`, or where the batch that contains it begins, but not below the log
    start offset.

    The intent is stored before the first file is changed, so that after a death the next process that takes the lock finishes
    the truncation. Before anything is appended, the recovery point must be written to its checkpoint
    (`odradek.shm.truncation`).
    """
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef int result = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    if checked == APPEND_OK and (offset > current(slot).log_end_offset or offset < 0):
        checked = APPEND_OUT_OF_RANGE
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    offset = max(offset, slot.log_start_offset)
    if offset >= current(slot).log_end_offset:
        # An epoch that begins at the log end belongs to a leader that left no batch.
        if slot.epoch_count and slot.epochs[(slot.epoch_count - 1) % EPOCHS_KEPT].start_offset >= offset:
            result = cut_epochs(slot, offset)
            note_failure(slot, result)
        unlock(index, slot)
        return APPEND_OK if result == 0 else APPEND_IO_ERROR
    result = begin_truncation(slot, offset, wall_ms)
    if result == 0:
        result = finish_intent(index, slot)
    note_failure(slot, result)
    unlock(index, slot)
    wake_everyone(index, slot)
    return APPEND_OK if result == 0 else APPEND_IO_ERROR


cdef int begin_truncation(Slot* slot, int64_t offset, int64_t wall_ms) noexcept nogil:
    """Store the intent of a truncation to `offset`, which is not below the log start offset. Returns 0, or -errno."""
    cdef Commit* commit = current(slot)
    cdef int64_t base = segment_holding(slot, offset, 0x7FFFFFFFFFFFFFFF), position = 0, first_cut = offset
    cdef int result = 0
    if base < -1:
        return <int>(base + 1)
    if base < 0:
        base = offset                   # before every segment: remove all of them; the log begins at `offset`
    elif base < offset:
        result = locate_for_cut(slot, commit, base, offset, &position, &first_cut)
    if result != 0:
        return result
    if first_cut < slot.log_start_offset:
        # The cut and the log start are in the same batch: nothing remains, and the log start does not move back to its base.
        store_restart(slot, slot.log_start_offset, wall_ms)
        return 0
    slot.intent_arguments[0] = first_cut
    slot.intent_arguments[1] = base
    slot.intent_arguments[2] = position
    slot.intent_arguments[3] = wall_ms
    store_release_64(&slot.intent, INTENT_TRUNCATE)
    fault(TRUNCATE_INTENT_STORED)
    return 0


cdef inline void store_restart(Slot* slot, int64_t offset, int64_t wall_ms) noexcept nogil:
    slot.intent_arguments[0] = offset
    slot.intent_arguments[1] = wall_ms
    store_release_64(&slot.intent, INTENT_RESTART)
    fault(RESTART_INTENT_STORED)


cdef int finish_intent(uint32_t index, Slot* slot) noexcept nogil:
    """Carry out the stored intent. Returns 0, or -errno: then it is only partly done."""
    cdef int result = finish_truncation(index, slot) if slot.intent == INTENT_TRUNCATE else finish_restart(index, slot)
    if result != 0:
        give_up(slot, result)
    return result


cdef AppendResult restart_log(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil:
    """Drop the whole log of a follower; it is empty then, and begins and ends at `offset`. As in a truncation, the intent is
    stored first, and nothing is appended before the recovery point is written to its checkpoint."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef int result = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, ROLE_FOLLOWER)
    if checked == APPEND_OK and offset < 0:
        checked = APPEND_OUT_OF_RANGE
    if checked != APPEND_OK:
        unlock(index, slot)
        return checked
    store_restart(slot, offset, wall_ms)
    result = finish_intent(index, slot)
    note_failure(slot, result)
    unlock(index, slot)
    wake_everyone(index, slot)
    return APPEND_OK if result == 0 else APPEND_IO_ERROR


# -- where the next fetch begins --------------------------------------------------------------------------------------

cdef bint follower_position(Slot* slot, FollowerPosition* out) noexcept nogil:
    """No lock is taken. An epoch that begins at the log end has no batch yet: it does not count as the log's last one.

    The flushed offset is read before the log end offset and after it, because a truncation lowers both.
    """
    cdef EpochRing ring
    cdef int64_t flushed_offset
    cdef int _attempt, i
    for _attempt in range(POSITION_TRIES):
        flushed_offset = load_acquire_i64(&slot.flushed_offset)
        out.incarnation = load_acquire_32(&slot.incarnation)
        out.leader_epoch = slot.leader_epoch
        out.leader_id = slot.leader_id
        out.role = slot.role
        out.state = state_now(slot)
        if not copy_epochs(slot, &ring):
            continue
        out.log_end_offset = ring.log_end_offset
        out.log_start_offset = ring.log_start_offset
        out.high_watermark = ring.high_watermark
        out.last_epoch = -1
        for i in range(ring.count):
            if ring.entries[i].start_offset < ring.log_end_offset and ring.log_start_offset < ring.log_end_offset:
                out.last_epoch = ring.entries[i].epoch
        fence_acquire()
        flushed_offset = min(flushed_offset, slot.flushed_offset)
        out.on_device = out.log_end_offset - flushed_offset < slot.settings.flush_messages
        if slot.incarnation == out.incarnation and slot.leader_epoch == out.leader_epoch and slot.leader_id == out.leader_id \
                and slot.role == out.role:
            return True
    return False
