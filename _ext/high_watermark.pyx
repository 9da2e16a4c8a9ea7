"""The high watermark; see high_watermark.pxd. Runs with the slot's mutex held and needs no GIL."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from broker._ext.commits cimport current, publish
from broker._ext.locks cimport LOCK_BUSY, unlock
from broker._ext.producers cimport settle_last_stable
from broker._ext.segment_files cimport locate
from broker._ext.shared cimport Commit, Slot, slot_at
from broker._ext.taking cimport APPEND_BUSY, APPEND_OK, APPEND_OUT_OF_RANGE, AppendResult, check_slot, take_slot
from broker._ext.waking cimport wake_after


cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil:
    """With its position where that costs little."""
    cdef Commit commit = current(slot)[0]
    if offset <= commit.high_watermark:
        return
    commit.high_watermark = offset
    if offset == commit.log_end_offset:
        commit.high_watermark_base = commit.segment_base
        commit.high_watermark_position = commit.size
    else:
        commit.high_watermark_base = commit.high_watermark_position = -1
        if offset >= commit.segment_base and locate(slot, commit.segment_base, commit.index_entries, commit.size, offset,
                                                    &commit.high_watermark_position) == 0:
            commit.high_watermark_base = commit.segment_base
    publish(slot, &commit)
    settle_last_stable(slot, offset)


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
