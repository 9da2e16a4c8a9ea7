"""Builds the map of keys; see `compaction_map.pxd`. No lock is needed, because only closed segments are read."""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.unistd cimport close

from odradek._ext.compaction.batch_reader cimport STEP_CODEC, STEP_CORRUPT, STEP_DONE, STEP_MAP_FULL, BatchReader
from odradek._ext.compaction.compacted_records cimport RecordKey, last_offset_of, read_key
from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.compaction.compaction_transactions cimport start_transactions, track_batch, track_marker
from odradek._ext.compaction.offset_map cimport begin_map, close_map, open_map, put_offset
from odradek._ext.records.codecs cimport CODEC_NONE
from odradek._ext.records.record_batch cimport AT_RECORDS, BatchInfo
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES
from odradek._ext.storage.log_state cimport FILE_INDEX
from odradek._ext.storage.lookup cimport LOOKUP_BEYOND, LOOKUP_FOUND, FoundBatch, find_position


cdef class KeyMap:
    """The map of a thread that compacts one log after another; the parameters are those of `Compactor`.

    :raises MemoryError: there is no memory for the map. :raises ValueError: the map would not hold two keys.
    """

    def __cinit__(self, CompactedLog log not None, BatchReader reader not None, size_t map_bytes, double load_factor):
        self.log = log
        self.reader = reader
        self.load_factor = load_factor
        if map_bytes // 24 * load_factor <= 2:
            raise ValueError(f"{map_bytes} bytes x {load_factor} cannot hold the keys of two records: increase "
                             "log.cleaner.dedupe.buffer.size or reduce log.cleaner.threads")
        if open_map(&self.map, map_bytes) != 0:
            raise MemoryError(f"no memory for the map of keys: {map_bytes} bytes")

    def __dealloc__(self):
        close_map(&self.map)

    cdef bint build(self, sources, int64_t start, int64_t end) except *:
        cdef BatchReader reader = self.reader
        cdef int result = STEP_DONE
        keys = os.urandom(16)
        begin_map(&self.map, end - start, self.load_factor, int.from_bytes(keys[:8], "big"), int.from_bytes(keys[8:], "big"))
        start_transactions(&self.log.transactions)
        self.first_dirty_offset = start
        self.latest_offset = -1
        self.bytes_read = 0
        for source in sources:
            if source.end_offset <= start:
                continue
            reader.begin_segment(source)
            try:
                if source.base_offset < start:
                    reader.position = self.position_of(source, start)
                while reader.position < reader.size and result != STEP_MAP_FULL:
                    result = self.build_step()
            finally:
                reader.end_segment()
            if result == STEP_MAP_FULL:
                return True
            # Offsets may be missing at a segment's end without a trace, so the map covers them as well.
            self.latest_offset = max(self.latest_offset, source.end_offset - 1)
        return False

    cdef int64_t position_of(self, source, int64_t offset) except -1:
        """The position in the open segment at which the batch with `offset` begins; the segment's start if the index does not
        contain it."""
        cdef FoundBatch batch
        cdef int64_t base = source.base_offset, entries = source.index_bytes // OFFSET_ENTRY_BYTES
        cdef int result, index = self.log.open_file(base, FILE_INDEX)
        with nogil:
            result = find_position(self.reader.descriptor, index, entries, base, self.reader.size, offset, &batch)
        close(index)
        if result < 0:
            raise file_error(-result, f"{base:020d}.index")
        if result == LOOKUP_BEYOND:
            return self.reader.size
        return batch.position if result == LOOKUP_FOUND else 0

    cdef int build_step(self) except -1:
        """Process one buffer of a segment. Returns STEP_DONE or STEP_MAP_FULL."""
        cdef BatchReader reader = self.reader
        cdef int64_t length = reader.fill()
        cdef size_t used = 0
        cdef int result
        cdef const uint8_t* plain
        cdef Py_ssize_t n
        with nogil:
            result = self.build_window(reader.buffer, <size_t>length, &used)
        if result == STEP_CODEC and reader.batch.magic != 2:
            result = self.map_message(used)
            if result == STEP_DONE:
                self.latest_offset = last_offset_of(&reader.batch)
                used += <size_t>reader.batch.size
        elif result == STEP_CODEC:
            content = reader.open_batch(used)
            plain = content
            n = len(content)
            with nogil:
                result = self.map_records(plain, <size_t>n)
            if result == STEP_DONE:
                self.latest_offset = max(self.latest_offset, last_offset_of(&reader.batch))
                used += <size_t>reader.batch.size
        elif result == STEP_DONE and used == 0:
            reader.grow(length)
        if result == STEP_CORRUPT:
            raise reader.corrupt(used)
        if result < 0:
            raise MemoryError
        self.bytes_read += <int64_t>used
        reader.advance(used, 0)
        return result

    cdef int build_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil:
        """Add the keys of the complete batches in p[0:n] to the map."""
        cdef const BatchInfo* batch = &self.reader.batch
        cdef bint aborted = False
        cdef int result
        used[0] = 0
        while used[0] < n:
            result = self.reader.parse_next(p + used[0], n - used[0])
            if result or batch.size == 0:
                return result
            self.reader.next_offset = last_offset_of(batch) + 1
            if batch.magic == 2:
                if batch.control:
                    result = track_marker(&self.log.transactions, p + used[0], batch, NULL, &aborted)
                else:
                    result = track_batch(&self.log.transactions, batch, &aborted)
                if result:
                    return result
                if not batch.control and not aborted and last_offset_of(batch) >= self.first_dirty_offset:
                    if batch.codec != CODEC_NONE and batch.record_count:
                        return STEP_CODEC
                    result = self.map_records(p + used[0] + AT_RECORDS, <size_t>batch.size - AT_RECORDS)
                    if result:
                        return result
            elif last_offset_of(batch) >= self.first_dirty_offset:
                return STEP_CODEC
            if last_offset_of(batch) >= self.first_dirty_offset:
                self.latest_offset = last_offset_of(batch)
            used[0] += <size_t>batch.size
        return STEP_DONE

    cdef int map_records(self, const uint8_t* p, size_t n) noexcept nogil:
        """Add the keys of the reader's batch, whose records are p[0:n], to the map."""
        cdef const BatchInfo* batch = &self.reader.batch
        cdef const uint8_t* end = p + n
        cdef RecordKey record
        cdef int32_t _
        for _ in range(batch.record_count):
            if read_key(&p, end, &record):
                return STEP_CORRUPT
            if record.key_bytes >= 0 and batch.base_offset + record.offset_delta >= self.first_dirty_offset:
                if put_offset(&self.map, record.key, <size_t>record.key_bytes, batch.base_offset + record.offset_delta):
                    return STEP_MAP_FULL
        return STEP_DONE

    cdef int map_message(self, size_t used) except -1:
        """Add the keys of a message of format v0 or v1, or of the messages in a wrapper. Returns STEP_DONE or STEP_MAP_FULL."""
        cdef const uint8_t* p
        for offset, key, _ in self.reader.open_message(used):
            if key is not None and offset >= self.first_dirty_offset:
                p = <const uint8_t*><const char*>key
                if put_offset(&self.map, p, <size_t>len(key), offset):
                    return STEP_MAP_FULL
        return STEP_DONE
