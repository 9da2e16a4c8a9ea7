"""The log that a pass of compaction works on; see `compaction_log.pxd`.

A slot's lock is held to look at the log at the pass's beginning, and to read the producers. Batches are judged as what a disk may
have made of them: what is not sound ends the pass with CorruptSegmentError, what others did meanwhile with CompactionAborted.
"""

import os
from collections import namedtuple

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, malloc, qsort, realloc
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.compaction.compacted_records cimport last_offset_of
from odradek._ext.compaction.compaction_transactions cimport AbortedEntry, free_transactions, init_transactions, sort_aborted
from odradek._ext.partition.append_files cimport open_directory
from odradek._ext.partition.producer_entry cimport ProducerEntry, entry_batches, entry_epoch, newest_batch
from odradek._ext.partition.producer_runs cimport next_producer
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.swapping cimport drop_swaps
from odradek._ext.records.old_messages cimport MESSAGE_HEADER_BYTES, message_crc_matches, parse_message
from odradek._ext.records.record_batch cimport (
    AT_RECORDS,
    BATCH_HEADER_BYTES,
    BATCH_OVERHEAD_BYTES,
    CODEC_ZSTD,
    ERROR_INVALID_RECORD,
    crc_matches,
    load64,
    parse_batch_header,
)
from odradek._ext.shm.layout cimport SLOT_ONLINE, Slot, region, slot_at
from odradek._ext.shm.locks cimport LANE_SECOND, set_lane, unlock
from odradek._ext.storage.file_calls cimport file_error, file_open
from odradek._ext.storage.log_scan cimport read_at
from odradek._ext.storage.log_state cimport FILE_TXN_INDEX, append_item
from odradek._ext.storage.state_files cimport file_name


cdef extern from "<sys/stat.h>" nogil:
    struct stat_links "stat":
        unsigned long st_nlink
    int fstat(int fd, stat_links* out)


cdef enum:
    LOCK_WAIT_MS = 15000
    LARGEST_OPENED = 0x7FFFFFFF   # bytes that a compressed batch may open to: it was bounded when it was appended

REASONS = {
    GONE_BUSY: "the slot's lock did not come free",
    GONE_DELETED: "the partition was deleted or went offline",
    GONE_TRUNCATED: "the log was truncated",
    GONE_SOURCE: "a segment went, or another came in its place",
}


class CompactionAborted(Exception):
    """The log was truncated, deleted or shortened by retention meanwhile, or the broker stops: nothing is wrong."""


class CorruptSegmentError(Exception):
    """A segment holds something else than sound batches; the message names file, position and offset."""


def take_lane():
    """Give the calling thread the lane that all compacting threads share, for slots' locks that it takes outside of a pass.

    It must hold the `swap_lock` of the compacting threads whenever it holds a slot's lock [R 5].
    """
    set_lane(LANE_SECOND)


Source = namedtuple("Source", "base_offset end_offset size inode modified_ns index_bytes time_index_bytes")


cdef int by_producer(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const LastOfProducer*>left).producer_id, b = (<const LastOfProducer*>right).producer_id
    return -1 if a < b else a > b


cdef class CompactedLog:
    """One log at a time. Whoever inherits says what to read with, and how to open what is compressed."""

    def __cinit__(self):
        self.directory = -1
        init_transactions(&self.transactions)
        self.producers.item_bytes = sizeof(LastOfProducer)

    def __dealloc__(self):
        free(self.buffer)
        free_transactions(&self.transactions)
        free_array(&self.producers)

    cdef int lock(self) noexcept nogil:
        """Take the slot's lock, and see that the log is still the one of this pass; a LOCK_ result, nothing held but for 0."""
        cdef Slot* slot = slot_at(self.slot)
        set_lane(LANE_SECOND)
        if wait_slot(self.slot, slot, LOCK_WAIT_MS) != 0:
            return GONE_BUSY
        if slot.incarnation != self.incarnation or slot.state != SLOT_ONLINE or region().header.log_dir_offline[slot.log_dir]:
            unlock(self.slot, slot)
            return GONE_DELETED
        if self.directory >= 0 and slot.truncations != self.truncations:
            unlock(self.slot, slot)
            return GONE_TRUNCATED
        return 0

    def check(self, int result):
        """Raise what a result of a step under the lock means, unless it is 0."""
        if result > 0:
            raise CompactionAborted(REASONS[result])
        if result == -ENOMEM:
            raise MemoryError
        if result < 0:
            raise file_error(-result, "a file of the log")

    cdef int open_log(self) except -1:
        """The log as the pass begins; what a pass before it left half done goes."""
        cdef Slot* slot = slot_at(self.slot)
        cdef int result, directory = -1
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

    cdef int close_log(self) except -1:
        if self.directory >= 0:
            close(self.directory)
        self.directory = -1
        if self.buffer_bytes > self.usual_bytes:
            free(self.buffer)
            self.buffer = <uint8_t*>malloc(self.usual_bytes)
            self.buffer_bytes = self.usual_bytes
            if self.buffer == NULL:
                raise MemoryError("no memory for a read buffer")
        return 0

    def group(self, sources, int64_t end):
        """Runs of segments that together make one: by size, by size of indexes, and by what a relative offset can say."""
        cdef Slot* slot = slot_at(self.slot)
        cdef int64_t largest = slot.settings.segment_bytes, largest_index = slot.settings.index_max_bytes
        chosen = [source for source in sources if source.base_offset < end]
        groups = []
        for source in chosen:
            last = source.end_offset - 1
            if groups:
                group = groups[len(groups) - 1]
                if (
                    sum(one.size for one in group) + source.size <= largest
                    and sum(one.index_bytes for one in group) + source.index_bytes <= largest_index
                    and sum(one.time_index_bytes for one in group) + source.time_index_bytes <= largest_index
                    and (source.size == 0 or last - group[0].base_offset <= 0x7FFFFFFF)
                ):
                    group.append(source)
                    continue
            groups.append([source])
        return groups

    def stat(self, str name):
        return os.stat(name, dir_fd=self.directory)

    def list_sources(self, int64_t before):
        """The segments with a base offset below `before`, ascending; raises CompactionAborted when one goes meanwhile."""
        found = []
        try:
            for name in os.listdir(self.directory):
                if len(name) == 24 and name.endswith(".log") and name[:20].isdigit() and int(name[:20]) < before:
                    log, index, times = (self.stat(name[:20] + kind) for kind in (".log", ".index", ".timeindex"))
                    found.append((int(name[:20]), log.st_size, log.st_ino, log.st_mtime_ns, index.st_size, times.st_size))
        except FileNotFoundError as error:
            raise CompactionAborted("a segment went while the log was listed") from error
        found.sort()
        ends = [one[0] for one in found[1:]] + [before]
        return [Source(one[0], end, *one[1:]) for one, end in zip(found, ends, strict=True)]

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

    def read_aborted(self):
        """All aborted transactions of the log, those too that end behind the part to compact."""
        cdef const uint8_t* p
        cdef AbortedEntry* entry
        cdef Py_ssize_t at
        clear_array(&self.transactions.aborted)
        for name in os.listdir(self.directory):
            if not (len(name) == 29 and name.endswith(".txnindex") and name[:20].isdigit()):
                continue
            content = self.read_index(int(name[:20]), FILE_TXN_INDEX)
            p = content
            for at in range(0, len(content) - 33, 34):
                entry = <AbortedEntry*>append_item(&self.transactions.aborted)
                if entry == NULL:
                    raise MemoryError
                entry.producer_id = <int64_t>load64(p + at + 2)
                entry.first_offset = <int64_t>load64(p + at + 10)
                entry.last_offset = <int64_t>load64(p + at + 18)
                entry.last_stable_offset = <int64_t>load64(p + at + 26)
        sort_aborted(&self.transactions)

    cdef bytes read_index(self, int64_t base_offset, int kind):
        """All of an index; raises CompactionAborted when its segment is gone, OSError."""
        cdef int descriptor = self.open_file(base_offset, kind)
        cdef int64_t got
        cdef uint8_t* p
        try:
            content = bytearray(os.fstat(descriptor).st_size)
            p = content
            got = read_at(descriptor, p, <size_t>len(content), 0)
        finally:
            close(descriptor)
        if got < 0:
            raise file_error(<int>-got, f"{base_offset:020d}")
        return bytes(content[:got])

    cdef int read_producers(self) except -1:
        """The last batch, or the epoch, of each active producer, as of now."""
        cdef Slot* slot = slot_at(self.slot)
        cdef int result = 1
        cdef int64_t room
        while result == 1:
            room = slot.producer_count + 1      # nothing is allocated under the lock
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
                    result += 1                 # told from "there is no room"
            if result > 1:
                self.check(result - 1)
        if self.producers.count:
            qsort(self.producers.items, <size_t>self.producers.count, sizeof(LastOfProducer), &by_producer)
        return 0

    cdef int copy_producers(self, Slot* slot) noexcept nogil:
        """0, or 1 if there are more than there is room for."""
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

    def look(self):
        """Raise CompactionAborted if the pass must end early: the broker stops, or the log or the segment being read was removed.

        To be called while the pass waits, so that it does not keep the space of a removed segment.
        """
        cdef Slot* slot = slot_at(self.slot)
        cdef stat_links found
        if self.stop:
            raise CompactionAborted("the broker stops")
        if slot.incarnation != self.incarnation or slot.state != SLOT_ONLINE:
            raise CompactionAborted(REASONS[GONE_DELETED])
        if fstat(self.reading, &found) == 0 and found.st_nlink == 0:
            raise CompactionAborted(REASONS[GONE_SOURCE])

    # -- reading ------------------------------------------------------------------------------------------------------

    cdef int64_t fill(self, int descriptor, int64_t position, int64_t size) except -1:
        """Read what the buffer takes from `position` on; the bytes read. Raises OSError, CompactionAborted."""
        cdef int64_t wanted = min(size - position, <int64_t>self.buffer_bytes), got
        self.reading = descriptor
        self.look()
        with nogil:
            got = read_at(descriptor, self.buffer, <size_t>wanted, position)
        if got < 0:
            raise file_error(<int>-got, "a segment")
        if got < wanted:
            raise CompactionAborted("a segment was cut")
        return got

    cdef int grow(self, int64_t base_offset, int64_t position, int64_t size, int64_t got) except -1:
        """The batch at the buffer's start does not fit: make room for it."""
        cdef int64_t wanted
        cdef uint8_t* larger
        if got < MESSAGE_HEADER_BYTES or got == size - position:
            raise self.corrupt(base_offset, position)
        wanted = <int64_t>load64(self.buffer + 4) & 0xFFFFFFFF
        wanted += BATCH_OVERHEAD_BYTES
        if wanted > size - position or wanted <= <int64_t>self.buffer_bytes:
            raise self.corrupt(base_offset, position)
        larger = <uint8_t*>realloc(self.buffer, <size_t>wanted)
        if larger == NULL:
            raise MemoryError(f"no memory for a batch of {wanted} bytes")
        self.buffer = larger
        self.buffer_bytes = <size_t>wanted
        return 0

    def corrupt(self, base_offset, position):
        return CorruptSegmentError(f"{base_offset:020d}.log: no sound batch at position {position}, offset {self.next_offset} or later")

    cdef bytes open_batch(self, const uint8_t* batch, int64_t base, int64_t position):
        """The records of a compressed batch; raises CorruptSegmentError where its codec does not read them."""
        payload = (<const char*>batch)[AT_RECORDS:self.batch.size]
        try:
            return self.decompress(self.batch.codec, payload, LARGEST_OPENED)
        except ValueError as error:
            raise self.corrupt(base, position) from error

    cdef int next_batch(self, const uint8_t* p, size_t n) noexcept nogil:
        """Judge the header at p into `batch`: STEP_DONE with size 0 when it does not lie in memory whole, or STEP_CORRUPT."""
        cdef int error
        if n < MESSAGE_HEADER_BYTES:
            self.batch.size = 0
            return STEP_DONE
        error = parse_batch_header(p, n, &self.batch)
        if error == ERROR_INVALID_RECORD and n >= MESSAGE_HEADER_BYTES:
            error = parse_message(p, n, &self.batch)
        if error and n >= BATCH_HEADER_BYTES:
            return STEP_CORRUPT
        elif error or <size_t>self.batch.size > n:
            self.batch.size = 0
            return STEP_DONE
        elif self.batch.base_offset < self.next_offset or self.batch.last_offset_delta < 0 \
                or last_offset_of(&self.batch) >= self.segment_end \
                or (self.batch.record_count < 0 and self.batch.magic == 2) \
                or self.batch.codec > CODEC_ZSTD:
            return STEP_CORRUPT
        elif not (crc_matches(p, &self.batch) if self.batch.magic == 2 else message_crc_matches(p, &self.batch)):
            return STEP_CORRUPT
        return STEP_DONE

    cdef list opened(self, const uint8_t* message, int64_t base, int64_t position):
        """What a message of format v0 or v1 holds; raises CorruptSegmentError."""
        try:
            return self.open_old((<const char*>message)[:self.batch.size])
        except ValueError as error:
            raise self.corrupt(base, position) from error
