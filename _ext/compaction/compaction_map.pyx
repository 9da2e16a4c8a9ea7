"""Builds the map of keys; see `compaction_map.pxd`. No lock is needed, because only closed segments are read."""

import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.unistd cimport close

from odradek._ext.compaction.compacted_records cimport RecordKey, last_offset_of, read_key
from odradek._ext.compaction.compaction_log cimport STEP_CODEC, STEP_CORRUPT, STEP_DONE, STEP_MAP_FULL
from odradek._ext.compaction.compaction_transactions cimport start_transactions, track_batch, track_marker
from odradek._ext.compaction.offset_map cimport begin_map, close_map, put_offset
from odradek._ext.records.record_batch cimport AT_RECORDS, CODEC_NONE
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG
from odradek._ext.storage.lookup cimport LOOKUP_BEYOND, LOOKUP_FOUND, FoundBatch, find_position


cdef class KeyedLog(CompactedLog):
    """The subclass opens the map."""

    def __dealloc__(self):
        close_map(&self.map)

    def build_map(self, sources, int64_t start, int64_t end):
        """Put the keys of the dirty part into the map until it is full. Returns whether it became full."""
        cdef int64_t begin = 0, position, size, base
        cdef int descriptor, result = STEP_DONE
        dirty = [source for source in sources if source.end_offset > start]
        keys = os.urandom(16)
        begin_map(&self.map, end - start, self.load_factor, int.from_bytes(keys[:8], "big"), int.from_bytes(keys[8:], "big"))
        start_transactions(&self.transactions)
        self.latest_offset = -1
        for source in dirty:
            base = source.base_offset
            size = source.size
            self.next_offset = base
            self.segment_end = source.end_offset
            descriptor = self.open_file(base, FILE_LOG)
            try:
                position = self.position_of(descriptor, source, start) if base < start else begin
                while position < size and result != STEP_MAP_FULL:
                    result = self.build_step(descriptor, base, &position, size)
            finally:
                close(descriptor)
            if result == STEP_MAP_FULL:
                return True
            # Offsets may be missing at a segment's end without a trace, so the map covers them as well.
            self.latest_offset = max(self.latest_offset, source.end_offset - 1)
        return False

    def position_of(self, int descriptor, source, int64_t offset):
        """The position in a segment at which the batch with `offset` begins; the segment's start if the index does not contain
        it."""
        cdef FoundBatch batch
        cdef int64_t base = source.base_offset, size = source.size, entries = source.index_bytes // 8
        cdef int result, index = self.open_file(base, FILE_INDEX)
        with nogil:
            result = find_position(descriptor, index, entries, base, size, offset, &batch)
        close(index)
        if result < 0:
            raise file_error(-result, f"{base:020d}.index")
        if result == LOOKUP_BEYOND:
            return size
        return batch.position if result == LOOKUP_FOUND else 0

    cdef int build_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1:
        """Process one buffer of a segment. Returns STEP_DONE or STEP_MAP_FULL."""
        cdef int64_t length = self.fill(descriptor, position[0], size)
        cdef size_t used = 0
        cdef int result
        cdef const uint8_t* plain
        cdef Py_ssize_t n
        with nogil:
            result = self.build_window(self.buffer, <size_t>length, &used)
        if result == STEP_CODEC and self.batch.magic != 2:
            result = self.map_old(self.buffer + used, base, position[0] + <int64_t>used)
            if result == STEP_DONE:
                self.latest_offset = last_offset_of(&self.batch)
                used += <size_t>self.batch.size
        elif result == STEP_CODEC:
            content = self.open_batch(self.buffer + used, base, position[0] + <int64_t>used)
            plain = content
            n = len(content)
            with nogil:
                result = self.map_records(plain, <size_t>n)
            if result == STEP_DONE:
                self.latest_offset = max(self.latest_offset, last_offset_of(&self.batch))
                used += <size_t>self.batch.size
        elif result == STEP_DONE and used == 0:
            self.grow(base, position[0], size, length)
        if result == STEP_CORRUPT:
            raise self.corrupt(base, position[0] + <int64_t>used)
        if result < 0:
            raise MemoryError
        position[0] += <int64_t>used
        self.map_bytes_read += <int64_t>used
        self.pace(used, self.look)
        return result

    cdef int build_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil:
        """Add the keys of the complete batches in p[0:n] to the map."""
        cdef bint aborted = False
        cdef int result
        used[0] = 0
        while used[0] < n:
            result = self.next_batch(p + used[0], n - used[0])
            if result or self.batch.size == 0:
                return result
            self.next_offset = last_offset_of(&self.batch) + 1
            if self.batch.magic == 2:
                if self.batch.control:
                    result = track_marker(&self.transactions, p + used[0], &self.batch, NULL, &aborted)
                else:
                    result = track_batch(&self.transactions, &self.batch, &aborted)
                if result:
                    return result
                if not self.batch.control and not aborted and last_offset_of(&self.batch) >= self.first_dirty_offset:
                    if self.batch.codec != CODEC_NONE and self.batch.record_count:
                        return STEP_CODEC
                    result = self.map_records(p + used[0] + AT_RECORDS, <size_t>self.batch.size - AT_RECORDS)
                    if result:
                        return result
            elif last_offset_of(&self.batch) >= self.first_dirty_offset:
                return STEP_CODEC
            if last_offset_of(&self.batch) >= self.first_dirty_offset:
                self.latest_offset = last_offset_of(&self.batch)
            used[0] += <size_t>self.batch.size
        return STEP_DONE

    cdef int map_records(self, const uint8_t* p, size_t n) noexcept nogil:
        """Add the keys of `batch`, whose records are p[0:n], to the map."""
        cdef const uint8_t* end = p + n
        cdef RecordKey record
        cdef int32_t _
        for _ in range(self.batch.record_count):
            if read_key(&p, end, &record):
                return STEP_CORRUPT
            if record.key_bytes >= 0 and self.batch.base_offset + record.offset_delta >= self.first_dirty_offset:
                if put_offset(&self.map, record.key, <size_t>record.key_bytes, self.batch.base_offset + record.offset_delta):
                    return STEP_MAP_FULL
        return STEP_DONE

    cdef int map_old(self, const uint8_t* message, int64_t base, int64_t position) except -1:
        """Add the keys of a message of format v0 or v1, or of the messages in a wrapper. Returns STEP_DONE or STEP_MAP_FULL."""
        cdef const uint8_t* p
        for offset, key, _ in self.opened(message, base, position):
            if key is not None and offset >= self.first_dirty_offset:
                p = <const uint8_t*><const char*>key
                if put_offset(&self.map, p, <size_t>len(key), offset):
                    return STEP_MAP_FULL
        return STEP_DONE
