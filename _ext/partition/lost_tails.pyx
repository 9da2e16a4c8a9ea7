"""Logs that lost records at their end; see lost_tails.pxd.

The fact is in the slot: loading sets it before the broker registers, and it ends when the log is complete again, with the next role or
with the responses of a leader.
"""

from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport take_slot
from odradek._ext.partition.slots cimport checked_slot
from odradek._ext.shm.atomics cimport store_relaxed_8, store_relaxed_i64
from odradek._ext.shm.locks cimport LOCK_BUSY, SPINS_OF_THREAD, unlock
from odradek._ext.shm.slot cimport (
    ROLE_FOLLOWER,
    TAIL_COMPLETE,
    TAIL_LOST,
    TAIL_LOST_LED,
    Commit,
    Slot,
    read_commit,
    slot_at,
)

from odradek._ext.shm.slot import LostTail


class LostRecords(NamedTuple):
    """What a log lost when it was loaded.

    `lost_bytes`: that recovery cut off, 0 if it is not known how many; `log_end_offset`: after the recovery."""

    state: LostTail
    lost_bytes: int
    log_end_offset: int


def lost_tail(uint32_t index) -> LostRecords:
    """The LostRecords of a slot. Without the lock: the coordinator calls this, which changes roles. Raises IndexError."""
    cdef Slot* slot = checked_slot(index)
    return LostRecords(LostTail(slot.lost_tail), slot.lost_tail_bytes, slot.lost_tail_end)


cdef void note_lost_tail(Slot* slot, int64_t lost_bytes, int64_t log_end_offset) noexcept nogil:
    store_relaxed_i64(&slot.lost_tail_bytes, lost_bytes)
    store_relaxed_i64(&slot.lost_tail_end, log_end_offset)
    store_relaxed_8(&slot.lost_tail, TAIL_LOST)


cdef void lead_without_tail(Slot* slot, int32_t replica_count) noexcept nogil:
    if slot.lost_tail == TAIL_LOST:     # no other replica can have the records of a partition with one replica
        store_relaxed_8(&slot.lost_tail, TAIL_LOST_LED if replica_count > 1 else TAIL_COMPLETE)


cdef void note_caught_up(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t high_watermark) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    if take_slot(index, slot, SPINS_OF_THREAD) == LOCK_BUSY:
        return
    if slot.incarnation == incarnation and slot.role == ROLE_FOLLOWER and slot.leader_epoch == leader_epoch:
        read_commit(slot, &commit)
        if commit.high_watermark <= high_watermark <= commit.log_end_offset:
            store_relaxed_8(&slot.lost_tail, TAIL_COMPLETE)
    unlock(index, slot)
