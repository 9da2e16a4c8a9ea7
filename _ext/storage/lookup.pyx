"""Finds offsets and timestamps in a segment, only with pread: indexes are never mapped.

Used by workers for Fetch and ListOffsets, and by recovery, on descriptors and committed counts that the caller took from one
snapshot of the slot. An index is read in blocks of 4 KiB. Offsets grow about evenly with entries, so the first guess is
proportional, and most look-ups read one block of the index and one of the log.
"""

import os

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc

from odradek._ext.protocol.byte_order cimport load32, load64
from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.protocol.kafka_errors cimport INVALID_RECORD, NO_ERROR
from odradek._ext.records.codecs cimport CODEC_NONE
from odradek._ext.records.old_messages cimport parse_message
from odradek._ext.records.record_batch cimport AT_RECORDS, BatchInfo, parse_batch_header, read_varint, read_varlong
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek._ext.storage.log_scan cimport SCAN_BATCH, SCAN_END, Scanner, read_at, scan_batch, scan_file


cdef enum:
    BLOCK_BYTES = 4096
    SCAN_BYTES = 8192
    NO_BATCH = 100              # distinguishes it from a batch without a matching record


cdef inline int64_t key_at(const uint8_t* entry, int entry_bytes) noexcept nogil:
    """The key by which an index is sorted: the relative offset, or the timestamp."""
    if entry_bytes == OFFSET_ENTRY_BYTES:
        return <int32_t>load32(entry)
    return <int64_t>load64(entry)


cdef int floor_entry(int descriptor, int64_t entries, int entry_bytes, int64_t target, uint8_t* out) noexcept nogil:
    """Find the last entry whose key is not above `target` and copy it to `out`. Returns 1, 0 if there is none, or -errno."""
    cdef uint8_t[BLOCK_BYTES] block
    cdef int64_t per_block = BLOCK_BYTES // entry_bytes
    cdef int64_t low = 0                    # entries[low:high] may contain the first entry above the target
    cdef int64_t high = entries
    cdef int64_t low_key = 0
    cdef int64_t high_key = -1
    cdef int64_t start
    cdef int64_t count
    cdef int64_t left
    cdef int64_t right
    cdef int64_t got
    cdef double share
    cdef int result = 0
    cdef int step = 0
    while low < high:
        start = low + (high - low) // 2
        if step % 2 == 0:
            if high_key > low_key and low_key <= target < high_key:
                share = (<double>target - <double>low_key) / (<double>high_key - <double>low_key)
                if 0 <= share < 1:          # otherwise the keys are too far apart, or too close, for a double
                    start = low + <int64_t>(<double>(high - low) * share)
            elif step == 0:
                start = high - 1            # most requests are for the tail
        step += 1
        start -= start % per_block
        start = low if start < low else start
        count = high - start if high - start < per_block else per_block
        got = read_at(descriptor, block, <size_t>(count * entry_bytes), start * entry_bytes)
        if got < 0:
            return <int>got
        if got < count * entry_bytes:       # shorter than expected: use the entries that exist
            high = start + got // entry_bytes
            count = got // entry_bytes
            if count == 0:
                continue
        if key_at(block, entry_bytes) > target:
            high = start
            high_key = key_at(block, entry_bytes)
            continue
        left = 0                            # the last entry of the block not above the target
        right = count
        while right - left > 1:
            got = (left + right) // 2
            if key_at(block + got * entry_bytes, entry_bytes) <= target:
                left = got
            else:
                right = got
        for got in range(entry_bytes):
            out[got] = block[left * entry_bytes + got]
        result = 1
        if right < count:
            return 1
        low = start + count
        low_key = key_at(block + left * entry_bytes, entry_bytes)
    return result


cdef int floor_index_entry(int index_fd, int64_t entries, int64_t segment_base, int64_t target_offset,
                           int64_t* offset, int64_t* position) noexcept nogil:
    cdef uint8_t[16] entry
    cdef int result
    result = floor_entry(index_fd, entries, OFFSET_ENTRY_BYTES, target_offset - segment_base, entry)
    if result == 1:
        offset[0] = segment_base + <int32_t>load32(entry)
        position[0] = <int32_t>load32(entry + 4)
    return result


cdef int find_offset_behind(int index_fd, int64_t entries, int64_t segment_base, int64_t position, int64_t size,
                            int64_t* offset) noexcept nogil:
    """The positions grow about evenly with the entries, so the first guess is proportional, and most look-ups read one block."""
    cdef uint8_t[BLOCK_BYTES] block
    cdef int64_t per_block = BLOCK_BYTES // OFFSET_ENTRY_BYTES
    cdef int64_t low = 0, high = entries        # the wanted entry is in entries[low:high], or `found` is that of entries[high]
    cdef int64_t guess = <int64_t>(<double>entries * <double>position / <double>size) if 0 <= position < size else entries
    cdef int64_t found = -1, start, count, got, left, right
    while low < high:
        start = max(low, min(guess - per_block // 2, high - per_block))
        count = min(per_block, high - start)
        got = read_at(index_fd, block, <size_t>(count * OFFSET_ENTRY_BYTES), start * OFFSET_ENTRY_BYTES)
        if got < 0:
            return <int>got
        count = got // OFFSET_ENTRY_BYTES
        if count == 0:                          # shorter than expected
            high = start
            found = -1
        elif <int32_t>load32(block + 4) >= position:
            high = start
            found = segment_base + <int32_t>load32(block)
        elif <int32_t>load32(block + (count - 1) * OFFSET_ENTRY_BYTES + 4) < position:
            low = start + count
        else:
            left = 0                            # begins before the position; `right` does not
            right = count - 1
            while right - left > 1:
                got = (left + right) // 2
                if <int32_t>load32(block + got * OFFSET_ENTRY_BYTES + 4) >= position:
                    right = got
                else:
                    left = got
            offset[0] = segment_base + <int32_t>load32(block + right * OFFSET_ENTRY_BYTES)
            return <int32_t>load32(block + right * OFFSET_ENTRY_BYTES) > <int32_t>load32(block + left * OFFSET_ENTRY_BYTES)
        guess = (low + high) // 2
    offset[0] = found
    return found >= 0


cdef int floor_time_entry(int time_fd, int64_t entries, int64_t segment_base, int64_t target_timestamp,
                          int64_t* timestamp, int64_t* offset) noexcept nogil:
    cdef uint8_t[16] entry
    cdef int result = floor_entry(time_fd, entries, TIME_ENTRY_BYTES, target_timestamp, entry)
    if result == 1:
        timestamp[0] = <int64_t>load64(entry)
        offset[0] = segment_base + <int32_t>load32(entry + 8)
    return result


cdef inline void describe(FoundBatch* out, int64_t position, const BatchInfo* info) noexcept nogil:
    out.position = position
    out.base_offset = info.base_offset
    out.last_offset = info.base_offset + info.last_offset_delta
    out.max_timestamp = info.max_timestamp
    out.size = info.size
    out.partition_leader_epoch = info.partition_leader_epoch


cdef int scan_from(int log_fd, int64_t position, int64_t size_limit, int64_t target_offset, int64_t target_timestamp,
                   bint by_time, FoundBatch* out) noexcept nogil:
    """Find the first batch from `position` on that ends at the offset or later and, if `by_time`, reaches the timestamp."""
    cdef uint8_t[SCAN_BYTES] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int result
    scan_file(&scanner, log_fd, size_limit, buffer, SCAN_BYTES)
    while True:
        result = scan_batch(&scanner, position, &info)
        if result != SCAN_BATCH:
            if result < 0:
                return result
            return LOOKUP_BEYOND if result == SCAN_END else LOOKUP_CORRUPT
        if info.base_offset + info.last_offset_delta >= target_offset \
                and (not by_time or info.max_timestamp >= target_timestamp):
            describe(out, position, &info)
            return LOOKUP_FOUND
        position += info.size


cdef int find_position(int log_fd, int index_fd, int64_t index_entries, int64_t segment_base, int64_t size_limit,
                       int64_t target_offset, FoundBatch* out) noexcept nogil:
    cdef int64_t offset = -1
    cdef int64_t position = 0
    cdef int result = 0
    if index_entries > 0:
        result = floor_index_entry(index_fd, index_entries, segment_base, target_offset, &offset, &position)
        if result < 0:
            return result
    if result == 1 and 0 < position < size_limit:
        result = scan_from(log_fd, position, size_limit, target_offset, 0, False, out)
        # If an index points into the middle of a batch, scan from the start instead of returning a wrong result.
        if result != LOOKUP_CORRUPT:
            return result
    return scan_from(log_fd, 0, size_limit, target_offset, 0, False, out)


cdef int find_timestamp_batch(int log_fd, int index_fd, int64_t index_entries, int time_fd, int64_t time_entries,
                              int64_t segment_base, int64_t size_limit, int64_t target_timestamp, int64_t from_offset,
                              int64_t from_position, FoundBatch* out) noexcept nogil:
    cdef int64_t timestamp = -1
    cdef int64_t offset = -1
    cdef int64_t start_offset = from_offset if from_offset > segment_base else segment_base
    cdef int64_t position = 0
    cdef int result
    if from_position > 0:
        return scan_from(log_fd, from_position, size_limit, from_offset, target_timestamp, True, out)
    if time_entries > 0:
        result = floor_time_entry(time_fd, time_entries, segment_base, target_timestamp, &timestamp, &offset)
        if result < 0:
            return result
        if result == 1 and offset > start_offset:
            start_offset = offset
    if index_entries > 0:
        result = floor_index_entry(index_fd, index_entries, segment_base, start_offset, &offset, &position)
        if result < 0:
            return result
        if result == 0 or not 0 < position < size_limit:
            position = 0
    result = scan_from(log_fd, position, size_limit, from_offset, target_timestamp, True, out)
    if result == LOOKUP_CORRUPT and position > 0:
        result = scan_from(log_fd, 0, size_limit, from_offset, target_timestamp, True, out)
    return result


cdef int search_records(const uint8_t* p, const uint8_t* end, const BatchInfo* info, int64_t target_timestamp,
                        int64_t from_offset, FoundRecord* out) noexcept nogil:
    """Search uncompressed records. They were checked when they were appended; reading is bounded nevertheless."""
    cdef int32_t length = 0
    cdef int32_t offset_delta = 0
    cdef int64_t timestamp_delta = 0
    cdef const uint8_t* stop
    cdef int32_t _
    for _ in range(info.record_count):
        if read_varint(&p, end, &length) or length < 1 or length > end - p:
            return LOOKUP_CORRUPT
        stop = p + length
        p += 1
        if read_varlong(&p, stop, &timestamp_delta) or read_varint(&p, stop, &offset_delta):
            return LOOKUP_CORRUPT
        out.offset = info.base_offset + offset_delta
        out.timestamp = info.max_timestamp if info.log_append_time else \
            <int64_t>(<uint64_t>info.base_timestamp + <uint64_t>timestamp_delta)
        if out.timestamp >= target_timestamp and out.offset >= from_offset:
            out.partition_leader_epoch = info.partition_leader_epoch
            return LOOKUP_FOUND
        p = stop
    return LOOKUP_BEYOND


cdef bint parse_any(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil:
    """Parse the header of a batch or an old message. Returns False if it is neither."""
    cdef int error = parse_batch_header(p, n, out)
    if error == INVALID_RECORD:
        error = parse_message(p, n, out)
    return error == NO_ERROR


cdef int find_record(int log_fd, const FoundBatch* batch, int64_t target_timestamp, int64_t from_offset,
                     FoundRecord* out) noexcept nogil:
    cdef BatchInfo info
    cdef int result
    cdef int64_t length
    cdef uint8_t* content = <uint8_t*>malloc(<size_t>batch.size)
    if content == NULL:
        return -ENOMEM
    length = read_at(log_fd, content, <size_t>batch.size, batch.position)
    if length < 0:
        result = <int>length
    elif length < batch.size or not parse_any(content, <size_t>length, &info):
        result = LOOKUP_CORRUPT
    elif info.codec != CODEC_NONE:
        result = LOOKUP_COMPRESSED
    elif info.magic < 2:                # one message: the one that reaches the timestamp
        out.offset = info.base_offset
        out.timestamp = info.max_timestamp
        out.partition_leader_epoch = -1
        result = LOOKUP_FOUND if out.timestamp >= target_timestamp and out.offset >= from_offset else LOOKUP_BEYOND
    else:
        result = search_records(content + AT_RECORDS, content + batch.size, &info, target_timestamp, from_offset, out)
    free(content)
    return result


class CorruptLogError(Exception):
    """A log file of this broker does not contain a batch or message where one should begin."""


def find_in_records(batch, records, int64_t target_timestamp,
                    int64_t from_offset) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that is not before either limit; None if there is none.

    :param batch: with its header. :param records: the batch's records, not compressed.
    :raises ValueError: the records do not belong to the batch.
    """
    cdef ByteView batch_view = ByteView(batch)
    cdef ByteView records_view = ByteView(records)
    cdef BatchInfo info
    cdef FoundRecord record
    cdef int result = LOOKUP_CORRUPT
    cdef const uint8_t* at = records_view.data if records_view.size else NULL
    if batch_view.size and parse_batch_header(batch_view.data, batch_view.size, &info) == NO_ERROR:
        with nogil:
            result = search_records(at, at + records_view.size, &info, target_timestamp, from_offset, &record)
    if result == LOOKUP_CORRUPT:
        raise ValueError("the records of a batch are not well formed")
    return (record.offset, record.timestamp) if result == LOOKUP_FOUND else None


def time_of(int log_fd, int index_fd, int64_t index_entries, int time_fd, int64_t time_entries, int64_t segment_base,
            int64_t size_limit, int64_t target_timestamp, int64_t from_offset, find_compressed) -> tuple[int, int, int] | None:
    """The first record at or after `target_timestamp` (ms) and `from_offset`: (offset, timestamp, leader epoch), or None.

    find_compressed: called with the bytes of a compressed batch or wrapper, the timestamp and the offset; returns (offset,
    timestamp) of its first record that is not before either, or None.
    Raises CorruptLogError, OSError, and the exceptions of find_compressed.
    """
    cdef FoundBatch batch
    cdef FoundRecord record
    cdef int64_t from_position = 0
    cdef int result
    while True:
        with nogil:
            result = find_timestamp_batch(log_fd, index_fd, index_entries, time_fd, time_entries, segment_base,
                                          size_limit, target_timestamp, from_offset, from_position, &batch)
            if result == LOOKUP_FOUND:
                result = find_record(log_fd, &batch, target_timestamp, from_offset, &record)
            elif result == LOOKUP_BEYOND:
                result = NO_BATCH
        if result == LOOKUP_FOUND:
            return record.offset, record.timestamp, record.partition_leader_epoch
        if result < 0:
            raise OSError(-result, "looking up a timestamp")
        if result == LOOKUP_CORRUPT:
            raise CorruptLogError(f"no batch where timestamp {target_timestamp} should be, segment {segment_base}")
        if result == NO_BATCH:
            return None
        if result == LOOKUP_COMPRESSED:
            content = os.pread(log_fd, batch.size, batch.position)
            if len(content) != batch.size:
                raise CorruptLogError(f"the batch at {batch.position} ends early, segment {segment_base}")
            place = find_compressed(content, target_timestamp, from_offset)
            if place is not None:
                return *place, batch.partition_leader_epoch
        from_position = batch.position + batch.size
