"""The aborted transactions in a Fetch response with read_committed: the consumer drops their records.

Used in a worker's event loop, by `FetchPlan`. `storage/txn_index.pyx` has the rule of the search. The slot's `newest_abort_offset` shows
without a look-up that nothing was aborted at or after the fetch offset, so only readers of older records reach this module.

A list may contain transactions that are not needed, but none may be missing: the consumer would take aborted records for committed ones.
Therefore a damaged index is an error. The last stable offset is read before the commit block, whose count of entries says which entries
belong to the index of the active segment: so the index contains every abort that has moved this last stable offset.
"""

from libc.errno cimport EAGAIN, EBADMSG, ENOENT
from libc.stdint cimport int64_t

from odradek._ext.api.cold_look_ups cimport cold_bytes, cold_txn_indexes
from odradek._ext.api.fetch_context cimport WARM_ROUNDS, FetchContext, FetchPartition, bytes_of_aborted
from odradek._ext.protocol.cursor cimport buffer_free, buffer_init
from odradek._ext.shm.slot cimport Commit
from odradek._ext.storage.file_calls cimport file_bytes
from odradek._ext.storage.index_entries cimport TXN_ENTRY_BYTES
from odradek._ext.storage.segment_list cimport OpenSegment, SegmentList
from odradek._ext.storage.txn_index cimport TxnIndexSummary


cdef enum:
    READ_IN_LOOP = 4096               # entries that the loop reads to make a summary; a reader's thread reads longer indexes
    ASIDE_AT_ONCE = 1024              # indexes that a reader's thread may have to read for one look-up
    COLD_BYTES = 1 << 18              # of an index that a reader's thread reads for a look-up
    KEPT_BYTES = 1 << 18              # of the buffer, between two look-ups
    SEGMENT_COST = 8                  # a segment that is passed counts as this many entries


cdef int64_t next_segment(SegmentList segments, Commit* commit, int64_t base) noexcept:
    """Return the base offset of the first segment at or after `base` that may have entries of aborted transactions; -1 if there is none.

    The newest segments may be missing in the list, but the commit block contains the active one.
    """
    cdef int64_t found
    if base > commit.segment_base:
        return -1
    found = segments.next_indexed(base)
    if 0 <= found < commit.segment_base:
        return found
    return commit.segment_base if commit.txnindex_entries > 0 else -1


cdef int64_t end_of_segment(SegmentList segments, Commit* commit, int64_t base) noexcept:
    """Return the offset after those of the segment at `base`."""
    cdef int64_t following = segments.following(base)
    return commit.log_end_offset if base >= commit.segment_base or following < 0 else following


cdef int damaged(int result, int64_t base) except -1:
    raise OSError(-result, f"the transaction index of segment {base} is damaged" if result == -EBADMSG else
                  f"transaction index of segment {base}")


cdef class AbortedTransactions:
    def __cinit__(self):
        buffer_init(&self.found)

    def __dealloc__(self):
        buffer_free(&self.found)

    cdef int list_for(self, FetchPartition p, FetchContext context, SegmentList segments, Commit* commit,
                      int64_t upper_offset) except -1:
        cdef int64_t base = next_segment(segments, commit, p.segment.base_offset)
        self.found.size = 0
        while base >= 0 and not self.search(p, context, segments, commit, base, upper_offset):
            base = next_segment(segments, commit, base + 1)
        if self.found.size:
            p.aborted = (<char*>self.found.data)[:self.found.size]
            context.has_lists = True
        if self.found.capacity > KEPT_BYTES:
            buffer_free(&self.found)
        return 0

    cdef bint search(self, FetchPartition p, FetchContext context, SegmentList segments, Commit* commit, int64_t base,
                     int64_t upper_offset) except -1:
        """Add the result of one segment. Return whether later segments contain none."""
        cdef TxnIndexSummary summary = self.summary_of(context, segments, commit, base, upper_offset)
        cdef OpenSegment segment
        cdef int fd, result, tail_bytes = bytes_of_aborted(context.version) - 16
        self.look_ups += 1
        context.entries_read += SEGMENT_COST
        if summary.entries == 0:
            return False
        segment = segments.segment(base)
        fd = segment.txn_index()
        if fd < 0:
            raise OSError(ENOENT, f"segment {base} has no transaction index any more")
        with nogil:
            result = summary.collect(fd, p.request.fetch_offset, upper_offset, tail_bytes, &self.found, &context.entries_read)
        if result < 0:
            buffer_free(&self.found)
        if result == -EAGAIN:
            cold_bytes(context, segment, fd, summary.failed_at, COLD_BYTES)
        if result < 0:
            damaged(result, base)
        return result

    cdef TxnIndexSummary summary_of(self, FetchContext context, SegmentList segments, Commit* commit, int64_t base,
                                    int64_t upper_offset):
        """Return the summary of a segment's transaction index, after reading what it does not cover yet."""
        cdef TxnIndexSummary summary = segments.summary(base)
        cdef bint active = base == commit.segment_base
        cdef OpenSegment segment
        cdef int64_t entries = commit.txnindex_entries, size = 0, end_offset
        cdef int fd, result
        if summary is not None and (summary.closed or (active and summary.entries >= entries)):
            return summary
        segment = segments.segment(base)
        fd = segment.txn_index()
        if fd >= 0 and not active:
            size = file_bytes(fd)
            entries = size // TXN_ENTRY_BYTES
        elif fd < 0 and (active or base < segments.closed_before):
            raise OSError(ENOENT, f"segment {base} has no transaction index any more")
        elif fd < 0:
            entries = 0
        if size < 0 or size % TXN_ENTRY_BYTES:
            damaged(-EBADMSG, base)
        if summary is None:
            summary = TxnIndexSummary.__new__(TxnIndexSummary)
        if entries - summary.entries > READ_IN_LOOP and context.reader is not None and context.warm_rounds < WARM_ROUNDS:
            self.read_aside(context, segments, commit, base, upper_offset)
        context.entries_read += entries - summary.entries
        end_offset = end_of_segment(segments, commit, base)
        result = summary.extend(fd, entries, base, end_offset)
        if result == -EAGAIN:
            self.read_aside(context, segments, commit, base, upper_offset)
        if result < 0:
            damaged(result, base)
        summary.closed = not active
        segments.keep_summary(base, summary)
        return summary

    cdef int read_aside(self, FetchContext context, SegmentList segments, Commit* commit, int64_t base, int64_t upper_offset) except -1:
        """Let a reader's thread make the summaries of the segments from `base` on, as far as the look-up needs them. Raises ColdRead."""
        cdef list wanted = []
        cdef bint active
        while base >= 0 and len(wanted) < ASIDE_AT_ONCE:
            active = base == commit.segment_base
            if active or segments.summary(base) is None:
                wanted.append((base, end_of_segment(segments, commit, base), commit.txnindex_entries if active else -1,
                               not active and base >= segments.closed_before))
            base = next_segment(segments, commit, base + 1)
        return cold_txn_indexes(context, segments.directory, wanted, upper_offset, segments.read_aside)
