"""One pass of compaction over one log: build the map of newest offsets from the dirty part, rewrite the segments, swap them in.

Runs in a thread of the cleaner. Batches and records are processed natively and without the GIL, which is taken once for each buffer
and to decompress and compress batches. A slot's lock is held to check the log at the beginning of a pass, to read the producers, and
for the two halves of a swap, which only rename files. Concurrent changes of the log have these effects:

    append, roll         none, because the pass does not use the active segment
    truncation           `Slot.truncations` changes: the pass ends before its next swap; `.cleaned` and `.swap` files were removed
    deletion of the log  the incarnation or state differs: the pass ends
    retention            a source is missing at the swap's check: the pass ends, and a later pass begins again
    death                the next pass or start removes `.cleaned` files; the next process that takes the lock finishes a swap

Python filters messages of format v0 and v1 (`clean_old`): only logs that were taken over contain them.
"""

import os
from collections import namedtuple

from libc.errno cimport ENOMEM, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport bsearch, malloc
from libc.string cimport memcmp
from posix.unistd cimport close

from odradek._ext.compaction.compacted_records cimport (
    RecordKey,
    add_bytes,
    delete_horizon,
    last_offset_of,
    put_header,
    read_key,
    restamp_records,
)
from odradek._ext.compaction.compacted_segment cimport (
    begin_output,
    finish_output,
    free_output,
    init_output,
    note_batch,
    put_bytes,
    remove_unswapped,
    start_output,
)
from odradek._ext.compaction.compaction_log cimport (
    ABORTED_SOURCE,
    STEP_CODEC,
    STEP_CORRUPT,
    STEP_DONE,
    LastOfProducer,
    by_producer,
    clear_array,
    free_array,
)
from odradek._ext.compaction.compaction_transactions cimport start_transactions, track_batch, track_marker
from odradek._ext.compaction.offset_map cimport get_offset, open_map
from odradek._ext.partition.slot_access cimport give_up
from odradek._ext.partition.swapping cimport prepare_swap, swap_segments
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.old_messages cimport parse_message
from odradek._ext.records.record_batch cimport (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    AT_ATTRIBUTES,
    AT_CRC,
    AT_RECORDS,
    BATCH_HEADER_BYTES,
    CODEC_NONE,
    BatchInfo,
    store32,
)
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport Slot, slot_at
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.waking cimport wake_after
from odradek._ext.storage.file_calls cimport file_sync
from odradek._ext.storage.log_dirs cimport note_device
from odradek._ext.storage.log_state cimport FILE_LOG, append_item
from odradek._ext.storage.state_files cimport file_name

from odradek._ext.compaction.compaction_log import CorruptSegmentError


cdef extern from "<sys/stat.h>" nogil:
    struct stat_result "stat":
        int64_t st_size
        uint64_t st_ino
    int fstatat(int directory, const char* path, stat_result* out, int flags)


cdef enum:
    LARGEST_SEGMENT = 0x7FFFFFFF


class MapTooSmallError(Exception):
    """The keys of the first dirty batch do not fit into the map."""


PassResult = namedtuple(
    "PassResult",
    "end_offset segments_before segments_after bytes_read bytes_written map_bytes_read records_read records_kept keyless keys map_full",
)
"""The results of a pass. `end_offset`: everything before it is compacted. The bytes are those of the rewriting,
`map_bytes_read` those of building the map; `keyless`: removed records without a key."""


cdef class Compactor(KeyedLog):
    """The resources of a thread that compacts one log after another.

    :param map_bytes: memory for the map (`log.cleaner.dedupe.buffer.size` / threads); `load_factor`: the part of it that may be
    filled.
    :param buffer_bytes: size of the read buffer, which grows for a larger batch and shrinks afterwards.
    :param decompress: called with (codec, bytes, limit), returns a batch's records; `compress` is called with (codec, bytes).
    :param open_old: called with a message of format v0 or v1, which may be a wrapper; returns [(offset, key, whether it is a
    tombstone)].
    :param reduce_old: called with such a message and a set of offsets; returns the message with only these.
    :param pace: called with the number of bytes read or written since the last call, and with `look`; it waits if the pass is
    too fast, and calls `look` while it waits.
    :param swap_lock: a lock of this process: its compacting threads take the mutexes of slots one after another [R 5].
    :raises MemoryError: there is no memory for the map. :raises ValueError: the map would not hold two keys.
    """

    def __cinit__(self, size_t map_bytes, double load_factor, size_t buffer_bytes, decompress, compress, open_old, reduce_old,
                  pace, swap_lock):
        self.spans.item_bytes = sizeof(Span)
        self.rebuilt.item_bytes = 1
        self.replaced.item_bytes = sizeof(ReplacedSegment)
        self.load_factor = load_factor
        self.decompress = decompress
        self.compress = compress
        self.open_old = open_old
        self.reduce_old = reduce_old
        self.pace = pace
        self.swap_lock = swap_lock
        if map_bytes // 24 * load_factor <= 2:
            raise ValueError(f"{map_bytes} bytes x {load_factor} cannot hold the keys of two records: increase "
                             "log.cleaner.dedupe.buffer.size or reduce log.cleaner.threads")
        self.usual_bytes = self.buffer_bytes = max(buffer_bytes, <size_t>4096)
        self.buffer = <uint8_t*>malloc(self.buffer_bytes)
        if init_output(&self.output) != 0 or self.buffer == NULL or open_map(&self.map, map_bytes) != 0:
            raise MemoryError(f"no memory for the map of keys: {map_bytes} bytes")

    def __dealloc__(self):
        free_output(&self.output)
        free_array(&self.spans)
        free_array(&self.rebuilt)
        free_array(&self.replaced)

    def abort(self):
        """Make the current pass end soon with CompactionAborted. May be called from any thread."""
        self.stop = 1

    def run(self, uint32_t slot, *, uint32_t incarnation, int64_t first_dirty_offset, int64_t first_uncleanable_offset,
            int64_t now_ms):
        """Compact the records of a log before `first_uncleanable_offset` by the keys from `first_dirty_offset` on. Returns a
        PassResult.

        :param first_uncleanable_offset: base offset of the active segment or of an earlier one; all records before it are below
        the last stable offset.
        :raises CompactionAborted: see there; no change is left half done.
        :raises CorruptSegmentError: the log cannot be compacted until it is repaired.
        :raises MapTooSmallError: the map cannot hold the keys of one batch.
        :raises OSError: a file, which it names, could not be read or written; the log directory is out of use if its device
        failed.
        """
        self.slot = slot
        self.incarnation = incarnation
        self.now_ms = now_ms
        self.first_dirty_offset = first_dirty_offset
        self.upper_bound = first_uncleanable_offset
        self.bytes_read = self.bytes_written = self.map_bytes_read = self.records_read = self.records_kept = self.keyless = 0
        segments, after = 0, 0
        try:
            self.open_log()
            sources = self.list_sources(first_uncleanable_offset)
            self.read_aborted()
            full = self.build_map(sources, first_dirty_offset, first_uncleanable_offset)
            end = self.latest_offset + 1
            if end <= first_dirty_offset:
                raise MapTooSmallError(f"the map holds {self.map.limit} keys, too few for the batch at offset {first_dirty_offset}")
            start_transactions(&self.transactions)
            self.next_offset = 0
            # Old messages have no horizon: a tombstone is removed once its segment is that much older than the newest clean one.
            clean = [source.modified_ns for source in sources if source.base_offset < first_dirty_offset]
            self.old_horizon_ns = clean[len(clean) - 1] - self.delete_retention_ms * 1_000_000 if clean else 0
            for group in self.group(sources, end):
                self.clean_group(group)
                segments += len(group)
                after += 1
        except OSError as error:
            note_device(slot_at(slot).log_dir, -<int>(error.errno or 0))
            raise
        finally:
            self.close_log()
            free_array(&self.rebuilt)
        return PassResult(end, segments, after, self.bytes_read, self.bytes_written, self.map_bytes_read, self.records_read,
                          self.records_kept, self.keyless, self.map.count, full)

    # -- rewriting ------------------------------------------------------------------------------------------------

    def clean_group(self, group):
        """Make one segment of these, and swap it in unless it equals the only source."""
        cdef ReplacedSegment* item
        cdef int descriptor = -1, files = 0, result
        cdef int64_t base, size, position
        cdef bint alone = len(group) == 1
        self.read_producers()
        clear_array(&self.replaced)
        for source in group:
            item = <ReplacedSegment*>append_item(&self.replaced)
            if item == NULL:
                raise MemoryError
            item.base_offset = source.base_offset
            item.size = source.size
            item.inode = source.inode
        start_output(&self.output, group[0].base_offset, self.index_interval_bytes)
        done = False
        self.swap_begun = False
        try:
            if not alone:
                self.check(begin_output(&self.output, self.directory))
            for source in group:
                base = source.base_offset
                size = source.size
                position = 0
                self.next_offset = base
                self.segment_end = source.end_offset
                self.old_tombstones_stay = source.modified_ns > self.old_horizon_ns
                descriptor = self.open_file(base, FILE_LOG)
                self.output.source = descriptor if alone else -1
                while position < size:
                    self.clean_step(descriptor, base, &position, size)
                if not alone or self.output.descriptor >= 0:
                    close(descriptor)
                    descriptor = self.output.source = -1
            self.bytes_written += self.output.position if self.output.descriptor >= 0 else 0
            if self.output.descriptor >= 0:
                if self.output.position > LARGEST_SEGMENT:
                    raise CorruptSegmentError(f"{base:020d}.log: would grow to {self.output.position} bytes")
                with nogil:
                    result = finish_output(&self.output, self.directory, &files)
                self.check(result)
                last = group[len(group) - 1]
                os.utime(self.output.descriptor, ns=(last.modified_ns, last.modified_ns))
                fault(CLEANED_WRITTEN)
                self.swap(last.base_offset, files)
            done = True
        finally:
            if descriptor >= 0:
                close(descriptor)
            if self.output.descriptor >= 0:
                close(self.output.descriptor)
            # The next load finishes a swap that stopped half way, so its files must be kept: the replaced files are set aside
            # already.
            if self.output.descriptor >= 0 and not done and not self.swap_begun:
                remove_unswapped(self.directory, self.output.base_offset)
            self.output.descriptor = self.output.source = -1

    cdef bint sources_unchanged(self) noexcept nogil:
        """Whether the segments to replace are those that were read: the same files with the same sizes."""
        cdef ReplacedSegment* item = <ReplacedSegment*>self.replaced.items
        cdef char[64] name
        cdef stat_result status
        cdef int64_t i
        for i in range(self.replaced.count):
            file_name(name, item[i].base_offset, FILE_LOG, b"")
            if fstatat(self.directory, name, &status, 0) != 0 or <int64_t>status.st_size != item[i].size \
                    or <uint64_t>status.st_ino != item[i].inode:
                return False
        return True

    def swap(self, int64_t last_base, int files):
        """Replace the old segments by the new one. The lock is held twice, for renamings; the directory is synced in between.
        """
        cdef Slot* slot = slot_at(self.slot)
        cdef int result
        cdef bint changed = False
        with self.swap_lock, nogil:
            result = self.lock()
            if result == 0:
                result = prepare_swap(self.directory, self.output.base_offset, files) if self.sources_unchanged() else ABORTED_SOURCE
                fault(SWAP_PREPARED)
                unlock(self.slot, slot)
        self.check(result)
        with nogil:
            if file_sync(self.directory) != 0:
                result = -errno
        self.check(result)
        fault(SWAP_DIRECTORY_SYNCED)
        with self.swap_lock, nogil:
            result = self.lock()
            if result == 0:
                if self.sources_unchanged():
                    changed = self.swap_begun = True
                    result = swap_segments(slot, self.output.base_offset, last_base, files)
                    if result != 0:             # half done: the next load completes it
                        give_up(slot, result)
                else:
                    result = ABORTED_SOURCE
                unlock(self.slot, slot)
            if changed:
                fault(SWAP_UNLOCKED)
                wake_after(self.slot, slot, True, True)
        self.check(result)

    cdef int clean_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1:
        """Filter one buffer of a segment into the new one."""
        cdef int64_t length = self.fill(descriptor, position[0], size)
        cdef int64_t before = self.output.position
        cdef size_t used = 0
        cdef int result
        with nogil:
            result = self.clean_window(self.buffer, <size_t>length, &used)
        if result == STEP_CODEC:
            self.clean_compressed(self.buffer + used, base, position[0] + <int64_t>used)
            used += <size_t>self.batch.size
        elif result == STEP_CORRUPT:
            raise self.corrupt(base, position[0] + <int64_t>used)
        elif result < 0:
            self.check(result)
        elif used == 0:
            self.grow(base, position[0], size, length)
        position[0] += <int64_t>used
        self.bytes_read += <int64_t>used
        self.pace(<int64_t>used + (self.output.position - before if self.output.descriptor >= 0 else 0), self.look)
        return 0

    cdef int decide(self, const uint8_t* batch) noexcept nogil:
        """Decide about `batch` as a whole (Kafka's checkBatchRetention) and store that in `verdict`. Returns 0, or -ENOMEM."""
        cdef Verdict* verdict = &self.verdict
        cdef bint idle = False
        cdef int64_t horizon = delete_horizon(&self.batch)
        cdef int error
        if self.batch.control:
            error = track_marker(&self.transactions, batch, &self.batch, &self.output.transactions, &idle)
            verdict.discard = idle and 0 <= horizon <= self.now_ms
        else:
            error = track_batch(&self.transactions, &self.batch, &idle)
            verdict.discard = idle
        verdict.starts_horizon = idle and self.batch.control
        verdict.keep_empty = self.keeps_producer() or last_offset_of(&self.batch) + 1 == self.upper_bound
        verdict.delete_batch = verdict.discard and not verdict.keep_empty
        return error

    cdef bint keeps_producer(self) noexcept nogil:
        """Whether `batch` preserves the state of an active producer: it is its last batch, or a marker with its epoch."""
        cdef LastOfProducer key
        cdef LastOfProducer* last
        if self.batch.producer_id < 0 or self.producers.count == 0:
            return False
        key.producer_id = self.batch.producer_id
        last = <LastOfProducer*>bsearch(&key, self.producers.items, <size_t>self.producers.count, sizeof(LastOfProducer),
                                        by_producer)
        if last == NULL:
            return False
        if last.last_offset >= 0:
            return last_offset_of(&self.batch) == last.last_offset
        return self.batch.control and self.batch.producer_epoch == last.epoch

    cdef int clean_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil:
        """Filter the complete batches in p[0:n] into the new segment, up to a compressed one that must be decompressed."""
        cdef const uint8_t* batch
        cdef bint tombstones = False
        cdef int32_t kept = 0
        cdef int64_t max_timestamp = -1
        cdef int result
        used[0] = 0
        while used[0] < n:
            batch = p + used[0]
            result = self.next_batch(batch, n - used[0])
            if result or self.batch.size == 0:
                return result
            self.next_offset = last_offset_of(&self.batch) + 1
            if self.batch.magic != 2:
                return STEP_CODEC
            result = self.decide(batch)
            if result == 0 and not self.verdict.discard and self.batch.codec != CODEC_NONE and self.batch.record_count:
                return STEP_CODEC
            if result == 0 and not self.verdict.discard:
                result = self.sift_records(batch + AT_RECORDS, <size_t>self.batch.size - AT_RECORDS, &tombstones,
                                           &max_timestamp, &kept)
                if result == 0 and kept:
                    result = self.keep_records(batch, batch + AT_RECORDS, tombstones, max_timestamp, kept)
                elif result == 0:
                    result = self.keep_none(batch)
            elif result == 0:
                self.records_read += self.batch.record_count
                result = self.keep_none(batch)
            if result:
                return result
            used[0] += <size_t>self.batch.size
        return STEP_DONE

    cdef int clean_old(self, const uint8_t* message, int64_t base, int64_t position) except -1:
        """Filter a message of format v0 or v1, or those in a wrapper, which is rewritten with its codec if some are removed."""
        cdef BatchInfo original = self.batch
        cdef RecordKey record
        cdef const uint8_t* p
        cdef Py_ssize_t n
        cdef int result
        messages = self.opened(message, base, position)
        kept = set()
        for offset, key, tombstone in messages:
            record.offset_delta = 0
            record.key = NULL
            record.key_bytes = -1
            if key is not None:
                record.key = <const uint8_t*><const char*>key
                record.key_bytes = <int32_t>len(key)
            record.tombstone = tombstone
            self.batch.base_offset = offset
            # The last record of the compacted part is kept, because a message of these formats cannot exist without a record.
            if offset + 1 == self.upper_bound or self.is_kept(&record, self.old_tombstones_stay):
                kept.add(offset)
        self.batch = original
        self.records_read += len(messages)
        self.records_kept += len(kept)
        if len(kept) == len(messages):
            self.check(self.keep_whole(message))
            return 0
        self.check(begin_output(&self.output, self.directory))
        if kept:
            reduced = self.reduce_old((<const char*>message)[:original.size], kept)
            p = reduced
            n = len(reduced)
            result = parse_message(p, <size_t>n, &self.batch)
            if result == 0:
                result = self.keep_whole(p)
            self.batch = original
            self.check(result)
        return 0

    cdef int keep_whole(self, const uint8_t* batch) noexcept nogil:
        # The timestamp of a batch without records does not count: Kafka's tool reports an index entry for it as damage.
        cdef int error = note_batch(&self.output, last_offset_of(&self.batch),
                                    self.batch.max_timestamp if self.batch.record_count else -1)
        return error if error else put_bytes(&self.output, batch, <size_t>self.batch.size)

    cdef int sift_records(self, const uint8_t* p, size_t n, bint* tombstones, int64_t* max_timestamp, int32_t* kept) noexcept nogil:
        """Find the records in p[0:n] of `batch` that are kept, as spans. Returns 0, STEP_CORRUPT or -ENOMEM."""
        cdef const uint8_t* start = p
        cdef const uint8_t* end = p + n
        cdef const uint8_t* before
        cdef RecordKey record
        cdef Span* span = NULL
        cdef int64_t horizon = delete_horizon(&self.batch), timestamp
        cdef bint keep_tombstones = horizon < 0 or self.now_ms < horizon
        cdef int32_t _
        clear_array(&self.spans)
        tombstones[0] = False
        max_timestamp[0] = -1
        kept[0] = 0
        for _ in range(self.batch.record_count):
            before = p
            if read_key(&p, end, &record):
                return STEP_CORRUPT
            if not self.batch.control and not self.is_kept(&record, keep_tombstones):
                span = NULL
                continue
            kept[0] += 1
            if record.tombstone:
                tombstones[0] = True
            timestamp = <int64_t>(<uint64_t>self.batch.base_timestamp + <uint64_t>record.timestamp_delta)
            if timestamp > max_timestamp[0]:
                max_timestamp[0] = timestamp
            if span == NULL:
                span = <Span*>append_item(&self.spans)
                if span == NULL:
                    return -ENOMEM
                span.start = before - start
            span.end = p - start
        if p != end:
            return STEP_CORRUPT
        self.records_read += self.batch.record_count
        self.records_kept += kept[0]
        if self.batch.log_append_time:
            max_timestamp[0] = self.batch.max_timestamp
        return 0

    cdef bint is_kept(self, const RecordKey* record, bint keep_tombstones) noexcept nogil:
        cdef int64_t offset = self.batch.base_offset + record.offset_delta
        if offset > self.latest_offset:
            return True                 # after the offsets that the map covers
        if record.key_bytes < 0:
            self.keyless += 1
            return False
        if record.tombstone and not keep_tombstones:
            return False
        return offset >= get_offset(&self.map, record.key, <size_t>record.key_bytes)

    cdef int64_t new_horizon(self, bint tombstones) noexcept nogil:
        """The horizon that `batch` must get now, because a tombstone or marker in it may be removed later; -1 if it has one or
        needs none."""
        if delete_horizon(&self.batch) >= 0 or not (tombstones or self.verdict.starts_horizon):
            return -1
        if self.delete_retention_ms > INT64_MAX - self.now_ms:
            return -1
        return self.now_ms + self.delete_retention_ms

    cdef int keep_records(self, const uint8_t* batch, const uint8_t* records, bint tombstones, int64_t max_timestamp,
                          int32_t kept) noexcept nogil:
        """Write an uncompressed batch with the kept records; unchanged if all are kept and no horizon begins."""
        cdef uint8_t[BATCH_HEADER_BYTES] head
        cdef int64_t size
        cdef int error
        if kept == self.batch.record_count and self.new_horizon(tombstones) < 0:
            return self.keep_whole(batch)
        error = begin_output(&self.output, self.directory)
        if error == 0:
            error = self.gather(records, tombstones)
        if error:
            return error
        size = BATCH_HEADER_BYTES + self.rebuilt.count
        self.head_of(head, batch, size, tombstones, max_timestamp, kept)
        store32(head + AT_CRC, crc32c(crc32c(0, head + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES),
                                      <const uint8_t*>self.rebuilt.items, <size_t>self.rebuilt.count))
        error = note_batch(&self.output, last_offset_of(&self.batch), max_timestamp)
        if error == 0:
            error = put_bytes(&self.output, head, BATCH_HEADER_BYTES)
        if error == 0:
            error = put_bytes(&self.output, <const uint8_t*>self.rebuilt.items, <size_t>self.rebuilt.count)
        return error

    cdef int gather(self, const uint8_t* records, bint tombstones) noexcept nogil:
        """Copy the records of the spans to `rebuilt`, with other timestamp deltas if the horizon replaces the base timestamp.
        """
        cdef Span* span = <Span*>self.spans.items
        cdef int64_t horizon = self.new_horizon(tombstones), i
        cdef int error = 0
        clear_array(&self.rebuilt)
        for i in range(self.spans.count):
            if horizon < 0 or self.batch.log_append_time:
                error = add_bytes(&self.rebuilt, records + span[i].start, span[i].end - span[i].start)
            else:
                error = restamp_records(records + span[i].start, records + span[i].end,
                                        <int64_t>(<uint64_t>self.batch.base_timestamp - <uint64_t>horizon), &self.rebuilt)
            if error:
                return STEP_CORRUPT if error == -1 else error
        return 0

    cdef void head_of(self, uint8_t* head, const uint8_t* batch, int64_t size, bint tombstones, int64_t max_timestamp,
                      int32_t kept) noexcept nogil:
        cdef int64_t horizon = self.new_horizon(tombstones)
        if horizon < 0:
            put_header(head, batch, size, self.batch.attributes, self.batch.base_timestamp, max_timestamp, kept)
        else:
            put_header(head, batch, size, self.batch.attributes | ATTRIBUTE_DELETE_HORIZON, horizon, max_timestamp, kept)

    cdef int keep_none(self, const uint8_t* batch) noexcept nogil:
        """Handle a batch without kept records: remove it, or keep its header because of the producer's sequence or the log's
        end."""
        cdef uint8_t[BATCH_HEADER_BYTES] head
        cdef int error
        if not self.verdict.keep_empty:
            return begin_output(&self.output, self.directory)
        put_header(head, batch, BATCH_HEADER_BYTES, self.batch.attributes & (ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL
                                                                             | ATTRIBUTE_CONTROL),
                   -1, self.batch.max_timestamp, 0)
        store32(head + AT_CRC, crc32c(0, head + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES))
        if self.batch.size == BATCH_HEADER_BYTES and memcmp(head, batch, BATCH_HEADER_BYTES) == 0:
            return self.keep_whole(batch)
        error = begin_output(&self.output, self.directory)
        if error == 0:
            error = note_batch(&self.output, last_offset_of(&self.batch), -1)
        return error if error else put_bytes(&self.output, head, BATCH_HEADER_BYTES)

    cdef int clean_compressed(self, const uint8_t* batch, int64_t base, int64_t position) except -1:
        """Do the work of `clean_window` for a compressed batch, which is rewritten with its codec."""
        cdef uint8_t[BATCH_HEADER_BYTES] head
        cdef bint tombstones = False
        cdef int32_t kept = 0
        cdef int64_t max_timestamp = -1
        cdef const uint8_t* records
        cdef const uint8_t* packed
        cdef size_t n
        cdef int result
        if self.batch.magic != 2:
            return self.clean_old(batch, base, position)
        plain = self.open_batch(batch, base, position)
        records = plain
        n = len(plain)
        with nogil:
            result = self.sift_records(records, n, &tombstones, &max_timestamp, &kept)
            if result == 0 and kept == 0:
                result = self.keep_none(batch)
            elif result == 0 and kept == self.batch.record_count and self.new_horizon(tombstones) < 0:
                result = self.keep_whole(batch)
            elif result == 0:
                result = self.gather(records, tombstones)
                if result == 0:
                    result = begin_output(&self.output, self.directory)
                if result == 0:
                    result = STEP_CODEC
        if result == STEP_CORRUPT:
            raise self.corrupt(base, position)
        if result == STEP_CODEC:
            closed = self.compress(self.batch.codec, (<const char*>self.rebuilt.items)[:self.rebuilt.count])
            packed = closed
            n = len(closed)
            with nogil:
                self.head_of(head, batch, BATCH_HEADER_BYTES + <int64_t>n, tombstones, max_timestamp, kept)
                store32(head + AT_CRC, crc32c(crc32c(0, head + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES), packed, n))
                result = note_batch(&self.output, last_offset_of(&self.batch), max_timestamp)
                if result == 0:
                    result = put_bytes(&self.output, head, BATCH_HEADER_BYTES)
                if result == 0:
                    result = put_bytes(&self.output, packed, n)
        self.check(result)
        return 0
