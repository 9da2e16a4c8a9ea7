"""What upkeep asks of slots: snapshots, expired producers, runs of dead owners, checkpoints, what compaction goes by.

Called by the cleaner, the coordinator and the ordered stop, never from a worker's loop; what changes a slot waits for its lock.
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
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, topic_of
from odradek._ext.partition.swapping cimport SWAP_UNDER_WAY
from odradek._ext.shm.arena cimport UnnamedRun, gather_unnamed, give_unnamed
from odradek._ext.shm.atomics cimport load_acquire_32, store_release_64
from odradek._ext.shm.faults cimport GAP_LIMIT_DURABLE, GAP_LIMIT_NAMED, GAP_LIMIT_PREPARED, fault
from odradek._ext.shm.layout cimport (
    FORGOTTEN_EARLY,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    Slot,
    read_commit,
    region,
    slot_at,
)
from odradek._ext.shm.locks cimport unlock
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.gap_limit_file cimport drop_prepared_gap_limit, prepare_gap_limit, sync_gap_limit
from odradek._ext.storage.log_dirs cimport note_device


cdef enum:
    LOOKED_AT = 1024              # producers under one hold of a slot's lock
    RECLAIMED_AT_ONCE = 4096

being_raised = set()                  # slots whose gap limit a thread of this process is raising


# -- after a death ----------------------------------------------------------------------------------------------------

def recover_dead():
    """Recover every slot whose lock a dead process held [R 6.4]."""
    with nogil:
        recover_dead_owners()


# -- producers --------------------------------------------------------------------------------------------------------


def snapshot(uint32_t index):
    """Write the producer snapshot at the log end if producers changed since the last one; whether one was written.

    It is put in place by `snapshot_publishing.publish`.
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
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition} producer snapshot")
    return changed


def expire(uint32_t index, int64_t before_ms, bint early=False):
    """Forget producers without open transaction of which the broker has not heard since `before_ms`; how many.

    The lock is held for some of them at a time.

    :param before_ms: of CLOCK_MONOTONIC. :param early: they have not expired yet, and are counted as FORGOTTEN_EARLY.
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
                if slot.state == SLOT_ONLINE:       # else nobody has repaired what a dead holder left
                    forgotten += expire_producers(slot, before_ms, &at, LOOKED_AT)
                    if at == before:
                        shrink_producers(index, slot)
                unlock(index, slot)
        if early:
            count_event(FORGOTTEN_EARLY, forgotten)
    if not taken:
        raise busy(index)
    return forgotten


cdef long long reclaim_one(UnnamedRun* found) noexcept nogil:
    """Units given back. Who holds the slot's lock may be about to name the run; if it is not to be had the next pass comes again."""
    cdef long long given = 0
    if found.slot < region().header.max_slots and wait_slot(found.slot, slot_at(found.slot), LOCK_PATIENCE_MS) == 0:
        given = give_unnamed(found.unit, found.word)
        unlock(found.slot, slot_at(found.slot))
    return given


def reclaim_arena():
    """Give back runs of the arena that no slot names any more (of a death between two stores, of deleted partitions); units given
    back."""
    cdef UnnamedRun* found = <UnnamedRun*>malloc(RECLAIMED_AT_ONCE * sizeof(UnnamedRun))
    cdef long long given = 0
    cdef int count, i
    if found == NULL:
        raise MemoryError("no memory to look for lost runs of producers")
    with nogil:
        count = gather_unnamed(found, RECLAIMED_AT_ONCE)
        for i in range(count):
            given += reclaim_one(&found[i])
        free(found)
        if given:
            store_release_64(&region().header.owners_stale, 1)
    return given


def arena_units_used():
    """Units of the arena that are taken, of ARENA_UNIT_BYTES each."""
    return region().header.arena_used


# -- checkpoints ------------------------------------------------------------------------------------------------------

def checkpoint_offsets():
    """(slot, (topic, partition, log directory, recovery point, log start offset, high watermark)) of each log that there is;
    -1 for each offset of one that says nothing of itself: it is not loaded, or failed.

    The recovery point is what is on the device. It stays in the segment that was active when all files were synced last:
    the indexes of the segments behind are only as good as the rebuilding that a recovery from there does.
    """
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t point, synced_base
    cdef uint32_t state
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        state = load_acquire_32(&slot.state)    # once: it may fail meanwhile
        if state == SLOT_LOADING or state == SLOT_OFFLINE:
            yield i, (topic_of(slot), slot.partition, slot.log_dir, -1, -1, -1)
        elif state == SLOT_ONLINE:
            synced_base = slot.synced_base      # before the rest: it only grows but for truncations, which wait for the device
            point = slot.flushed_offset
            read_commit(slot, &commit)
            if 0 <= synced_base < commit.segment_base:
                point = max(min(point, synced_base), slot.log_start_offset)
            yield i, (topic_of(slot), slot.partition, slot.log_dir, point, slot.log_start_offset, commit.high_watermark)


def set_recovery_point(uint32_t index, int64_t offset):
    slot_at(index).recovery_point = offset


# -- compaction -------------------------------------------------------------------------------------------------------

def compaction_facts(uint32_t index):
    """What compaction goes by, as a dict of one moment; None if the slot holds no open log."""
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef uint64_t generation = slot.generation      # before the rest: what is listed by it is no older
    if slot.state != SLOT_ONLINE:
        return None
    read_commit(slot, &commit)
    return {
        "topic": topic_of(slot),
        "partition": slot.partition,
        "log_dir": slot.log_dir,
        "incarnation": slot.incarnation,
        "generation": generation,
        "log_start_offset": slot.log_start_offset,
        "last_stable_offset": min(slot.last_stable_offset, commit.high_watermark),
        "log_end_offset": commit.log_end_offset,
        "segment_base": commit.segment_base,
        "size": commit.size,
        "first_timestamp": commit.first_timestamp,
        "created_ms": commit.created_ms,
        "truncations": slot.truncations,
        "gap_limit": slot.gap_limit,
        "synced_base": slot.synced_base,
        "min_compaction_lag_ms": slot.settings.min_compaction_lag_ms,
        "max_compaction_lag_ms": slot.settings.max_compaction_lag_ms,
        "min_cleanable_dirty_millionths": slot.settings.min_cleanable_dirty_millionths,
        "compact": bool(slot.settings.compact),
        "delete": bool(slot.settings.delete_),
    }


def raise_gap_limit(uint32_t index, int64_t limit, *, uint32_t incarnation, uint64_t truncations, turn=None):
    """Let offsets be missing below `limit`, which compaction is about to make true; the device has the limit when this returns.

    A limit that is as high already stays: a follower may have raised it further. The slot's lock is held for a look and for a
    renaming, not while the device works.

    :param turn: a lock of threads that share a lane. It is held while the slot's lock is.
    :raises SlotChanged: the slot holds another log, or the log was truncated: what was durable below `limit` may not be.
        Also if the log is not synced up to `limit`, if the partition's directory does not exist any more, or if another thread of
        this process is raising the limit.
    :raises OSError: the log's gap limit could not be written.
    """
    cdef Slot* slot = checked_slot(index)
    cdef int log_dir = slot.log_dir
    if index in being_raised:
        raise SlotChanged(f"slot {index}: another thread is raising the gap limit")
    being_raised.add(index)             # two threads would write the same temporary file
    try:
        result = raise_limit(index, slot, limit, incarnation, truncations, nullcontext() if turn is None else turn)
    finally:
        being_raised.discard(index)
    if result == -ENOENT:
        raise SlotChanged(f"slot {index}: {topic_of(slot)}-{slot.partition} has no directory any more")
    note_device(log_dir, result)
    if result != 0:
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition} gap limit")
    fault(GAP_LIMIT_DURABLE)


cdef int raise_limit(uint32_t index, Slot* slot, int64_t limit, uint32_t incarnation, uint64_t truncations, turn) except? -1:
    """The steps of `raise_gap_limit`; 0, or -errno."""
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
                drop_prepared_gap_limit(directory)      # nothing is left of it if it got its name
            fault(GAP_LIMIT_NAMED)
        if result == 0:
            with nogil:
                result = sync_gap_limit(directory)      # also if another process named it: it may have died before it synced that
        return result
    finally:
        if directory >= 0:
            close(directory)


cdef int look_at_limit(uint32_t index, Slot* slot, int64_t limit, uint32_t incarnation, uint64_t truncations, turn,
                       int* directory) except? -1:
    """Decide under the slot's lock: 0 if its limit is as high as `limit`, or -errno.

    The first look opens the directory of the log that the slot holds; it returns 1 if a file is to be prepared. The second look
    finds the directory open, and gives the prepared file its name if the limit is still lower.
    """
    cdef int result = 0
    cdef bint stale = False, taken
    with turn, nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            # A truncation counts itself before it lowers what is synced: the caller may have read the numbers in between.
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
        raise SlotChanged(f"slot {index} is not incarnation {incarnation} with {truncations} truncations, synced up to {limit}")
    return result


def of_unknown_gap_limit():
    """Slots of logs that an older version or Kafka compacted, so that nothing says where offsets may be missing."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used)
            if slot_at(<uint32_t>i).state == SLOT_ONLINE and slot_at(<uint32_t>i).gap_limit == INT64_MAX]


def swap_under_way(uint32_t index):
    """Whether files of the log change their names at this moment [R 4]: what is opened may not belong together."""
    return (slot_at(index).generation & SWAP_UNDER_WAY) != 0


def settle_swap(uint32_t index):
    """Wait for the end of a swap; finish it, if its author died. :raises SlotBusy: it does not end."""
    cdef Slot* slot = checked_slot(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            unlock(index, slot)
    if not taken:
        raise busy(index)
