"""The log that a pass of compaction works on; see `compaction_log.pxd`.

A slot's lock is held to check the log at the beginning of a pass, and to read the producers. A concurrent change of the log ends
the pass with CompactionAborted.
"""

import os
from collections import namedtuple

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport bsearch, malloc, qsort
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.compaction.compaction_transactions cimport free_transactions, init_transactions, sort_aborted
from odradek._ext.partition.append_files cimport open_directory
from odradek._ext.partition.producer_entry cimport ProducerEntry, entry_batches, entry_epoch, newest_batch
from odradek._ext.partition.producer_runs cimport next_producer
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.swapping cimport drop_swaps
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport LANE_SECOND, set_lane, unlock
from odradek._ext.shm.slot cimport SLOT_ONLINE, Slot, slot_at
from odradek._ext.storage.file_calls cimport file_error, file_open
from odradek._ext.storage.index_entries cimport TXN_ENTRY_BYTES, AbortedEntry, unpack_txn_entry
from odradek._ext.storage.log_scan cimport read_at
from odradek._ext.storage.log_state cimport FILE_TXN_INDEX, append_item, clear_array, free_array
from odradek._ext.storage.state_files cimport file_name


cdef enum:
    LOCK_WAIT_MS = 15000

REASONS = {
    ABORTED_BUSY: "the slot's lock was not released in time",
    ABORTED_DELETED: "the partition was deleted or went offline",
    ABORTED_TRUNCATED: "the log was truncated",
    ABORTED_SOURCE: "a segment was removed or replaced",
}


class CompactionAborted(Exception):
    """The log was truncated, deleted or shortened by retention meanwhile, or the broker stops. This is no error."""


class CorruptSegmentError(Exception):
    """A segment contains an invalid batch; the message names file, position and offset."""


def take_lane() -> None:
    """Give the calling thread the lane that all compacting threads share, for locks of slots that it takes outside of a pass.

    It must hold the `swap_lock` of the compacting threads whenever it holds a slot's lock [R 5].
    """
    set_lane(LANE_SECOND)


Source = namedtuple("Source", "base_offset end_offset size inode modified_ns index_bytes time_index_bytes")


cdef int by_producer(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const LastOfProducer*>left).producer_id, b = (<const LastOfProducer*>right).producer_id
    return -1 if a < b else a > b


cdef class CompactedLog:
    """Works on one log at a time.

    :param swap_lock: a lock of this process: its compacting threads take the mutexes of slots one after another [R 5].
    """

    def __cinit__(self, swap_lock):
        self.swap_lock = swap_lock
        self.directory = -1
        init_transactions(&self.transactions)
        self.producers.item_bytes = sizeof(LastOfProducer)

    def __dealloc__(self):
        free_transactions(&self.transactions)
        free_array(&self.producers)

    cdef int lock(self) noexcept nogil:
        cdef Slot* slot = slot_at(self.slot)
        set_lane(LANE_SECOND)
        if wait_slot(self.slot, slot, LOCK_WAIT_MS) != 0:
            return ABORTED_BUSY
        if slot.incarnation != self.incarnation or slot.state != SLOT_ONLINE or region().header.log_dir_offline[slot.log_dir]:
            unlock(self.slot, slot)
            return ABORTED_DELETED
        if self.directory >= 0 and slot.truncations != self.truncations:
            unlock(self.slot, slot)
            return ABORTED_TRUNCATED
        return 0

    cdef int check(self, int result) except -1:
        if result > 0:
            raise CompactionAborted(REASONS[result])
        if result == -ENOMEM:
            raise MemoryError
        if result < 0:
            raise file_error(-result, "a file of the log")
        return 0

    cdef int look(self) except -1:
        cdef Slot* slot = slot_at(self.slot)
        if self.stop:
            raise CompactionAborted("the broker stops")
        if slot.incarnation != self.incarnation or slot.state != SLOT_ONLINE:
            raise CompactionAborted(REASONS[ABORTED_DELETED])
        return 0

    cdef int begin_pass(self, uint32_t slot_index, uint32_t incarnation) except -1:
        cdef Slot* slot = slot_at(slot_index)
        cdef int result, directory = -1
        self.slot = slot_index
        self.incarnation = incarnation
        with self.swap_lock, nogil:
            result = self.lock()
            if result == 0:
                self.truncations = slot.truncations
                self.index_interval_bytes = slot.settings.index_interval_bytes
                self.delete_retention_ms = slot.settings.delete_retention_ms
                result = drop_swaps(slot)
                if result == 0:
                    directory = open_directory(slot)
                    result = min(directory, 0)
                unlock(self.slot, slot)
        self.check(result)
        self.directory = directory
        return 0

    cdef int end_pass(self) except -1:
        if self.directory >= 0:
            close(self.directory)
        self.directory = -1
        return 0

    def group(self, sources, int64_t end) -> list[list[Source]]:
        """Lists of segments that together make one, limited by size, by size of indexes, and by the range of a relative offset.
        """
        cdef Slot* slot = slot_at(self.slot)
        cdef int64_t largest = slot.settings.segment_bytes, largest_index = slot.settings.index_max_bytes
        candidates = [source for source in sources if source.base_offset < end]
        groups = []
        for source in candidates:
            last = source.end_offset - 1
            if groups:
                group = groups[len(groups) - 1]
                if (
                    sum(member.size for member in group) + source.size <= largest
                    and sum(member.index_bytes for member in group) + source.index_bytes <= largest_index
                    and sum(member.time_index_bytes for member in group) + source.time_index_bytes <= largest_index
                    and (source.size == 0 or last - group[0].base_offset <= 0x7FFFFFFF)
                ):
                    group.append(source)
                    continue
            groups.append([source])
        return groups

    def stat(self, str name) -> os.stat_result:
        return os.stat(name, dir_fd=self.directory)

    def list_sources(self, int64_t before) -> list[Source]:
        """The segments with a base offset below `before`, ascending. Raises CompactionAborted if one is removed meanwhile."""
        segments = []
        try:
            for name in os.listdir(self.directory):
                if len(name) == 24 and name.endswith(".log") and name[:20].isdigit() and int(name[:20]) < before:
                    log, index, times = (self.stat(name[:20] + kind) for kind in (".log", ".index", ".timeindex"))
                    segments.append((int(name[:20]), log.st_size, log.st_ino, log.st_mtime_ns, index.st_size, times.st_size))
        except FileNotFoundError as error:
            raise CompactionAborted("a segment was removed while the log was listed") from error
        segments.sort()
        ends = [segment[0] for segment in segments[1:]] + [before]
        return [Source(segment[0], end, *segment[1:]) for segment, end in zip(segments, ends, strict=True)]

    cdef int open_file(self, int64_t base_offset, int kind) except -1:
        cdef char[64] name
        cdef int descriptor
        file_name(name, base_offset, kind, b"")
        descriptor = file_open(self.directory, name, O_RDONLY)
        if descriptor < 0:
            if errno == ENOENT:
                raise CompactionAborted(f"segment {base_offset} was removed")
            raise file_error(errno, (<bytes>name).decode())
        return descriptor

    def read_aborted(self) -> None:
        """Read all aborted transactions of the log, including those that end after the part to compact."""
        cdef const uint8_t* p
        cdef AbortedEntry* entry
        cdef Py_ssize_t at
        clear_array(&self.transactions.aborted)
        for name in os.listdir(self.directory):
            if not (len(name) == 29 and name.endswith(".txnindex") and name[:20].isdigit()):
                continue
            content = self.read_index(int(name[:20]), FILE_TXN_INDEX)
            p = content
            for at in range(0, len(content) - TXN_ENTRY_BYTES + 1, TXN_ENTRY_BYTES):
                entry = <AbortedEntry*>append_item(&self.transactions.aborted)
                if entry == NULL:
                    raise MemoryError
                unpack_txn_entry(p + at, entry)
        sort_aborted(&self.transactions)

    cdef bytes read_index(self, int64_t base_offset, int kind):
        """The content of an index. Raises CompactionAborted if its segment was removed, and OSError."""
        cdef int descriptor = self.open_file(base_offset, kind)
        cdef int64_t length
        cdef uint8_t* p
        try:
            content = bytearray(os.fstat(descriptor).st_size)
            p = content
            length = read_at(descriptor, p, <size_t>len(content), 0)
        finally:
            close(descriptor)
        if length < 0:
            raise file_error(<int>-length, f"{base_offset:020d}")
        return bytes(content[:length])

    cdef int read_producers(self) except -1:
        cdef Slot* slot = slot_at(self.slot)
        cdef int result = 1
        cdef int64_t room
        while result == 1:
            room = slot.producer_count + 1      # nothing may be allocated under the lock
            if room > self.producers.room:
                free_array(&self.producers)
                self.producers.items = malloc(<size_t>room * sizeof(LastOfProducer))
                if self.producers.items == NULL:
                    raise MemoryError
                self.producers.room = room
            with self.swap_lock, nogil:
                result = self.lock()
                if result == 0:
                    result = self.copy_producers(slot)
                    unlock(self.slot, slot)
                else:
                    result += 1                 # to distinguish it from "there is no room"
            if result > 1:
                self.check(result - 1)
        if self.producers.count:
            qsort(self.producers.items, <size_t>self.producers.count, sizeof(LastOfProducer), &by_producer)
        return 0

    cdef int copy_producers(self, Slot* slot) noexcept nogil:
        """Returns 0, or 1 if there are more producers than room."""
        cdef ProducerEntry* entry
        cdef LastOfProducer* item
        cdef uint32_t place = 0
        self.producers.count = 0
        if <int64_t>slot.producer_count > self.producers.room:
            return 1
        entry = next_producer(slot, &place)
        while entry != NULL and self.producers.count < self.producers.room:
            item = <LastOfProducer*>self.producers.items + self.producers.count
            self.producers.count += 1
            item.producer_id = <int64_t>(entry.key - 1)
            item.last_offset = newest_batch(entry).last_offset if entry_batches(entry) else -1
            item.epoch = entry_epoch(entry)
            entry = next_producer(slot, &place)
        return 0

    cdef const LastOfProducer* last_of(self, int64_t producer_id) noexcept nogil:
        cdef LastOfProducer key
        if self.producers.count == 0:
            return NULL
        key.producer_id = producer_id
        return <const LastOfProducer*>bsearch(&key, self.producers.items, <size_t>self.producers.count, sizeof(LastOfProducer),
                                              by_producer)
