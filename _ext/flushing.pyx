"""Flush: everything before the log end offset gets onto the device, and who waits for that is told; see flushing.pxd.

Any process flushes, one a slot at a time: the worker whose producers wait (its `Flusher` threads), the cleaner by age, the
ordered stop. Nobody holds a slot's lock while the device works: the appends that come meanwhile are what the next sync takes
along. The rules are [R 4.5], [R 6].
"""

import logging
import os
import threading

from libc.errno cimport EIO, ENOENT, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from broker._ext.append_files cimport open_at, open_directory, open_in_slot
from broker._ext.atomics cimport compare_swap_64, fetch_add_64, store_release_32, store_release_64
from broker._ext.faults cimport *
from broker._ext.file_calls cimport file_data_sync, file_error, file_sync
from broker._ext.gap_limit cimport gap_limit_path
from broker._ext.leader_epochs cimport epoch_path
from broker._ext.locks cimport set_lane, unlock
from broker._ext.log_dirs cimport log_dir_failed, note_device
from broker._ext.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX, FILE_TXN_INDEX
from broker._ext.rolling cimport end_segment
from broker._ext.segment_files cimport next_segment, segment_holding
from broker._ext.shared cimport SLOT_OFFLINE, SLOT_ONLINE, Commit, Slot, now_ms, read_commit, region, slot_at
from broker._ext.slots cimport busy, topic_of
from broker._ext.taking cimport note_failure, wait_slot
from broker._ext.waking cimport wake_flushed

import broker._ext.slot_upkeep as slot_upkeep

LOG = logging.getLogger("odradek.storage")

cdef extern from "<unistd.h>" nogil:
    int syncfs(int fd)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* request, timespec* remaining)

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)


cdef enum:
    LOCK_PATIENCE_MS = 15000
    AGAIN_AFTER_MS = 1000             # a flush that could not open a file (no descriptors, say): nothing was asked of the device
    SYNC_THREADS = 4                  # of `flush_many`
    SYNC_ALL_FROM = 64                # logs of one directory from which on the whole file system is synced at once

# Since Linux 5.8 syncfs(2) tells of pages that could not be written.
SYNCFS_TELLS = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2]) >= (5, 8)

cdef uint64_t serial = 0              # of this process's flushes: no two words are alike, whatever a truncation does between


cdef struct Flush:                    # one flush of one slot
    uint32_t index
    uint32_t incarnation
    uint64_t word
    int64_t begin                     # offset from which on files may be unsynced
    bint whole                        # all files from there on, and names; else the active segment's records alone
    bint device_failed
    bint vanished                     # the active segment has no file
    int result
    Commit commit


cdef int begin_flush(uint32_t index, bint whole, Flush* flush) noexcept nogil:
    """Take the slot's flusher word: 1; 0 when there is nothing to do or another has it, -errno."""
    cdef Slot* slot = slot_at(index)
    memset(flush, 0, sizeof(Flush))
    flush.index = index
    flush.incarnation = slot.incarnation
    if slot.state != SLOT_ONLINE:
        wake_flushed(index, slot)
        return 0
    if region().header.log_dir_offline[slot.log_dir]:       # never asked again [R 4]
        wake_flushed(index, slot)
        return -EIO
    flush.word = (fetch_add_64(&serial, 1) << 8) | <uint64_t>(region().self + 2)
    if not compare_swap_64(&slot.flusher, 0, flush.word):
        return 0
    fault(FLUSH_BEGUN)
    read_commit(slot, &flush.commit)    # after the word was taken: a truncation from here on takes it away
    flush.begin = slot.flushed_offset
    flush.whole = whole or slot.synced_base != flush.commit.segment_base
    if not whole and flush.begin >= flush.commit.log_end_offset:
        compare_swap_64(&slot.flusher, flush.word, 0)
        wake_flushed(index, slot)       # who saw the word taken relies on it
        return 0
    if flush.whole and slot.synced_base < 0:
        flush.begin = max(flush.begin - 1, <int64_t>0)      # rolling the segment before wrote the end of its time index
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
    """A file of the partition's directory that need not be there."""
    cdef int fd = open_at(slot, path, O_RDONLY)
    if fd < 0:
        flush.result = 0 if fd == -ENOENT else fd
        return
    if file_data_sync(fd) != 0:
        flush.result = -errno
        flush.device_failed = True
    close(fd)


cdef void sync_names(Flush* flush, Slot* slot) noexcept nogil:
    """The names of new segments, and of the partition; the leader epochs and the gap limit, which nobody synced when they were
    written."""
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
    """Wait for the device. A file or directory that is gone was deleted or truncated meanwhile: of it nothing is to be synced.

    The descriptors are new ones, so that the kernel tells of every failure since the last sync that nobody was told of.
    """
    cdef Slot* slot = slot_at(flush.index)
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX, FILE_TXN_INDEX]
    cdef int64_t last = flush.commit.segment_base, base
    cdef int i
    if not flush.whole:
        sync_file(flush, slot, last, FILE_LOG)
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
    """Say what is on the device now, or that its log directory failed; 1, 0 if the flush came to nothing, -errno."""
    cdef uint32_t index = flush.index
    cdef Slot* slot = slot_at(index)
    cdef Commit now
    cdef bint advanced = False, taken
    fault(FLUSH_SYNCED)
    # Under the lock, so that no truncation comes between the look at the word and the store.
    taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
    if taken and slot.flusher == flush.word and slot.incarnation == flush.incarnation and slot.state == SLOT_ONLINE:
        read_commit(slot, &now)
        if flush.vanished and now.segment_base == flush.commit.segment_base:
            flush.result = -ENOENT      # taken away behind our back
            store_release_32(&slot.state, SLOT_OFFLINE)
        elif flush.device_failed:
            store_release_32(&slot.state, SLOT_OFFLINE)
        elif flush.result == 0:
            if flush.commit.log_end_offset > slot.flushed_offset:
                store_release_64(<uint64_t*>&slot.flushed_offset, <uint64_t>flush.commit.log_end_offset)
            if flush.whole:
                slot.synced_end = flush.commit.log_end_offset
                slot.synced_base = flush.commit.segment_base
            slot.flushed_ms = now_ms()
            slot.flushes += 1
            advanced = True
            fault(FLUSH_ADVANCED)
    if flush.device_failed:
        # What a failed sync left unwritten is not known, and asking again would not tell [R 4]: the directory is out of use.
        log_dir_failed(slot.log_dir)
    else:
        note_device(slot.log_dir, flush.result)
    if taken:
        unlock(index, slot)
    compare_swap_64(&slot.flusher, flush.word, 0)
    wake_flushed(index, slot)           # in every case: who saw the word taken relies on it
    return flush.result if flush.result != 0 else advanced


cdef int flush_slot(uint32_t index, bint whole) noexcept nogil:
    cdef Flush flush
    cdef int begun = begin_flush(index, whole, &flush)
    if begun != 1:
        return begun
    sync(&flush)
    return end_flush(&flush)


def flush(uint32_t index, bint whole=False):
    """Sync the log to the device up to its end; whether there was anything to do, and nobody else at it.

    :param whole: the indexes too, which a recovery could build anew; else only those of segments that were rolled.
    :raises OSError: a file could not be opened or synced; if it could not be synced, its log directory is offline.
    """
    cdef int result
    with nogil:
        result = flush_slot(index, whole)
    if result < 0:
        raise failure(index, result)
    return result == 1


cdef failure(uint32_t index, int result):
    cdef Slot* slot = slot_at(index)
    return file_error(-result, f"{topic_of(slot)}-{slot.partition}")


# -- many at once -----------------------------------------------------------------------------------------------------

def flush_many(indexes, *, bint whole=False, int all_from=SYNC_ALL_FROM, beat=None):
    """Sync many logs, several at a time; where many of one directory are unsynced, its file system as a whole.

    :param whole: see `flush`.
    :param all_from: how many logs of a directory make it worth to sync the file system (syncfs(2)).
    :param beat: called from time to time.
    :return: [(slot, OSError)] of those that failed.
    """
    cdef Py_ssize_t count = len(indexes), begun = 0, i
    cdef Flush* flushes = <Flush*>malloc(max(count, 1) * sizeof(Flush))
    cdef int result
    failed, begun_of, one_by_one, at_once = [], {}, [], []
    if flushes == NULL:
        raise MemoryError(f"no memory to sync {count} logs")
    try:
        for index in indexes:
            result = begin_flush(index, whole, &flushes[begun])
            if result == 1:
                begun_of.setdefault(slot_at(index).log_dir, []).append(begun)
                begun += 1
            elif result < 0:
                failed.append((index, failure(index, result)))
        for log_dir, places in begun_of.items():
            if len(places) >= all_from and SYNCFS_TELLS:
                at_once.append((log_dir, places))
            else:
                one_by_one.extend(places)
        threads = [threading.Thread(target=run_all, args=(log_dir, places, <uint64_t>flushes), name="sync")
                   for log_dir, places in at_once]
        if len(one_by_one) == 1:
            run_each(one_by_one, <uint64_t>flushes)
        else:
            threads += [threading.Thread(target=run_each, args=(one_by_one[lane::SYNC_THREADS], <uint64_t>flushes), name="sync")
                        for lane in range(min(SYNC_THREADS, len(one_by_one)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
                if beat is not None:
                    beat()
    finally:
        for i in range(begun):
            with nogil:
                result = end_flush(&flushes[i])
            if result < 0:
                failed.append((flushes[i].index, failure(flushes[i].index, result)))
        free(flushes)
    return failed


def run_each(list places, uint64_t flushes):
    """One after the other, the flushes of these places."""
    cdef Py_ssize_t place
    for place in places:
        with nogil:
            sync(<Flush*>flushes + place)


def run_all(int log_dir, list places, uint64_t flushes):
    """All files of the file system under a log directory at once, names and all."""
    cdef int fd = region().header.log_dir_fds[log_dir], error = 0
    cdef Flush* flush
    cdef Py_ssize_t place
    with nogil:
        if syncfs(fd) != 0:
            error = errno
    for place in places:
        flush = <Flush*>flushes + place
        flush.whole = True
        if error:
            flush.result = -error
            flush.device_failed = True


# -- what is to be flushed --------------------------------------------------------------------------------------------

def flush_due():
    """Slots that hold unsynced records for longer than their flush.ms, or more of them than their flush.messages."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t now = now_ms(), unsynced
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state != SLOT_ONLINE:
            continue
        read_commit(slot, &commit)
        unsynced = commit.log_end_offset - slot.flushed_offset
        if unsynced > 0 and (now - slot.flushed_ms >= slot.settings.flush_ms or unsynced >= slot.settings.flush_messages):
            found.append(i)
    return found


def rolled_since_flush():
    """Slots whose active segment began after what is known to be on the device with its indexes."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_ONLINE:
            read_commit(slot, &commit)
            if slot.flushed_offset < commit.segment_base or 0 <= slot.synced_base < commit.segment_base:
                found.append(i)
    return found


def to_close():
    """Slots with something to sync, to index or to snapshot at the ordered stop: none of a log that nobody wrote to."""
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_ONLINE:
            read_commit(slot, &commit)
            if slot.flushed_offset < commit.log_end_offset or slot.synced_end < commit.log_end_offset or slot.producers_changed \
                    or commit.max_timestamp > commit.timeindexed_timestamp:
                found.append(i)
    return found


cdef end(uint32_t index):
    """The last time index entry, and a snapshot of the producers at the log's end if there ever were any."""
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
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition} time index")
    if slot.state != SLOT_ONLINE:
        raise OSError(EIO, "the log is offline", topic_of(slot))
    slot_upkeep.snapshot(index)


def settle_many(indexes, beat=None):
    """Leave logs as a clean start expects them: a dead holder's work finished, the last time index entry, a snapshot of the
    producers at the end if there ever were any, all synced. When nobody appends any more.

    :return: {slot: OSError} of those that could not be left like that.
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


def settle(uint32_t index):
    """`settle_many` of one. :raises OSError: a file could not be written or synced."""
    failed = settle_many([index])
    if failed:
        raise failed[index]


# -- a worker's flush threads -----------------------------------------------------------------------------------------

cdef class Flusher:
    """The threads start with the first request; an idle worker and one without `flush.messages` has none.

    The loop asks and never waits. A request for a slot that another process is flushing is dropped: that one wakes all who
    wait when it is done, they look, and ask again. What was appended while a sync ran is synced next without being asked
    for, if it is as much as `flush.messages`.
    """

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.asked, NULL)
        self.threads = []

    def __dealloc__(self):
        free(self.queued)
        free(self.ring)
        pthread_cond_destroy(&self.asked)
        pthread_mutex_destroy(&self.mutex)

    cdef int request(self, uint32_t slot) except -1:
        cdef bint grow
        if self.closing:
            return 0
        if self.ring == NULL:
            self.room = region().header.max_slots
            self.queued = <uint8_t*>calloc(self.room, 1)
            self.ring = <uint32_t*>calloc(self.room, sizeof(uint32_t))
            if self.ring == NULL or self.queued == NULL:
                raise MemoryError("no memory for the queue of flushes")
        pthread_mutex_lock(&self.mutex)
        self.put(slot)
        grow = self.idle == 0
        pthread_mutex_unlock(&self.mutex)
        if grow and len(self.threads) < FLUSH_THREADS:
            thread = threading.Thread(target=self._run, args=(FIRST_FLUSH_LANE + len(self.threads),), name="flush", daemon=True)
            self.threads.append(thread)
            thread.start()
        return 0

    cdef void put(self, uint32_t slot) noexcept nogil:
        """Into the queue, unless it is there; under the mutex."""
        if not self.queued[slot]:
            self.queued[slot] = 1
            self.ring[self.end % self.room] = slot
            self.end += 1
            pthread_cond_signal(&self.asked)

    cdef int64_t take(self) noexcept nogil:
        """The next slot, waited for; -1 at the end."""
        cdef int64_t slot = -1
        pthread_mutex_lock(&self.mutex)
        while self.first == self.end and not self.closing:
            self.idle += 1
            pthread_cond_wait(&self.asked, &self.mutex)
            self.idle -= 1
        if self.first != self.end:
            slot = self.ring[self.first % self.room]
            self.first += 1
            self.queued[slot] = 0       # before the word is tried: a request from now on comes again
        pthread_mutex_unlock(&self.mutex)
        return slot

    cdef void serve(self, int lane) noexcept nogil:
        cdef int64_t taken
        cdef uint32_t index
        cdef int result
        cdef Slot* slot
        cdef Commit commit
        cdef timespec pause
        set_lane(lane)
        while True:
            taken = self.take()
            if taken < 0:
                return
            index = <uint32_t>taken
            slot = slot_at(index)
            result = flush_slot(index, False)
            if result == 0:
                continue
            if result < 0:
                with gil:
                    LOG.error("the log of %s-%d could not be synced: %s", topic_of(slot), slot.partition, os.strerror(-result))
                if slot.state != SLOT_ONLINE or region().header.log_dir_offline[slot.log_dir]:
                    continue
                pause.tv_sec = AGAIN_AFTER_MS // 1000
                pause.tv_nsec = 0
                nanosleep(&pause, NULL)     # for what others hold, descriptors say; there is no event to wait for
            read_commit(slot, &commit)
            if result < 0 or commit.log_end_offset - slot.flushed_offset >= slot.settings.flush_messages:
                pthread_mutex_lock(&self.mutex)
                if not self.closing:
                    self.put(index)
                pthread_mutex_unlock(&self.mutex)

    def _run(self, int lane):
        with nogil:
            self.serve(lane)

    def ask(self, uint32_t slot):
        """`request`, for Python."""
        self.request(slot)

    @property
    def thread_count(self):
        return len(self.threads)

    def close(self):
        """Finish what was asked for, then end the threads."""
        pthread_mutex_lock(&self.mutex)
        self.closing = True
        pthread_cond_broadcast(&self.asked)
        pthread_mutex_unlock(&self.mutex)
        for thread in self.threads:
            thread.join()
        self.threads.clear()
