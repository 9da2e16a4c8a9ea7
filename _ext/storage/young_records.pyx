"""Finds the first record of a segment that is young enough to be kept, for odradek.retention.exact.

Runs in the cleaner, on descriptors and committed counts that were read at one moment. The definition is that of ListOffsets by
time: the first record, in the order of offsets, whose timestamp is not below a limit. Records without a timestamp (from clients
before 0.10) count as young if the next record with a timestamp is young: they were appended before that record, and after the
last one that is too old.
"""

import os

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.log_scan cimport SCAN_BATCH, SCAN_CORRUPT, SCAN_END, Scanner, scan_batch, scan_file
from odradek._ext.storage.lookup cimport (
    LOOKUP_BEYOND,
    LOOKUP_CORRUPT,
    LOOKUP_FOUND,
    FoundBatch,
    FoundRecord,
    find_record,
    floor_index_entry,
    floor_time_entry,
)

from odradek._ext.storage.lookup import CorruptLogError


cdef enum:
    SCAN_BYTES = 8192
    STEP_BYTES = 16 << 20         # of the log, between two calls of `beat`
    LOOKUP_PAUSED = 100


cdef struct Walk:                 # over the batches of a segment
    int64_t position              # of the next batch
    int64_t limit_timestamp
    int64_t from_offset
    int64_t next_offset           # where the next batch begins
    int64_t start_offset          # of the index entry at which the walk began; the first batch must not begin after it
    bint by_index                 # the index entry is not checked yet
    int64_t undated               # first offset of the current sequence of records without a timestamp that ends there, -1: none


cdef int start_position(int index_fd, int64_t index_entries, int time_fd, int64_t time_entries, int64_t segment_base,
                        int64_t size_limit, Walk* walk) noexcept nogil:
    """Find the begin of the walk: after records that are too old according to the indexes, or below `from_offset`. Returns 0,
    or -errno."""
    cdef int64_t timestamp = -1, offset = -1, start = max(walk.from_offset, segment_base)
    cdef int result
    walk.position = 0
    if time_entries > 0:
        # Strictly below the limit: the walk must include a record without a timestamp directly before the first young one.
        result = floor_time_entry(time_fd, time_entries, segment_base, walk.limit_timestamp - 1, &timestamp, &offset)
        if result < 0:
            return result
        if result == 1 and offset > start:
            start = offset
    if index_entries > 0:
        result = floor_index_entry(index_fd, index_entries, segment_base, start, &offset, &walk.position)
        if result < 0:
            return result
        if result == 0 or not 0 < walk.position < size_limit:
            walk.position = 0
    walk.start_offset = start
    walk.by_index = walk.position > 0
    return 0


cdef int next_young_batch(int log_fd, int64_t size_limit, Walk* walk, FoundBatch* out) noexcept nogil:
    """Go to the next batch whose largest timestamp is not below the limit. Returns LOOKUP_FOUND, LOOKUP_PAUSED after
    STEP_BYTES, LOOKUP_BEYOND, LOOKUP_CORRUPT, or -errno. The walk is then at the end of that batch."""
    cdef uint8_t[SCAN_BYTES] buffer
    cdef Scanner scanner
    cdef BatchInfo info
    cdef int64_t last, pause = walk.position + STEP_BYTES
    cdef int result
    scan_file(&scanner, log_fd, size_limit, buffer, SCAN_BYTES)
    while walk.position < pause:
        result = scan_batch(&scanner, walk.position, &info)
        if walk.by_index:
            walk.by_index = False
            if result == SCAN_END or result == SCAN_CORRUPT or (result == SCAN_BATCH and info.base_offset > walk.start_offset):
                walk.position = 0       # a damaged index must not hide records
                continue
        if result != SCAN_BATCH:
            return result if result < 0 else LOOKUP_BEYOND if result == SCAN_END else LOOKUP_CORRUPT
        last = info.base_offset + info.last_offset_delta
        walk.position += info.size
        if last < walk.from_offset or info.record_count == 0:
            continue
        if info.max_timestamp >= walk.limit_timestamp:
            out.position = walk.position - info.size
            out.base_offset = walk.next_offset      # of a wrapper in an old format only the last offset is known
            out.last_offset = last
            out.max_timestamp = info.max_timestamp
            out.size = info.size
            out.partition_leader_epoch = info.partition_leader_epoch
            walk.next_offset = last + 1
            return LOOKUP_FOUND
        if info.max_timestamp >= 0:
            walk.undated = -1
        elif walk.undated < 0:
            walk.undated = walk.next_offset
        walk.next_offset = last + 1
    return LOOKUP_PAUSED


def first_in(int log_fd, FoundBatch batch, int64_t limit_timestamp, int64_t from_offset, find_compressed) -> tuple[int, bool] | None:
    """(offset of the first young record from `from_offset` on, whether it is the first record of the batch from there on). None
    if the batch has no such record, although its header promised one. Raises CorruptLogError, OSError, and the exceptions of
    find_compressed."""
    cdef FoundRecord record
    cdef int result
    with nogil:
        result = find_record(log_fd, &batch, limit_timestamp, from_offset, &record)
    if result == -ENOMEM:
        raise MemoryError(f"no memory for a batch of {batch.size} bytes")
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    if result == LOOKUP_CORRUPT:
        raise CorruptLogError(f"no batch at position {batch.position}")
    if result == LOOKUP_BEYOND:
        return None
    if result == LOOKUP_FOUND:
        first = record.offset
        with nogil:
            result = find_record(log_fd, &batch, -1, from_offset, &record)
        return first, result == LOOKUP_FOUND and record.offset == first
    content = os.pread(log_fd, batch.size, batch.position)
    if len(content) != batch.size:
        raise CorruptLogError(f"the batch at {batch.position} ends early")
    young = find_compressed(content, limit_timestamp, from_offset)
    if young is None:
        return None
    first_of_all = find_compressed(content, -1, from_offset)
    return young[0], first_of_all is not None and first_of_all[0] == young[0]


def first_young(int log_fd, int index_fd, int64_t index_entries, int time_fd, int64_t time_entries, int64_t segment_base,
                int64_t size_limit, int64_t limit_timestamp, int64_t from_offset, find_compressed, beat) -> int | None:
    """The offset at which the part of a segment that is kept begins, or None if all of it is too old.

    :param index_entries: committed entries of the offset index, `time_entries` of the time index; `size_limit`: bytes of the
    log.
    :param limit_timestamp: ms; records below it are too old. At least 0.
    :param from_offset: the log start offset; earlier records are ignored.
    :param find_compressed: called with the bytes of a compressed batch or wrapper, a timestamp and an offset; returns (offset,
    timestamp) of its first record that is not before either, or None.
    :param beat: called from time to time.
    :raises CorruptLogError: no batch where one should be. :raises OSError: a file could not be read.
    """
    cdef Walk walk
    cdef FoundBatch batch
    cdef int result
    walk.limit_timestamp = limit_timestamp
    walk.from_offset = from_offset
    walk.next_offset = max(from_offset, segment_base)
    walk.undated = -1
    with nogil:
        result = start_position(index_fd, index_entries, time_fd, time_entries, segment_base, size_limit, &walk)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    while True:
        with nogil:
            result = next_young_batch(log_fd, size_limit, &walk, &batch)
        if result == LOOKUP_PAUSED:
            beat()
            continue
        if result == LOOKUP_BEYOND:
            # They follow the last record that is too old: the next segment decides how old they are, so they are kept.
            return walk.undated if walk.undated >= 0 else None
        if result != LOOKUP_FOUND:
            if result < 0:
                raise OSError(-result, os.strerror(-result))
            raise CorruptLogError(f"no batch at position {walk.position} of segment {segment_base}")
        young = first_in(log_fd, batch, limit_timestamp, from_offset, find_compressed)
        if young is None:
            walk.undated = -1
            continue
        offset, is_first = young
        return walk.undated if is_first and walk.undated >= 0 else offset
