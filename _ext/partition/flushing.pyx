"""Flush: sync a log to the device up to its log end offset, then advance the offsets that depend on it; see flushing.pxd.

Any process may flush, one at a time per slot: a worker whose producers wait and the coordinator (with their `Flusher` threads),
the cleaner by age, a loader, the ordered stop. No slot lock is held while the device works; appends that come meanwhile are
covered by the next sync. The rules are [R 4.5] and [R 6].
"""

import threading
from collections import deque
from contextlib import nullcontext

from libc.errno cimport EIO, ENOENT, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport open_at, open_directory, open_in_slot
from odradek._ext.partition.gap_limit cimport gap_limit_path
from odradek._ext.partition.high_watermark cimport follow_device
from odradek._ext.partition.leader_epochs cimport epoch_path
from odradek._ext.partition.rolling cimport end_segment
from odradek._ext.partition.segment_files cimport next_segment, segment_holding
from odradek._ext.partition.slot_access cimport note_failure, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, name_of, topic_of
from odradek._ext.shm.atomics cimport (
    compare_swap_64,
    count_64,
    fetch_add_64,
    shared_u64,
    store_relaxed_i64,
    store_release_32,
    store_release_i64,
)
from odradek._ext.shm.c_library cimport syncfs
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport LANE_FLUSH, set_lane, unlock
from odradek._ext.shm.slot cimport SLOT_OFFLINE, SLOT_ONLINE, Commit, Slot, read_commit, slot_at, state_now
from odradek._ext.shm.waking cimport wake_everyone, wake_flushed
from odradek._ext.storage.file_calls cimport file_data_sync, file_error, file_sync
from odradek._ext.storage.log_dirs cimport log_dir_failed, note_device
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.storage.log_dirs import SYNCFS_REPORTS_ERRORS


cdef enum:
    SYNC_THREADS = 4                  # of `flush_many`, in addition to one for each file system that is synced as a whole
    SYNC_ALL_FROM = 64                # if a directory has this many unsynced logs, its whole file system is synced

BEAT_S = 0.5

cdef shared_u64 serial                # number of this process's last flush: no two flusher words are equal, even if a truncation clears one


cdef struct Flush:                    # one flush of one slot
    uint32_t index
    uint32_t incarnation
    uint64_t word
    int64_t begin                     # files may be unsynced from this offset on
    bint whole                        # sync all files from `begin` on, and directory entries; otherwise only the active segment's records
    bint synced                       # the device has confirmed everything
    bint device_failed
    bint vanished                     # the file of the active segment does not exist
    int result
    int outcome                       # result of `begin_flush`, then of `end_flush`; for `flush_file_system`
    Commit commit


cdef int begin_flush(uint32_t index, bint whole, Flush* flush) noexcept nogil:
    """Take the slot's flusher word. Returns 1, 0 if there is nothing to do or another process has the word, or -errno."""
    cdef Slot* slot = slot_at(index)
    memset(flush, 0, sizeof(Flush))
    flush.index = index
    flush.incarnation = slot.incarnation
    if slot.state != SLOT_ONLINE:
        wake_flushed(index, slot, False)
        return 0
    if region().header.log_dir_offline[slot.log_dir]:       # its device is not used again [R 4]
        wake_flushed(index, slot, False)
        return -EIO
    flush.word = (fetch_add_64(&serial, 1) << 8) | <uint64_t>(region().self + 2)
    if not compare_swap_64(&slot.flusher, 0, flush.word):
        return 0
    fault(FLUSH_BEGUN)
    read_commit(slot, &flush.commit)    # read after the word was taken: a later truncation clears the word
    flush.begin = slot.flushed_offset
    flush.whole = whole or slot.synced_base != flush.commit.segment_base
    if not whole and flush.begin >= flush.commit.log_end_offset:
        compare_swap_64(&slot.flusher, flush.word, 0)
        wake_flushed(index, slot, False)        # processes that found the word taken depend on this wake-up
        return 0
    if flush.whole and slot.synced_base < 0:
        flush.begin = max(flush.begin - 1, <int64_t>0)      # rolling the previous segment wrote the end of its time index
    elif flush.whole and slot.synced_base < flush.begin:
        flush.begin = slot.synced_base
    return 1


cdef void sync_file(Flush* flush, Slot* slot, int64_t base, int kind) noexcept nogil:
    cdef int fd = open_in_slot(slot, base, kind, O_RDONLY)
    if fd == -ENOENT:
        flush.vanished |= kind == FILE_LOG and base == flush.commit.segment_base
        return
    if fd < 0:
        flush.result = fd
        return
    if file_data_sync(fd) != 0:
        flush.result = -errno
        flush.device_failed = True
    close(fd)


cdef void sync_small_file(Flush* flush, Slot* slot, const char* path) noexcept nogil:
    """Sync a file of the partition's directory that may not exist."""
    cdef int fd = open_at(slot, path, O_RDONLY)
    if fd < 0:
        flush.result = 0 if fd == -ENOENT else fd
        return
    if file_data_sync(fd) != 0:
        flush.result = -errno
        flush.device_failed = True
    close(fd)


cdef void sync_names(Flush* flush, Slot* slot) noexcept nogil:
    """Sync the directory entries of new segments and of the partition, and the files of the leader epochs and of the gap limit,
    which were not synced when they were written."""
    cdef char[512] path
    cdef int fd = open_directory(slot)
    if fd < 0:
        if fd != -ENOENT:
            flush.result = fd
        return
    epoch_path(slot, path)
    sync_small_file(flush, slot, path)
    if flush.result == 0 and slot.gap_limit > 0:
        gap_limit_path(slot, path)
        sync_small_file(flush, slot, path)
    if flush.result == 0 and (file_sync(fd) != 0 or file_sync(region().header.log_dir_fds[slot.log_dir]) != 0):
        flush.result = -errno
        flush.device_failed = True
    close(fd)


cdef void sync(Flush* flush) noexcept nogil:
    """Wait for the device. A file or directory that does not exist was deleted or truncated meanwhile and needs no sync.

    The descriptors are newly opened, so that the kernel reports every failure that it has not reported since the last sync.
    """
    sync_files(flush)
    flush.synced = flush.result == 0


cdef void sync_files(Flush* flush) noexcept nogil:
    cdef Slot* slot = slot_at(flush.index)
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int64_t last = flush.commit.segment_base, base
    cdef int i
    if not flush.whole:
        sync_file(flush, slot, last, FILE_LOG)
        if flush.result == 0 and slot.gap_limit > flush.begin:
            sync_names(flush, slot)     # a follower copied a gap: without the limit a recovery would cut the log there
        return
    base = segment_holding(slot, flush.begin, last + 1)
    if base < -1:
        flush.result = 0 if base + 1 == -ENOENT else <int>(base + 1)
        flush.vanished |= base + 1 == -ENOENT
        return
    if base < 0:
        base = next_segment(slot, -1, last + 1)
    flush.vanished |= base < 0
    while 0 <= base and flush.result == 0:
        for i in range(4):
            if flush.result == 0:
                sync_file(flush, slot, base, kinds[i])
        base = next_segment(slot, base, last + 1)
    if flush.result == 0 and base < -1 and base + 1 != -ENOENT:
        flush.result = <int>(base + 1)
    if flush.result == 0:
        sync_names(flush, slot)


cdef int end_flush(Flush* flush) noexcept nogil:
    """Store what is on the device now, or that the log directory failed. Returns 1, 0 if nothing was flushed, or -errno.

    The high watermark moves before `flushed_offset`: if this process dies between the two, the next flush repeats both.
    """
    cdef uint32_t index = flush.index
    cdef Slot* slot = slot_at(index)
    cdef Commit now
    cdef bint advanced = False, moved = False, taken
    fault(FLUSH_SYNCED)
    # Under the lock, so that no truncation comes between reading the word and storing the offsets.
    taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
    if taken and slot.flusher == flush.word and slot.incarnation == flush.incarnation and slot.state == SLOT_ONLINE:
        read_commit(slot, &now)
        if flush.vanished and now.segment_base == flush.commit.segment_base:
            flush.result = -ENOENT      # another process removed the file of the active segment
            store_release_32(&slot.state, SLOT_OFFLINE)
        elif flush.device_failed:
            store_release_32(&slot.state, SLOT_OFFLINE)
        elif flush.synced:
            moved = follow_device(slot, flush.commit.log_end_offset, flush.commit.segment_base, flush.commit.size)
            fault(FLUSH_HIGH_WATERMARK_MOVED)
            if flush.commit.log_end_offset > slot.flushed_offset:
                store_release_i64(&slot.flushed_offset, flush.commit.log_end_offset)
            if flush.whole:
                store_relaxed_i64(&slot.synced_end, flush.commit.log_end_offset)
                store_relaxed_i64(&slot.synced_base, flush.commit.segment_base)
            store_relaxed_i64(&slot.flushed_ms, monotonic_ms())
            count_64(&slot.flushes, 1)
            advanced = True
            fault(FLUSH_ADVANCED)
    if flush.device_failed:
        # It is unknown what a failed sync left unwritten, and another sync would not report it [R 4]: the directory goes out of
        # use.
        log_dir_failed(slot.log_dir)
    else:
        note_device(slot.log_dir, flush.result)
    if taken:
        unlock(index, slot)
    compare_swap_64(&slot.flusher, flush.word, 0)
    if state_now(slot) == SLOT_OFFLINE:
        wake_everyone(index, slot)
    else:
        wake_flushed(index, slot, moved)    # in every case: processes that found the word taken depend on this wake-up
    return flush.result if flush.result != 0 else advanced


cdef int flush_slot(uint32_t index, bint whole) noexcept nogil:
    cdef Flush flush
    cdef int begun = begin_flush(index, whole, &flush)
    if begun != 1:
        return begun
    sync(&flush)
    return end_flush(&flush)


def flush(uint32_t index, bint whole=False, *, turn=None) -> bool:
    """Sync the log to the device up to its end. Returns True if it did, False if there was nothing to do or another thread is
    syncing it.

    :param whole: also sync the indexes, which a recovery could rebuild; otherwise only those of segments that were rolled.
    :param turn: a lock of threads that share a lane. It is held while the slot's mutex is held, not while the device works.
    :raises OSError: a file could not be opened or synced; if it could not be synced, its log directory is offline.
    """
    cdef Flush flush
    cdef int result
    with nogil:
        result = begin_flush(index, whole, &flush)
        if result == 1:
            sync(&flush)
    if result == 1:
        with nullcontext() if turn is None else turn, nogil:
            result = end_flush(&flush)
    if result < 0:
        raise failure(index, result)
    return result == 1


cdef failure(uint32_t index, int result):
    cdef Slot* slot = slot_at(index)
    return file_error(-result, name_of(slot))


# -- many logs -----------------------------------------------------------------------------------------------------

def flush_many(indexes, *, bint whole=False, int all_from=SYNC_ALL_FROM, beat=None) -> list[tuple[int, OSError]]:
    """Sync many logs, several at a time; where many logs of one directory are due, sync its file system as a whole.

    :param whole: see `flush`.
    :param all_from: number of logs of a directory from which its file system is synced as a whole (syncfs(2)).
    :param beat: called twice a second while threads sync, however long the device takes.
    :return: [(slot, OSError)] of the logs that failed.
    """
    cdef int count
    of_dir, jobs, one_by_one, failed, errors, threads = {}, deque(), [], [], [], []
    for index in indexes:
        of_dir.setdefault(slot_at(index).log_dir, []).append(index)
    for log_dir, slots in of_dir.items():
        if len(slots) >= all_from and SYNCFS_REPORTS_ERRORS:
            jobs.append((log_dir, slots))
        else:
            one_by_one.extend((log_dir, [index]) for index in slots)
    count = len(jobs) + min(SYNC_THREADS, len(one_by_one))
    jobs.extend(one_by_one)
    try:
        if count > 1 or (count and beat is not None):
            for number in range(count):
                thread = threading.Thread(target=run_jobs, args=(LANE_FLUSH + number, jobs, whole, failed, errors), name="sync")
                try:
                    thread.start()
                except RuntimeError:    # the system starts no more threads: the started ones, or this one, do all jobs
                    break
                threads.append(thread)
        if not threads:
            run_jobs(-1, jobs, whole, failed, errors)
    finally:
        for thread in threads:
            while thread.is_alive():
                thread.join(BEAT_S)
                if beat is not None:
                    beat()
    if errors:
        raise errors[0]
    return failed


def run_jobs(int lane, jobs, bint whole, list failed, list errors) -> None:
    """Sync the logs in the queue until it is empty, on a thread with this lane; -1: on the caller's thread.

    :param jobs: (log directory, slots) each: one slot, or several whose file system is synced as a whole.
    """
    cdef uint32_t slot
    cdef int result
    if lane >= 0:
        set_lane(lane)
    try:
        while True:
            try:
                log_dir, indexes = jobs.popleft()
            except IndexError:
                return
            if len(indexes) > 1:
                flush_file_system(log_dir, indexes, whole, failed)
            else:
                slot = indexes[0]
                with nogil:
                    result = flush_slot(slot, whole)
                if result < 0:
                    failed.append((slot, failure(slot, result)))
    except Exception as error:          # `flush_many` raises it
        errors.append(error)


cdef int flush_file_system(int log_dir, list indexes, bint whole, list failed) except -1:
    """Sync the file system of a log directory, and with it the logs of these slots including indexes and directory entries."""
    cdef Py_ssize_t count = len(indexes), i
    cdef Flush* flushes = <Flush*>malloc(count * sizeof(Flush))
    cdef int fd = region().header.log_dir_fds[log_dir], begun, error = 0
    cdef bint any_begun = False
    try:
        if flushes == NULL:
            raise MemoryError(f"no memory to sync {count} logs")
        for i in range(count):
            flushes[i].index = indexes[i]
        with nogil:
            for i in range(count):
                begun = begin_flush(flushes[i].index, whole, &flushes[i])
                flushes[i].outcome = begun
                any_begun |= begun == 1
            if any_begun and syncfs(fd) != 0:
                error = errno
            for i in range(count):
                if flushes[i].outcome == 1:
                    flushes[i].whole = True
                    flushes[i].result = -error
                    flushes[i].device_failed = error != 0
                    flushes[i].synced = error == 0
                    flushes[i].outcome = end_flush(&flushes[i])
        for i in range(count):
            if flushes[i].outcome < 0:
                failed.append((flushes[i].index, failure(flushes[i].index, flushes[i].outcome)))
    finally:
        free(flushes)
    return 0


# -- which logs must be flushed ----------------------------------------------------------------------------------------

def flush_due() -> list[int]:
    """Slots with unsynced records that are older than flush.ms, or more than flush.messages of them."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t now = monotonic_ms(), unsynced
    slots = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state != SLOT_ONLINE:
            continue
        read_commit(slot, &commit)
        unsynced = commit.log_end_offset - slot.flushed_offset
        if unsynced > 0 and (now - slot.flushed_ms >= slot.settings.flush_ms or unsynced >= slot.settings.flush_messages):
            slots.append(i)
    return slots


def rolled_since_flush() -> list[int]:
    """Slots whose active segment is newer than what is known to be on the device with its indexes."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    slots = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_ONLINE:
            read_commit(slot, &commit)
            if slot.flushed_offset < commit.segment_base or 0 <= slot.synced_base < commit.segment_base:
                slots.append(i)
    return slots


def to_close() -> list[int]:
    """Slots with something to sync, to index or to snapshot at the ordered stop; logs without new writes are not included."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    slots = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_ONLINE:
            read_commit(slot, &commit)
            if slot.flushed_offset < commit.log_end_offset or slot.synced_end < commit.log_end_offset or slot.producers_changed \
                    or commit.max_timestamp > commit.timeindexed_timestamp:
                slots.append(i)
    return slots


cdef end(uint32_t index):
    """Write the last time index entry, and a snapshot of the producers at the log's end if there ever were any."""
    cdef Slot* slot = slot_at(index)
    cdef int result = 0
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0       # recovers the slot if its last holder died
        if taken:
            if slot.state == SLOT_ONLINE:
                result = end_segment(index, slot)
                note_failure(slot, result)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result != 0:
        raise file_error(-result, f"{name_of(slot)} time index")
    if slot.state != SLOT_ONLINE:
        raise OSError(EIO, "the log is offline", topic_of(slot))
    slot_upkeep.snapshot(index)


def settle_many(indexes, beat=None) -> dict[int, OSError]:
    """Bring logs into the state that a clean start expects: the work of a dead lock holder finished, the last time index entry,
    a snapshot of the producers at the end if there ever were any, all synced. Call this when appends have ended.

    :return: {slot: OSError} of the logs for which this failed.
    """
    cdef Slot* slot
    cdef Commit commit
    failed = {}
    ended = []
    for index in indexes:
        try:
            end(index)
            ended.append(index)
        except OSError as error:
            failed[index] = error
        if beat is not None:
            beat()
    failed.update(flush_many(ended, whole=True, beat=beat))
    for index in ended:
        slot = slot_at(index)
        read_commit(slot, &commit)
        if index not in failed and (slot.synced_end < commit.log_end_offset or slot.state != SLOT_ONLINE):
            failed[index] = OSError(EIO, "the log could not be synced to its end", topic_of(slot))
    return failed
