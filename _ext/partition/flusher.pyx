"""The threads of a process that sync logs to the device; see flusher.pxd."""

import logging
import os
import threading

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.time cimport nanosleep, timespec

from odradek._ext.partition.flushing cimport flush_slot
from odradek._ext.partition.slots cimport topic_of
from odradek._ext.shm.c_library cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport MAX_LOG_DIRS, region
from odradek._ext.shm.locks cimport LANE_FLUSH, set_lane
from odradek._ext.shm.slot cimport SLOT_ONLINE, Commit, Slot, read_commit, slot_at


LOG = logging.getLogger("odradek.storage")

cdef enum:
    AGAIN_AFTER_MS = 1000             # pause after a flush that could not open a file (no free descriptors, say): the device was not used
    REPORT_AGAIN_MS = 10000


cdef class DirectoryQueue:
    """The loop's thread adds slots; the threads of the directory take them.

    While a slot is in the queue, its partition may be deleted and the slot given to a partition in another directory. The
    thread that takes the slot then skips it, because requests for the new partition are in the queue of the other directory.
    """

    def __cinit__(self, int log_dir):
        cdef uint64_t room = region().header.max_slots
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.requested, NULL)
        self.log_dir = log_dir
        self.queued = <uint8_t*>calloc(room, 1)
        self.ring = <uint32_t*>calloc(room, sizeof(uint32_t))
        if self.ring == NULL or self.queued == NULL:
            raise MemoryError("no memory for the queue of flushes")
        self.room = room

    def __dealloc__(self):
        free(self.queued)
        free(self.ring)
        pthread_cond_destroy(&self.requested)
        pthread_mutex_destroy(&self.mutex)

    cdef bint add(self, uint32_t slot) noexcept nogil:
        cdef bint too_few
        pthread_mutex_lock(&self.mutex)
        self.put(slot)
        too_few = self.end - self.first > <uint64_t>self.idle       # a signalled thread counts as idle until it runs
        pthread_mutex_unlock(&self.mutex)
        return too_few

    cdef void put(self, uint32_t slot) noexcept nogil:
        """Add a slot unless it is in the queue. The caller holds the mutex."""
        if not self.queued[slot]:
            self.queued[slot] = 1
            self.ring[self.end % self.room] = slot
            self.end += 1
            pthread_cond_signal(&self.requested)

    cdef int64_t take(self) noexcept nogil:
        """Wait for the next slot and return it; -1 when the queue is closed and empty."""
        cdef int64_t slot = -1
        pthread_mutex_lock(&self.mutex)
        while self.first == self.end and not self.closing:
            self.idle += 1
            pthread_cond_wait(&self.requested, &self.mutex)
            self.idle -= 1
        if self.first != self.end:
            slot = self.ring[self.first % self.room]
            self.first += 1
            self.queued[slot] = 0       # before the flusher word is tried, so that a later request is queued again
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
            if slot.log_dir != self.log_dir:
                continue
            result = flush_slot(index, False)
            if result == 0:
                continue
            if result < 0:
                with gil:
                    LOG.error("cannot sync the log of %s-%d: %s", topic_of(slot), slot.partition, os.strerror(-result))
                if slot.state != SLOT_ONLINE or region().header.log_dir_offline[self.log_dir]:
                    continue
                pause.tv_sec = AGAIN_AFTER_MS // 1000
                pause.tv_nsec = 0
                nanosleep(&pause, NULL)     # until other threads close descriptors; no event reports that
            read_commit(slot, &commit)
            if result < 0 or commit.log_end_offset - slot.flushed_offset >= slot.settings.flush_messages:
                pthread_mutex_lock(&self.mutex)
                if not self.closing:
                    self.put(index)
                pthread_mutex_unlock(&self.mutex)

    def run(self, int lane) -> None:
        """The main function of a thread of the directory; it returns after `end_soon`."""
        with nogil:
            self.serve(lane)

    cdef void end_soon(self) noexcept nogil:
        """Make the threads sync the queued slots and then end."""
        pthread_mutex_lock(&self.mutex)
        self.closing = True
        pthread_cond_broadcast(&self.requested)
        pthread_mutex_unlock(&self.mutex)


cdef class Flusher:
    """A thread starts with the first request for its directory; a process without requests has no threads.

    The loop only requests and never waits. A request for a slot that another process is flushing is dropped, because that
    process wakes all waiters when its flush ends; the waiters then look at the slot and request again. If flush.messages
    records were appended during a sync, the next sync follows without a request.
    """

    def __cinit__(self):
        self.queues = [None] * MAX_LOG_DIRS
        self.threads = []

    cdef int request(self, uint32_t slot) except -1:
        cdef int log_dir = slot_at(slot).log_dir
        cdef DirectoryQueue queue
        if self.closing:
            return 0
        queue = self.queues[log_dir]
        if queue is None:
            queue = self.queues[log_dir] = DirectoryQueue(log_dir)
        if queue.add(slot) and self.may_start(queue):
            self.start_thread(queue)
        return 0

    cdef bint may_start(self, DirectoryQueue queue):
        """Whether the directory may start another thread: its first always, up to four if enough remain for the other
        directories."""
        cdef Py_ssize_t kept = region().header.log_dir_count - self.served
        return queue.threads == 0 or (queue.threads < THREADS_OF_DIRECTORY and len(self.threads) + kept < FLUSH_THREADS)

    cdef int start_thread(self, DirectoryQueue queue) except -1:
        thread = threading.Thread(target=queue.run, args=(LANE_FLUSH + len(self.threads),), name="flush", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if queue.threads == 0 and monotonic_ms() >= self.report_from_ms:
                self.report_from_ms = monotonic_ms() + REPORT_AGAIN_MS
                LOG.error("cannot start a thread to sync logs: %s; until one starts the cleaner syncs them within a second", error)
            return 0
        self.threads.append(thread)
        self.served += queue.threads == 0
        queue.threads += 1
        return 0

    def ask(self, uint32_t slot) -> None:
        """The Python form of `request`."""
        self.request(slot)

    def close(self) -> None:
        """Sync what was requested, then end the threads."""
        cdef DirectoryQueue queue
        self.closing = True
        for queue in self.queues:
            if queue is not None:
                queue.end_soon()
        for thread in self.threads:
            thread.join()
        self.threads.clear()


cdef class SharedFlusher(Flusher):
    """The flusher of a process whose threads all request syncs: the replicator. The start of a thread lets other threads run, so that
    requests need a lock."""

    def __cinit__(self):
        self.turn = threading.Lock()

    cdef int request(self, uint32_t slot) except -1:
        with self.turn:
            return Flusher.request(self, slot)
