"""Upkeep of slots: snapshots, expired producers, runs of dead owners, checkpoints, and the data for compaction.

Called by the cleaner, the coordinator and the ordered stop, never from a worker's loop. Functions that change a slot wait for
its lock.
"""

from contextlib import nullcontext

from odradek._ext.partition.slots import SlotChanged

from libc.errno cimport ENOENT
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport open_directory
from odradek._ext.partition.gap_limit cimport is_gap_limit_below, name_gap_limit
from odradek._ext.partition.producer_runs cimport count_event
from odradek._ext.partition.producer_snapshots cimport snapshot_producers
from odradek._ext.partition.producers cimport expire_producers, shrink_producers
from odradek._ext.partition.slot_access cimport note_failure, recover_dead_owners, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, name_of, topic_of
from odradek._ext.partition.swapping cimport SWAP_UNDER_WAY
from odradek._ext.shm.arena cimport UnnamedRun, gather_unnamed, give_unnamed
from odradek._ext.shm.atomics cimport load_acquire_32, store_relaxed_i64, store_release_64
from odradek._ext.shm.faults cimport GAP_LIMIT_DURABLE, GAP_LIMIT_NAMED, GAP_LIMIT_PREPARED, fault
from odradek._ext.shm.layout cimport FORGOTTEN_EARLY, region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport SLOT_LOADING, SLOT_OFFLINE, SLOT_ONLINE, Commit, Slot, read_commit, slot_at
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.gap_limit_file cimport drop_prepared_gap_limit, prepare_gap_limit, sync_gap_limit
from odradek._ext.storage.log_dirs cimport note_device


cdef enum:
    LOOKED_AT = 1024              # producers checked while the slot's lock is held once
    RECLAIMED_AT_ONCE = 4096

being_raised = set()                  # slots whose gap limit a thread of this process is raising at the moment


# -- after a death ----------------------------------------------------------------------------------------------------

def recover_dead() -> None:
    """Recover every slot whose lock a dead process held [R 6.4]."""
    with nogil:
        recover_dead_owners()


# -- producers --------------------------------------------------------------------------------------------------------


def snapshot(uint32_t index) -> bool:
    """Write the producer snapshot at the log end if producers changed since the last one. Returns whether it wrote one.

    `snapshot_publishing.publish` puts it in place.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Commit commit
    cdef int result = 0
    cdef bint taken, changed = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            changed = slot.state == SLOT_ONLINE and slot.producers_changed
            if changed:
                read_commit(slot, &commit)
                result = snapshot_producers(slot, commit.log_end_offset)
                if result == 0:
                    slot.producers_changed = 0
                note_failure(slot, result)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result != 0:
        raise file_error(-result, f"{name_of(slot)} producer snapshot")
    return changed


def expire(uint32_t index, int64_t before_ms, bint early=False) -> int:
    """Forget producers without an open transaction that were last heard before `before_ms`. Returns how many.

    The lock is released after each group of producers.

    :param before_ms: time of CLOCK_MONOTONIC. :param early: they have not expired yet, and are counted as FORGOTTEN_EARLY.
    """
    cdef Slot* slot = checked_slot(index)
    cdef uint32_t at = 0, before = 1
    cdef int forgotten = 0
    cdef bint taken = True
    if slot.producer_run == 0:
        return 0
    with nogil:
        while taken and at != before:
            before = at
            taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
            if taken:
                if slot.state == SLOT_ONLINE:       # otherwise the state that a dead holder left may not be repaired
                    forgotten += expire_producers(slot, before_ms, &at, LOOKED_AT)
                    if at == before:
                        shrink_producers(index, slot)
                unlock(index, slot)
        if early:
            count_event(FORGOTTEN_EARLY, forgotten)
    if not taken:
        raise busy(index)
    return forgotten


cdef long long reclaim_one(UnnamedRun* run) noexcept nogil:
    """Free a run and return its units. The slot's lock is needed because its holder may be about to name the run; without the
    lock the next pass tries again."""
    cdef long long freed = 0
    if run.slot < region().header.max_slots and wait_slot(run.slot, slot_at(run.slot), LOCK_PATIENCE_MS) == 0:
        freed = give_unnamed(run.unit, run.word)
        unlock(run.slot, slot_at(run.slot))
    return freed


def reclaim_arena() -> int:
    """Free runs of the arena that no slot names (after a death between two stores, or of deleted partitions). Returns the
    number of freed units."""
    cdef UnnamedRun* runs = <UnnamedRun*>malloc(RECLAIMED_AT_ONCE * sizeof(UnnamedRun))
    cdef long long freed = 0
    cdef int count, i
    if runs == NULL:
        raise MemoryError("no memory to look for lost runs of producers")
    with nogil:
        count = gather_unnamed(runs, RECLAIMED_AT_ONCE)
        for i in range(count):
            freed += reclaim_one(&runs[i])
        free(runs)
        if freed:
            store_release_64(&region().header.owners_stale, 1)
    return freed


# -- checkpoints ------------------------------------------------------------------------------------------------------

def checkpoint_offsets() -> Iterator[tuple[int, tuple[str, int, int, int, int, int]]]:
    """Yield (slot, (topic, partition, log directory, recovery point, log start offset, high watermark)) for each log; each
    offset is -1 if the log is not loaded, or failed.

    The recovery point is what is on the device. It stays in the segment that was active when all files were last synced,
    because the indexes of later segments may have to be rebuilt by a recovery that begins there.
    """
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t point, synced_base
    cdef uint32_t state
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        state = load_acquire_32(&slot.state)    # read once: it may fail meanwhile
        if state == SLOT_LOADING or state == SLOT_OFFLINE:
            yield i, (topic_of(slot), slot.partition, slot.log_dir, -1, -1, -1)
        elif state == SLOT_ONLINE:
            synced_base = slot.synced_base      # read first: it only grows, except for truncations, which wait for the device
            point = slot.flushed_offset
            read_commit(slot, &commit)
            if 0 <= synced_base < commit.segment_base:
                point = max(min(point, synced_base), slot.log_start_offset)
            yield i, (topic_of(slot), slot.partition, slot.log_dir, point, slot.log_start_offset, commit.high_watermark)


def announce_recovery_point(uint32_t index, int64_t offset) -> tuple[int, int]:
    """Raise the slot's recovery point before it is written to its checkpoint: (recovery point to write, incarnation).

    If the log was truncated since `offset` was read, a lower one is returned. If it is truncated from now on, the slot accepts no
    append before its recovery point is written again: the file may already contain the one announced here [R 4.10].

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    cdef Slot* slot = checked_slot(index)
    cdef uint32_t incarnation = 0
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            incarnation = slot.incarnation
            offset = min(offset, slot.flushed_offset)
            if slot.recovery_point < offset:
                store_relaxed_i64(&slot.recovery_point, offset)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return offset, incarnation


def set_recovery_point(uint32_t index, int64_t offset, incarnation) -> None:
    """Store the recovery point that the checkpoint contains now. The caller holds the lock for writing checkpoints of the log
    directory. A slot that has another partition by now is not changed.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    cdef Slot* slot = checked_slot(index)
    cdef uint32_t expected = incarnation
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if slot.incarnation == expected:
                store_relaxed_i64(&slot.recovery_point, offset)
            unlock(index, slot)
    if not taken:
        raise busy(index)


# -- compaction -------------------------------------------------------------------------------------------------------

def raise_gap_limit(uint32_t index, int64_t limit, *, uint32_t incarnation, uint64_t truncations, turn=None) -> None:
    """Allow offsets to be missing below `limit`, before compaction makes gaps there. The device has the limit when this
    returns.

    A limit that is at least as high stays unchanged: a follower may have raised it further. The slot's lock is held for a check
    and for a renaming, not while the device works.

    :param turn: a lock of threads that share a lane. It is held while the slot's lock is held.
    :raises SlotChanged: the slot has another log, or the log was truncated: records below `limit` that were durable may not be
    so any more. Also if the log is not synced up to `limit`, if the partition's directory does not exist any more, or if
    another thread of this process is raising the limit.
    :raises OSError: the log's gap limit could not be written.
    """
    cdef Slot* slot = checked_slot(index)
    cdef int log_dir = slot.log_dir
    if index in being_raised:
        raise SlotChanged("another thread is raising its gap limit")
    being_raised.add(index)             # two threads would write the same temporary file
    try:
        result = raise_limit(index, slot, limit, incarnation, truncations, nullcontext() if turn is None else turn)
    finally:
        being_raised.discard(index)
    if result == -ENOENT:
        raise SlotChanged("it has no directory any more")
    note_device(log_dir, result)
    if result != 0:
        raise file_error(-result, f"{name_of(slot)} gap limit")
    fault(GAP_LIMIT_DURABLE)


cdef int raise_limit(uint32_t index, Slot* slot, int64_t limit, uint32_t incarnation, uint64_t truncations, turn) except? -1:
    """The steps of `raise_gap_limit`. Returns 0, or -errno."""
    cdef int directory = -1, result
    try:
        result = look_at_limit(index, slot, limit, incarnation, truncations, turn, &directory)
        if result == 1:
            with nogil:
                result = prepare_gap_limit(directory, limit)
            if result != 0:
                return result
            fault(GAP_LIMIT_PREPARED)
            try:
                result = look_at_limit(index, slot, limit, incarnation, truncations, turn, &directory)
            finally:
                drop_prepared_gap_limit(directory)      # the file no longer exists if it was renamed to its final name
            fault(GAP_LIMIT_NAMED)
        if result == 0:
            with nogil:
                result = sync_gap_limit(directory)      # also after another process's renaming: it may have died before the sync
        return result
    finally:
        if directory >= 0:
            close(directory)


cdef int look_at_limit(uint32_t index, Slot* slot, int64_t limit, uint32_t incarnation, uint64_t truncations, turn,
                       int* directory) except? -1:
    """Compare the limits under the slot's lock. Returns 0 if the slot's limit is as high as `limit`, or -errno.

    The first call opens the directory of the slot's log and returns 1 if a file must be prepared. The second call finds the
    directory open, and renames the prepared file to its final name if the slot's limit is still lower.
    """
    cdef int result = 0
    cdef bint stale = False, taken
    with turn, nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            # A truncation increments its count before it lowers `synced_end`: the caller may have read the two numbers in between.
            stale = slot.incarnation != incarnation or slot.state != SLOT_ONLINE or slot.truncations != truncations \
                or limit > slot.synced_end
            if not stale and directory[0] < 0:
                directory[0] = open_directory(slot)
                result = min(directory[0], 0)
                if result == 0 and is_gap_limit_below(slot, limit):
                    result = 1
            elif not stale and is_gap_limit_below(slot, limit):
                result = name_gap_limit(slot, directory[0], limit)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if stale:
        raise SlotChanged(f"it was deleted or truncated, or it is not synced up to offset {limit}")
    return result


def of_unknown_gap_limit() -> list[int]:
    """Slots of logs that an older version or Kafka compacted, so that it is unknown where offsets may be missing."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used)
            if slot_at(<uint32_t>i).state == SLOT_ONLINE and slot_at(<uint32_t>i).gap_limit == INT64_MAX]


def swap_under_way(uint32_t index) -> bool:
    """Whether files of the log are being renamed at this moment [R 4]: files opened now may not belong together."""
    return (slot_at(index).generation & SWAP_UNDER_WAY) != 0


def settle(uint32_t index) -> None:
    """Take and release the slot's lock: if a process died in a change of the slot, this process completes it.

    :raises SlotBusy: another thread holds the lock for long.
    """
    settle_swap(index)


def settle_swap(uint32_t index) -> None:
    """Wait for the end of a swap; finish it if its author died. :raises SlotBusy: it does not end."""
    cdef Slot* slot = checked_slot(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            unlock(index, slot)
    if not taken:
        raise busy(index)
