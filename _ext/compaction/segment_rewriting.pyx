"""Rewrites segments by the map of keys; see `segment_rewriting.pxd`.

Batches and records are processed natively and without the GIL, which is taken once for each buffer and to decompress and compress
batches. Python filters messages of format v0 and v1 (`clean_message`): only logs that were taken over contain them.
"""

import os

from libc.errno cimport ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memcmp
from posix.unistd cimport close

from odradek._ext.compaction.batch_reader cimport STEP_CODEC, STEP_CORRUPT, STEP_DONE, BatchReader
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
from odradek._ext.compaction.compaction_log cimport CompactedLog, LastOfProducer
from odradek._ext.compaction.compaction_map cimport KeyMap
from odradek._ext.compaction.compaction_transactions cimport start_transactions, track_batch, track_marker
from odradek._ext.compaction.offset_map cimport get_offset
from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.records.codecs cimport CODEC_NONE
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
    BatchInfo,
)
from odradek._ext.shm.faults cimport *
from odradek._ext.storage.log_state cimport append_item, clear_array, free_array

from odradek._ext.compaction.compaction_log import CorruptSegmentError


cdef enum:
    LARGEST_SEGMENT = 0x7FFFFFFF


cdef class SegmentRewriter:
    """The rewriter of a thread that compacts one log after another; the parameters are those of `Compactor`.

    :raises MemoryError: there is no memory for the write buffer.
    """

    def __cinit__(self, CompactedLog log not None, BatchReader reader not None, KeyMap keys not None, compress, reduce_old):
        self.log = log
        self.reader = reader
        self.keys = keys
        self.compress = compress
        self.reduce_old = reduce_old
        self.spans.item_bytes = sizeof(Span)
        self.rebuilt.item_bytes = 1
        if init_output(&self.output) != 0:
            raise MemoryError("no memory for a write buffer")

    def __dealloc__(self):
        free_output(&self.output)
        free_array(&self.spans)
        free_array(&self.rebuilt)

    cdef int begin_pass(self, int64_t now_ms, int64_t upper_bound) except -1:
        self.now_ms = now_ms
        self.upper_bound = upper_bound
        self.bytes_read = self.bytes_written = self.records_read = self.records_kept = self.keyless = 0
        start_transactions(&self.log.transactions)
        return 0

    cdef int end_pass(self) except -1:
        free_array(&self.rebuilt)
        return 0

    cdef int rewrite(self, group, int64_t old_horizon_ns) except -1:
        cdef BatchReader reader = self.reader
        cdef bint alone = len(group) == 1
        cdef int files = 0, result
        last = group[len(group) - 1]
        start_output(&self.output, group[0].base_offset, self.log.index_interval_bytes)
        if not alone:
            self.log.check(begin_output(&self.output, self.log.directory))
        for source in group:
            self.old_tombstones_stay = source.modified_ns > old_horizon_ns
            reader.begin_segment(source)
            self.output.source = reader.descriptor if alone else -1
            try:
                while reader.position < reader.size:
                    self.clean_step()
            finally:
                self.output.source = -1
                reader.end_segment()
        if self.output.descriptor < 0:
            return 0
        self.bytes_written += self.output.position
        if self.output.position > LARGEST_SEGMENT:
            raise CorruptSegmentError(f"{last.base_offset:020d}.log: would grow to {self.output.position} bytes")
        with nogil:
            result = finish_output(&self.output, self.log.directory, &files)
        self.log.check(result)
        os.utime(self.output.descriptor, ns=(last.modified_ns, last.modified_ns))
        fault(CLEANED_WRITTEN)
        return files

    cdef int end_segment(self, bint remove) except -1:
        if self.output.descriptor >= 0:
            close(self.output.descriptor)
            if remove:
                remove_unswapped(self.log.directory, self.output.base_offset)
        self.output.descriptor = -1
        return 0

    # -- batches --------------------------------------------------------------------------------------------------

    cdef int clean_step(self) except -1:
        """Filter one buffer of a segment into the new one."""
        cdef BatchReader reader = self.reader
        cdef int64_t length = reader.fill()
        cdef int64_t before = self.output.position
        cdef size_t used = 0
        cdef int result
        with nogil:
            result = self.clean_window(reader.buffer, <size_t>length, &used)
        if result == STEP_CODEC:
            if reader.batch.magic == 2:
                self.clean_compressed(used)
            else:
                self.clean_message(used)
            used += <size_t>reader.batch.size
        elif result == STEP_CORRUPT:
            raise reader.corrupt(used)
        elif result < 0:
            self.log.check(result)
        elif used == 0:
            reader.grow(length)
        self.bytes_read += <int64_t>used
        reader.advance(used, self.output.position - before if self.output.descriptor >= 0 else 0)
        return 0

    cdef int decide(self, const uint8_t* batch) noexcept nogil:
        """Decide about the batch as a whole (Kafka's checkBatchRetention) and store that in `verdict`. Returns 0, or -ENOMEM."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef Verdict* verdict = &self.verdict
        cdef bint idle = False
        cdef int64_t horizon = delete_horizon(info)
        cdef int error
        if info.control:
            error = track_marker(&self.log.transactions, batch, info, &self.output.transactions, &idle)
            verdict.discard = idle and 0 <= horizon <= self.now_ms
        else:
            error = track_batch(&self.log.transactions, info, &idle)
            verdict.discard = idle
        verdict.starts_horizon = idle and info.control
        verdict.keep_empty = self.keeps_producer() or last_offset_of(info) + 1 == self.upper_bound
        return error

    cdef bint keeps_producer(self) noexcept nogil:
        """Whether the batch preserves the state of an active producer: it is its last batch, or a marker with its epoch."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef const LastOfProducer* last
        if info.producer_id < 0:
            return False
        last = self.log.last_of(info.producer_id)
        if last == NULL:
            return False
        if last.last_offset >= 0:
            return last_offset_of(info) == last.last_offset
        return info.control and info.producer_epoch == last.epoch

    cdef int clean_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil:
        """Filter the complete batches in p[0:n] into the new segment, up to a compressed one that must be decompressed."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef const uint8_t* batch
        cdef Sifted sifted
        cdef int result
        used[0] = 0
        while used[0] < n:
            batch = p + used[0]
            result = self.reader.parse_next(batch, n - used[0])
            if result or info.size == 0:
                return result
            self.reader.next_offset = last_offset_of(info) + 1
            if info.magic != 2:
                return STEP_CODEC
            result = self.decide(batch)
            if result == 0 and not self.verdict.discard and info.codec != CODEC_NONE and info.record_count:
                return STEP_CODEC
            if result == 0 and not self.verdict.discard:
                result = self.sift_records(batch + AT_RECORDS, <size_t>info.size - AT_RECORDS, &sifted)
                if result == 0 and sifted.kept:
                    result = self.keep_records(batch, batch + AT_RECORDS, &sifted)
                elif result == 0:
                    result = self.keep_none(batch)
            elif result == 0:
                self.records_read += info.record_count
                result = self.keep_none(batch)
            if result:
                return result
            used[0] += <size_t>info.size
        return STEP_DONE

    cdef int clean_compressed(self, size_t used) except -1:
        """Do the work of `clean_window` for the compressed batch at `used` in the buffer, which is rewritten with its codec."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef const uint8_t* batch = self.reader.buffer + used
        cdef Sifted sifted
        cdef const uint8_t* records
        cdef const uint8_t* packed
        cdef size_t n
        cdef int result
        plain = self.reader.open_batch(used)
        records = plain
        n = len(plain)
        with nogil:
            result = self.sift_records(records, n, &sifted)
            if result == 0 and sifted.kept == 0:
                result = self.keep_none(batch)
            elif result == 0 and sifted.kept == info.record_count and self.new_horizon(sifted.tombstones) < 0:
                result = self.keep_whole(batch, info)
            elif result == 0:
                result = self.gather(records, sifted.tombstones)
                if result == 0:
                    result = begin_output(&self.output, self.log.directory)
                if result == 0:
                    result = STEP_CODEC
        if result == STEP_CORRUPT:
            raise self.reader.corrupt(used)
        if result == STEP_CODEC:
            closed = self.compress(info.codec, (<const char*>self.rebuilt.items)[:self.rebuilt.count])
            packed = closed
            n = len(closed)
            with nogil:
                result = self.put_rebuilt(batch, packed, n, &sifted)
        self.log.check(result)
        return 0

    cdef int clean_message(self, size_t used) except -1:
        """Filter the message of format v0 or v1 at `used` in the buffer, or those in a wrapper, which is rewritten with its codec
        if some are removed."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef const uint8_t* message = self.reader.buffer + used
        cdef BatchInfo reduced_info
        cdef RecordKey record
        cdef const uint8_t* p
        cdef Py_ssize_t n
        cdef int result
        messages = self.reader.open_message(used)
        kept = set()
        for offset, key, tombstone in messages:
            record.key = NULL
            record.key_bytes = -1
            if key is not None:
                record.key = <const uint8_t*><const char*>key
                record.key_bytes = <int32_t>len(key)
            record.tombstone = tombstone
            # The last record of the compacted part is kept, because a message of these formats cannot exist without a record.
            if offset + 1 == self.upper_bound or self.is_kept(&record, offset, self.old_tombstones_stay):
                kept.add(offset)
        self.records_read += len(messages)
        self.records_kept += len(kept)
        if len(kept) == len(messages):
            self.log.check(self.keep_whole(message, info))
            return 0
        self.log.check(begin_output(&self.output, self.log.directory))
        if kept:
            reduced = self.reduce_old((<const char*>message)[:info.size], kept)
            p = reduced
            n = len(reduced)
            result = parse_message(p, <size_t>n, &reduced_info)
            if result == 0:
                result = self.keep_whole(p, &reduced_info)
            self.log.check(result)
        return 0

    # -- records --------------------------------------------------------------------------------------------------

    cdef int sift_records(self, const uint8_t* p, size_t n, Sifted* sifted) noexcept nogil:
        """Find the records in p[0:n] of the batch that are kept, as `spans`. Returns 0, STEP_CORRUPT or -ENOMEM."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef const uint8_t* start = p
        cdef const uint8_t* end = p + n
        cdef const uint8_t* before
        cdef RecordKey record
        cdef Span* span = NULL
        cdef int64_t horizon = delete_horizon(info), timestamp
        cdef bint keep_tombstones = horizon < 0 or self.now_ms < horizon
        cdef int32_t _
        clear_array(&self.spans)
        sifted.kept = 0
        sifted.tombstones = False
        sifted.max_timestamp = -1
        for _ in range(info.record_count):
            before = p
            if read_key(&p, end, &record):
                return STEP_CORRUPT
            if not info.control and not self.is_kept(&record, info.base_offset + record.offset_delta, keep_tombstones):
                span = NULL
                continue
            sifted.kept += 1
            if record.tombstone:
                sifted.tombstones = True
            timestamp = <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>record.timestamp_delta)
            if timestamp > sifted.max_timestamp:
                sifted.max_timestamp = timestamp
            if span == NULL:
                span = <Span*>append_item(&self.spans)
                if span == NULL:
                    return -ENOMEM
                span.start = before - start
            span.end = p - start
        if p != end:
            return STEP_CORRUPT
        self.records_read += info.record_count
        self.records_kept += sifted.kept
        if info.log_append_time:
            sifted.max_timestamp = info.max_timestamp
        return 0

    cdef bint is_kept(self, const RecordKey* record, int64_t offset, bint keep_tombstones) noexcept nogil:
        if offset > self.keys.latest_offset:
            return True                 # after the offsets that the map covers
        if record.key_bytes < 0:
            self.keyless += 1
            return False
        if record.tombstone and not keep_tombstones:
            return False
        return offset >= get_offset(&self.keys.map, record.key, <size_t>record.key_bytes)

    cdef int64_t new_horizon(self, bint tombstones) noexcept nogil:
        """The horizon that the batch must get now, because a tombstone or marker in it may be removed later; -1 if it has one or
        needs none."""
        if delete_horizon(&self.reader.batch) >= 0 or not (tombstones or self.verdict.starts_horizon):
            return -1
        if self.log.delete_retention_ms > INT64_MAX - self.now_ms:
            return -1
        return self.now_ms + self.log.delete_retention_ms

    cdef int gather(self, const uint8_t* records, bint tombstones) noexcept nogil:
        """Copy the records of the spans to `rebuilt`, with other timestamp deltas if the horizon replaces the base timestamp.
        """
        cdef const BatchInfo* info = &self.reader.batch
        cdef Span* span = <Span*>self.spans.items
        cdef int64_t horizon = self.new_horizon(tombstones), i
        cdef int error = 0
        clear_array(&self.rebuilt)
        for i in range(self.spans.count):
            if horizon < 0 or info.log_append_time:
                error = add_bytes(&self.rebuilt, records + span[i].start, span[i].end - span[i].start)
            else:
                error = restamp_records(records + span[i].start, records + span[i].end,
                                        <int64_t>(<uint64_t>info.base_timestamp - <uint64_t>horizon), &self.rebuilt)
            if error:
                return STEP_CORRUPT if error == -1 else error
        return 0

    # -- writing --------------------------------------------------------------------------------------------------

    cdef int keep_whole(self, const uint8_t* batch, const BatchInfo* info) noexcept nogil:
        # The timestamp of a batch without records does not count: Kafka's tool reports an index entry for it as damage.
        cdef int error = note_batch(&self.output, last_offset_of(info), info.max_timestamp if info.record_count else -1)
        return error if error else put_bytes(&self.output, batch, <size_t>info.size)

    cdef int keep_records(self, const uint8_t* batch, const uint8_t* records, const Sifted* sifted) noexcept nogil:
        """Write an uncompressed batch with the kept records; unchanged if all are kept and no horizon begins."""
        cdef int error
        if sifted.kept == self.reader.batch.record_count and self.new_horizon(sifted.tombstones) < 0:
            return self.keep_whole(batch, &self.reader.batch)
        error = begin_output(&self.output, self.log.directory)
        if error == 0:
            error = self.gather(records, sifted.tombstones)
        if error:
            return error
        return self.put_rebuilt(batch, <const uint8_t*>self.rebuilt.items, <size_t>self.rebuilt.count, sifted)

    cdef int put_rebuilt(self, const uint8_t* batch, const uint8_t* records, size_t n, const Sifted* sifted) noexcept nogil:
        """Write the batch with these records, compressed or not, in place of its own."""
        cdef uint8_t[BATCH_HEADER_BYTES] head
        cdef int error
        self.head_of(head, batch, BATCH_HEADER_BYTES + <int64_t>n, sifted)
        store32(head + AT_CRC, crc32c(crc32c(0, head + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES), records, n))
        error = note_batch(&self.output, last_offset_of(&self.reader.batch), sifted.max_timestamp)
        if error == 0:
            error = put_bytes(&self.output, head, BATCH_HEADER_BYTES)
        return error if error else put_bytes(&self.output, records, n)

    cdef void head_of(self, uint8_t* head, const uint8_t* batch, int64_t size, const Sifted* sifted) noexcept nogil:
        cdef const BatchInfo* info = &self.reader.batch
        cdef int64_t horizon = self.new_horizon(sifted.tombstones)
        if horizon < 0:
            put_header(head, batch, size, info.attributes, info.base_timestamp, sifted.max_timestamp, sifted.kept)
        else:
            put_header(head, batch, size, info.attributes | ATTRIBUTE_DELETE_HORIZON, horizon, sifted.max_timestamp, sifted.kept)

    cdef int keep_none(self, const uint8_t* batch) noexcept nogil:
        """Handle a batch without kept records: remove it, or keep its header because of the producer's sequence or the log's
        end."""
        cdef const BatchInfo* info = &self.reader.batch
        cdef uint8_t[BATCH_HEADER_BYTES] head
        cdef int error
        if not self.verdict.keep_empty:
            return begin_output(&self.output, self.log.directory)
        put_header(head, batch, BATCH_HEADER_BYTES,
                   info.attributes & (ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL), -1,
                   info.max_timestamp, 0)
        store32(head + AT_CRC, crc32c(0, head + AT_ATTRIBUTES, BATCH_HEADER_BYTES - AT_ATTRIBUTES))
        if info.size == BATCH_HEADER_BYTES and memcmp(head, batch, BATCH_HEADER_BYTES) == 0:
            return self.keep_whole(batch, info)
        error = begin_output(&self.output, self.log.directory)
        if error == 0:
            error = note_batch(&self.output, last_offset_of(info), -1)
        return error if error else put_bytes(&self.output, head, BATCH_HEADER_BYTES)
