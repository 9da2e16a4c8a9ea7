"""The high watermark; see high_watermark.pxd. Runs with the slot's mutex held and needs no GIL."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.commits cimport commit_to_log_end, current, publish, within_flush_messages
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.segment_files cimport locate
from odradek._ext.partition.slot_access cimport APPEND_BUSY, APPEND_OK, APPEND_OUT_OF_RANGE, AppendResult, check_slot, take_slot
from odradek._ext.shm.faults cimport HIGH_WATERMARK_PUBLISHED, fault
from odradek._ext.shm.layout cimport ROLE_LEADER, Commit, Slot, slot_at
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.waking cimport wake_after


cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil:
    """The position is stored as well if finding it is cheap."""
    cdef Commit commit = current(slot)[0]
    if offset <= commit.high_watermark:
        return
    if offset == commit.log_end_offset:
        commit_to_log_end(&commit)
    else:
        commit.high_watermark = offset
        commit.high_watermark_base = commit.high_watermark_position = -1
        if offset >= commit.segment_base and locate(slot, commit.segment_base, commit.index_entries, commit.size, offset,
                                                    &commit.high_watermark_position) == 0:
            commit.high_watermark_base = commit.segment_base
    publish(slot, &commit)
    fault(HIGH_WATERMARK_PUBLISHED)
    settle_last_stable(slot, offset)


cdef bint follow_device(Slot* slot, int64_t flushed_offset, int64_t segment_base, int64_t position) noexcept nogil:
    cdef Commit commit = current(slot)[0]
    if slot.role != ROLE_LEADER or slot.in_sync_count > 1:
        return False
    if within_flush_messages(slot, &commit, flushed_offset):
        flushed_offset = commit.log_end_offset
    if flushed_offset <= commit.high_watermark:
        return False
    if flushed_offset == commit.log_end_offset or segment_base != commit.segment_base:
        set_high_watermark(slot, flushed_offset)
    else:
        commit.high_watermark = flushed_offset
        commit.high_watermark_base = segment_base
        commit.high_watermark_position = position
        publish(slot, &commit)
        fault(HIGH_WATERMARK_PUBLISHED)
        settle_last_stable(slot, flushed_offset)
    return True


cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil:
    """Raise the high watermark to `offset` (at most the log end offset); lower values change nothing."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, slot.role)
    if checked == APPEND_OK:
        if offset > current(slot).log_end_offset:
            checked = APPEND_OUT_OF_RANGE
        else:
            set_high_watermark(slot, offset)
    unlock(index, slot)
    if checked == APPEND_OK:
        wake_after(index, slot, False, True)
    return checked
