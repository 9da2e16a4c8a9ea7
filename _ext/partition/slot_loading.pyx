"""Filling a slot from its loaded log: commit, epochs, producers, role, state [R 3.5].

Called by the loaders at a start, and by the coordinator for a log that it opens later; never from a worker's loop. The slot's
lock is taken and released here.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint32_t
from libc.string cimport memset

from odradek._ext.partition.commits cimport commit_to_log_end, publish, within_flush_messages
from odradek._ext.partition.leader_epochs cimport assign_epoch, note_epoch
from odradek._ext.partition.log_writing cimport clear_recent
from odradek._ext.partition.lost_tails cimport note_lost_tail
from odradek._ext.partition.producer_loading cimport RestorePlan, choose_producers, free_plan, make_restore_room, restore_plan
from odradek._ext.partition.producer_runs cimport count_event
from odradek._ext.partition.producer_snapshots cimport snapshot_producers
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.removed_files cimport note_removed_files
from odradek._ext.partition.slot_access cimport note_failure, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, name_of
from odradek._ext.shm.atomics cimport (
    store_relaxed_8,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_32,
    store_release_64,
    store_release_i32,
    store_release_i64,
)
from odradek._ext.shm.clock cimport monotonic_ms, now_ms
from odradek._ext.shm.layout cimport DROPPED_AT_START, region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport (
    EPOCH_KEPT,
    EPOCH_UNSTORED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    Slot,
    slot_at,
)
from odradek._ext.shm.waking cimport wake_everyone
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.log_dirs cimport is_full, note_device
from odradek._ext.storage.log_state cimport EpochEntry, LogState
from odradek._ext.storage.segments cimport LoadedLog


cdef enum:                        # results in addition to -errno
    NO_ROOM = 1
    RETRY = 2


cdef void begin_epoch(Slot* slot, LogState* state, bint lost) noexcept nogil:
    """Begin a new leader epoch if the log lost records, or contains a newer leader epoch than the metadata store [R 3]."""
    cdef EpochEntry* epochs = <EpochEntry*>state.epochs.items
    cdef int32_t newest = epochs[state.epochs.count - 1].epoch if state.epochs.count else -1
    if (lost and slot.begun_epoch == EPOCH_KEPT) or newest > slot.leader_epoch:
        store_relaxed_i32(&slot.leader_epoch, max(slot.leader_epoch, newest) + 1)
        store_relaxed_8(&slot.begun_epoch, EPOCH_UNSTORED)


cdef void commit_loaded(Slot* slot, LogState* state, bint flushed, int64_t high_watermark) noexcept nogil:
    """Publish where a loaded log begins and ends, and how much of it is on the device."""
    cdef Commit commit
    memset(&commit, 0, sizeof(commit))
    commit.segment_base = state.base_offset
    commit.size = state.size
    commit.log_end_offset = state.log_end_offset
    commit.index_entries = <int32_t>state.index_entries
    commit.timeindex_entries = <int32_t>state.timeindex_entries
    commit.txnindex_entries = <int32_t>state.txnindex_entries
    commit.first_timestamp = state.first_timestamp
    commit.max_timestamp = state.max_timestamp
    commit.max_timestamp_offset = state.offset_of_max_timestamp
    commit.indexed_position = state.last_index_position
    commit.timeindexed_timestamp = state.last_timeindex_timestamp
    commit.timeindexed_offset = -1
    commit.created_ms = min(now_ms(), state.created_ms) if state.created_ms >= 0 else now_ms()
    store_release_i64(&slot.flushed_offset, state.log_end_offset if flushed else state.recovery_point)
    commit.high_watermark = state.log_start_offset
    commit.high_watermark_base = -1
    if region().header.clustered:
        commit.high_watermark = max(state.log_start_offset, min(high_watermark, state.log_end_offset))
    elif slot.in_sync_count <= 1 and within_flush_messages(slot, &commit, slot.flushed_offset):
        commit_to_log_end(&commit)
    elif slot.in_sync_count <= 1:
        commit.high_watermark = max(slot.flushed_offset, state.log_start_offset)
    store_relaxed_i64(&slot.newest_abort_offset, state.newest_abort_offset)
    publish(slot, &commit)
    store_release_i64(&slot.log_start_offset, state.log_start_offset)
    store_release_i64(&slot.gap_limit, state.gap_limit)
    store_relaxed_i64(&slot.applied_base, state.base_offset)
    store_relaxed_i64(&slot.applied_position, state.size)
    store_relaxed_i64(&slot.recovery_point, slot.flushed_offset)
    store_relaxed_i64(&slot.flushed_ms, monotonic_ms())
    # Nothing of a new log is synced, not even its directory entry; what a recovery wrote is not synced either.
    store_relaxed_i64(&slot.synced_base, state.base_offset if flushed and state.size > 0 else -1)
    store_relaxed_i64(&slot.synced_end, slot.flushed_offset)
    if state.newest_end_offset >= commit.high_watermark:
        store_relaxed_i64(&slot.unreplicated_last[0], state.newest_end_offset)  # where the transactions began is not known any more
        store_relaxed_i64(&slot.unreplicated_first[0], commit.high_watermark)
    settle_last_stable(slot, commit.high_watermark)


cdef int fill_slot(uint32_t index, Slot* slot, LogState* state, RestorePlan* plan, bint flushed, bint lost,
                   int64_t high_watermark) noexcept nogil:
    """The caller holds the slot's mutex. Returns 0, NO_ROOM for its producers, or -errno."""
    cdef EpochEntry* epochs = <EpochEntry*>state.epochs.items
    cdef int64_t i
    cdef int result = 0
    if not restore_plan(index, slot, plan):
        return NO_ROOM
    # Without a snapshot of exactly these producers the ordered stop writes one.
    slot.producers_changed = not state.snapshot_current and (state.producers.count > 0 or state.snapshots > 0)
    store_relaxed_i64(&slot.pending_snapshot, 0)
    store_relaxed_i32(&slot.epoch_count, 0)
    for i in range(state.epochs.count):
        assign_epoch(slot, epochs[i].epoch, epochs[i].start_offset)
    commit_loaded(slot, state, flushed, high_watermark)
    clear_recent(slot)                  # the ring may describe the log as it was before it had to be loaded again
    store_release_64(&slot.flusher, 0)  # a flush of the former log must not mark this one as flushed
    if region().header.clustered:
        if lost or high_watermark > state.log_end_offset:
            note_lost_tail(slot, state.lost_bytes, state.log_end_offset)
        store_release_32(&slot.role, ROLE_NONE)               # until the controller assigns one
        store_release_i32(&slot.role_epoch, -1)
    elif slot.leader_id == region().header.broker_id:
        begin_epoch(slot, state, lost)
        store_release_i32(&slot.led_since, slot.leader_epoch)
        store_release_32(&slot.role, ROLE_LEADER)
        if flushed and state.epochs.count == 0:
            result = note_epoch(slot, slot.leader_epoch, state.log_end_offset)
    else:
        store_release_32(&slot.role, ROLE_FOLLOWER)
    if result == 0 and state.snapshot_wanted:
        note_device(slot.log_dir, snapshot_producers(slot, state.log_end_offset))    # if this fails, the next recovery reads more
    store_release_64(&slot.generation, slot.generation + 1)
    note_removed_files()                # a recovery may have removed segments that other processes have open
    store_release_32(&slot.state, SLOT_ONLINE if result == 0 else SLOT_LOADING if is_full(result) else SLOT_OFFLINE)
    note_failure(slot, result)
    wake_everyone(index, slot)
    return result


def fill(uint32_t index, LoadedLog loaded, bint flushed, int64_t producers_before_ms=INT64_MIN, bint at_start=False,
         bint lost=False, int64_t high_watermark=0) -> list[tuple[str, int]]:
    """Put a loaded log into its slot and set the slot ONLINE, without a cluster as leader if this broker leads the partition.

    If the arena has no room for its producers, the least recent writers are dropped.

    The leader epoch of a log with records is written to its file by the first append in that epoch, because writing thousands
    of files would delay the start.

    :param flushed: the whole log is known to be on the device (it was closed in order).
    :param producers_before_ms: producers of a snapshot without an open transaction that were last heard before this time (wall
    clock) have expired and are dropped.
    :param at_start: no client is served yet, so partitions with more producers than this one lose some first.
    :param lost: records of the log are lost: a new leader epoch begins, unless one began with this start. In a cluster the slot notes
    the loss, also if the log ends before its high watermark.
    :param high_watermark: the one in the checkpoint; used in a cluster, where the slot gets no role until the controller assigns one.
    :return: [(partition, number of dropped producers)], mostly empty.
    :raises OSError: the leader-epoch checkpoint could not be written, or there is no memory for the producers. The slot is then
    OFFLINE, or LOADING if only disk space was missing.
    """
    cdef Slot* slot = checked_slot(index)
    cdef LogState* state = &loaded.state
    cdef RestorePlan plan
    cdef int64_t dropped = 0, victim = 0
    cdef int result = choose_producers(state, producers_before_ms, &plan)
    cdef bint taken = True
    dropped_from = {}
    count_event(DROPPED_AT_START, state.pruned_producers)
    try:
        while result == 0:
            with nogil:
                taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
                if taken:
                    result = fill_slot(index, slot, state, &plan, flushed, lost, high_watermark)
                    unlock(index, slot)
                if result == NO_ROOM:
                    victim = make_restore_room(&plan, index, at_start, &dropped)
                    result = -ENOMEM if victim < 0 else RETRY
            if result != RETRY:
                break
            result = 0
            if dropped:
                name = name_of(slot_at(<uint32_t>victim))
                dropped_from[name] = dropped_from.get(name, 0) + dropped
    finally:
        free_plan(&plan)
    if not taken:
        raise busy(index)
    if result == -ENOMEM:
        raise OSError(ENOMEM, f"no memory for the {state.producers.count} producers of {name_of(slot)}")
    if result != 0:
        raise file_error(-result, f"{name_of(slot)}/leader-epoch-checkpoint")
    return list(dropped_from.items())
