"""Positions of a Fetch in the log: of the batch that contains the fetch offset, and of the place at which reading must end.

Used in a worker's event loop, by `FetchPlan`. A position is that of the last fetch, or it comes from the slot's ring of recent batches
or from an offset index. Each function raises OSError, and ColdRead if a page is not in the page cache.
"""

from libc.errno cimport EAGAIN, EBADMSG, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.api.cold_look_ups cimport cold_bytes, cold_offset_behind, cold_position
from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.protocol.byte_order cimport load32, load64
from odradek._ext.records.record_batch cimport AT_LAST_OFFSET_DELTA, AT_MAGIC
from odradek._ext.shm.atomics cimport copy_words, fence_acquire, load_acquire_32, load_relaxed_32, load_relaxed_i64
from odradek._ext.shm.slot cimport RECENT_KEPT, Commit, RecentBatch, Slot
from odradek._ext.storage.file_calls cimport file_bytes
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES
from odradek._ext.storage.lookup cimport LOOKUP_BEYOND, LOOKUP_FOUND, FoundBatch, find_offset_behind, find_position
from odradek._ext.storage.page_cache cimport read_some
from odradek._ext.storage.segment_list cimport OpenSegment, SegmentList


cdef enum:
    BATCH_LENGTH_BYTES = 12
    BATCH_HEAD_BYTES = 27             # up to the last offset delta; a message of format v0 may have one byte less
    HEADER_READ_BYTES = 4096
    BATCHES_MEASURED = 64             # of a throttled partition: a batch that is cut is at most a small share of its records


cdef int64_t first_batch_bytes(FetchPartition p, FetchContext context) except -1:
    """Return the size of the first batch of the partition's records, and set `planned_end` to the offset after its last record."""
    cdef uint8_t[BATCH_HEAD_BYTES] head
    cdef OpenSegment segment = p.segment
    cdef int64_t n = read_some(segment.log_fd, head, BATCH_HEAD_BYTES, p.planned.position)
    if n < 0 and errno == EAGAIN:
        cold_bytes(context, segment, segment.log_fd, p.planned.position, HEADER_READ_BYTES)
    if n < BATCH_HEAD_BYTES - 1:
        raise OSError(errno if n < 0 else EBADMSG, f"no batch at position {p.planned.position} of segment {segment.base_offset}")
    p.planned.end = <int64_t>load64(head) + 1
    if head[AT_MAGIC] >= 2 and n == BATCH_HEAD_BYTES:
        p.planned.end += <int32_t>load32(head + AT_LAST_OFFSET_DELTA)
    return <int64_t>load32(head + 8) + BATCH_LENGTH_BYTES


cdef int64_t whole_batches(FetchPartition p, int64_t first, int64_t room) noexcept:
    """Return the bytes of the batches that fit into `room`. If they are many, the last one may be cut, as in responses without a throttle:
    the follower drops it, and it is little.

    :param first: bytes of the first batch, which fits.
    """
    cdef uint8_t[BATCH_LENGTH_BYTES] head
    cdef int64_t fits = first, size
    for _ in range(BATCHES_MEASURED):
        if read_some(p.segment.log_fd, head, BATCH_LENGTH_BYTES, p.planned.position + fits) != BATCH_LENGTH_BYTES:
            return fits
        size = <int64_t><int32_t>load32(head + 8) + BATCH_LENGTH_BYTES
        if size <= BATCH_LENGTH_BYTES or fits + size > room:
            return fits
        fits += size
    return room


cdef int64_t base_of_place(FetchPartition p, SegmentList segments, Commit* commit) except -2:
    """Set the position at which the fetch is expected to begin, if it is still valid. Return the base offset of its segment, or -1."""
    if p.expected.offset != p.request.fetch_offset or p.expected.generation != p.found.generation:
        return -1
    p.planned.position = p.expected.position
    if p.expected.base != commit.segment_base and p.planned.position >= file_bytes(segments.segment(p.expected.base).log_fd):
        return -1                       # the segment ends exactly there: the batch is the first of the next segment
    return p.expected.base


cdef bint place_in_ring(FetchPartition p, Slot* slot, Commit* commit) noexcept:
    """Find the batch in the slot's ring of recent batches, and set its position. Return whether it was found."""
    cdef RecentBatch[RECENT_KEPT] recent
    cdef uint32_t before
    cdef int i
    for _ in range(3):
        before = load_acquire_32(&slot.recent_sequence)
        if before & 1:
            continue
        copy_words(recent, slot.recent, sizeof(recent))
        fence_acquire()
        if load_relaxed_32(&slot.recent_sequence) != before:
            continue
        for i in range(RECENT_KEPT):
            if recent[i].segment_base == commit.segment_base and \
                    recent[i].base_offset <= p.request.fetch_offset <= recent[i].last_offset and \
                    recent[i].position < commit.size:
                p.planned.position = recent[i].position
                return True
        return False
    return False


cdef int look_up(OpenSegment segment, int64_t base, Commit* commit, int64_t offset, FoundBatch* batch, int64_t* size,
                 FetchContext context) except -1:
    """Find the first batch with a record at or after `offset` in a segment, through its offset index. Set `size` to the bytes of the
    segment that may be read. Return LOOKUP_FOUND or LOOKUP_BEYOND. Raises OSError, and ColdRead.
    """
    cdef bint active = base == commit.segment_base
    cdef int index_fd = segment.index(), result
    cdef int64_t entries = commit.index_entries if active else file_bytes(index_fd) // OFFSET_ENTRY_BYTES
    size[0] = commit.size if active else file_bytes(segment.log_fd)
    with nogil:
        result = find_position(segment.log_fd, index_fd, entries, base, size[0], offset, batch)
    if result == -EAGAIN:
        cold_position(context, segment, index_fd, entries, size[0], offset)
    if result != LOOKUP_FOUND and result != LOOKUP_BEYOND:
        raise OSError(-result if result < 0 else EBADMSG, f"offset {offset} in segment {base}")
    return result


cdef int64_t place_by_index(FetchPartition p, SegmentList segments, Commit* commit, FetchContext context) except -1:
    """Set the position of the batch that contains the fetch offset, through the offset index. Return its segment's base offset."""
    cdef FoundBatch batch
    cdef int64_t size, base = min(<int64_t>segments.floor(p.request.fetch_offset), <int64_t>commit.segment_base)
    while base >= 0:
        if look_up(segments.segment(base), base, commit, p.request.fetch_offset, &batch, &size, context) == LOOKUP_FOUND:
            p.planned.position = batch.position
            return base
        base = segments.following(base)     # compaction removed the records at the segment's end
    raise OSError(EBADMSG, f"no segment contains offset {p.request.fetch_offset}")


cdef int64_t position_of(SegmentList segments, int64_t base, Commit* commit, int64_t offset, FetchContext context) except -1:
    """Return the position of the first batch at or after `offset` in a segment; the segment's end if there is none."""
    cdef FoundBatch batch
    cdef int64_t size
    if look_up(segments.segment(base), base, commit, offset, &batch, &size, context) == LOOKUP_FOUND:
        return batch.position
    return size


cdef bint place_of_unstable(Slot* slot, int64_t offset, int64_t* base, int64_t* position) noexcept:
    """Find the place of the batch that begins the oldest open transaction, if that begins at `offset`. Return whether it was found."""
    cdef uint32_t before
    cdef int64_t first
    for _ in range(3):
        before = load_acquire_32(&slot.unstable_sequence)
        if before & 1:
            continue
        first = load_relaxed_i64(&slot.first_unstable_offset)
        base[0] = load_relaxed_i64(&slot.unstable_base)
        position[0] = load_relaxed_i64(&slot.unstable_position)
        fence_acquire()
        if load_relaxed_32(&slot.unstable_sequence) == before:
            return first == offset and base[0] >= 0
    return False


cdef int64_t end_of_reading(int64_t base, SegmentList segments, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* position,
                            FetchContext context) except -2:
    """Return the base offset of the segment in which reading from the segment `base` must end. Set the `position` of the limit there,
    or 0 if it is not needed.

    The position comes from the same copy of the commit block as the limit [R 4]. The batch of the oldest open transaction is below the
    limit of that copy, and stays where it is until the slot's generation changes.
    """
    cdef int64_t end_base
    if limit_offset == commit.log_end_offset:
        position[0] = commit.size
        return commit.segment_base
    if limit_offset == commit.high_watermark and commit.high_watermark_base >= 0:
        position[0] = commit.high_watermark_position
        return commit.high_watermark_base
    if place_of_unstable(slot, limit_offset, &end_base, position):
        return end_base
    end_base = segments.floor(limit_offset)
    if end_base == base or end_base == commit.segment_base:
        position[0] = position_of(segments, end_base, commit, limit_offset, context)
    else:
        position[0] = 0
    return end_base


cdef int64_t offset_behind(FetchPartition p, Commit* commit, int64_t position, int64_t limit_offset, FetchContext context) except -1:
    """Return an offset that is not below those of the records before `position` in the partition's segment, and at most `limit_offset`."""
    cdef OpenSegment segment = p.segment
    cdef bint active = segment.base_offset == commit.segment_base
    cdef int index_fd = segment.index(), result
    cdef int64_t entries = commit.index_entries if active else file_bytes(index_fd) // OFFSET_ENTRY_BYTES
    cdef int64_t size = commit.size if active else file_bytes(segment.log_fd), offset = 0
    with nogil:
        result = find_offset_behind(index_fd, entries, segment.base_offset, position, size, &offset)
    if result == -EAGAIN:
        cold_offset_behind(context, segment, index_fd, entries, position, size)
    if result < 0:
        raise OSError(-result, f"position {position} in segment {segment.base_offset}")
    if result == 0 or offset < p.planned.end:       # no entry, or one that cannot be right
        return limit_offset
    return min(offset, limit_offset)
