"""Rewrites segments by the map of keys: decides which batches and records are kept, and writes these to the new segment.

Belongs to one `Compactor` and is used by its thread only. Owns the new segment (`output`) until the swap, and the counts of a pass.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from odradek._ext.compaction.batch_reader cimport BatchReader
from odradek._ext.compaction.compacted_records cimport RecordKey
from odradek._ext.compaction.compacted_segment cimport Output
from odradek._ext.compaction.compaction_log cimport CompactedLog
from odradek._ext.compaction.compaction_map cimport KeyMap
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.log_state cimport Array


cdef struct Verdict:              # on a whole batch
    bint discard                  # all its records are removed
    bint keep_empty               # the batch is kept even without records
    bint starts_horizon           # it is a marker of a transaction without data


cdef struct Span:                 # records that are kept, as positions in their batch
    int64_t start
    int64_t end


cdef struct Sifted:               # the result of `sift_records`
    int32_t kept
    bint tombstones               # a tombstone is kept
    int64_t max_timestamp         # of the kept records; -1: none is kept


cdef class SegmentRewriter:
    cdef CompactedLog log
    cdef BatchReader reader
    cdef KeyMap keys
    cdef object compress, reduce_old
    cdef Output output
    cdef Verdict verdict
    cdef Array spans              # of Span
    cdef Array rebuilt            # of bytes: records with new timestamp deltas
    cdef int64_t now_ms
    cdef int64_t upper_bound      # the pass compacts the records before this offset
    cdef bint old_tombstones_stay  # in the current segment
    cdef int64_t bytes_read, bytes_written, records_read, records_kept, keyless     # of the pass

    # Begin a pass over the log that is open.
    cdef int begin_pass(self, int64_t now_ms, int64_t upper_bound) except -1
    # Write the kept batches of these segments (a list of Source) as one segment. Returns the FILE_ bits of its files, or 0 if it
    # would equal the only source. `old_horizon_ns`: tombstones of old formats stay in segments that were modified after it.
    cdef int rewrite(self, group, int64_t old_horizon_ns) except -1
    # Free the memory that a large batch needed.
    cdef int end_pass(self) except -1
    # Close the new segment. `remove`: its files will not be swapped in.
    cdef int end_segment(self, bint remove) except -1

    cdef int clean_step(self) except -1
    cdef int clean_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int clean_compressed(self, size_t used) except -1
    cdef int clean_message(self, size_t used) except -1
    cdef int decide(self, const uint8_t* batch) noexcept nogil
    cdef bint keeps_producer(self) noexcept nogil
    cdef int sift_records(self, const uint8_t* p, size_t n, Sifted* sifted) noexcept nogil
    cdef bint is_kept(self, const RecordKey* record, int64_t offset, bint keep_tombstones) noexcept nogil
    cdef int64_t new_horizon(self, bint tombstones) noexcept nogil
    cdef int gather(self, const uint8_t* records, bint tombstones) noexcept nogil
    cdef void head_of(self, uint8_t* head, const uint8_t* batch, int64_t size, const Sifted* sifted) noexcept nogil
    cdef int put_rebuilt(self, const uint8_t* batch, const uint8_t* records, size_t n, const Sifted* sifted) noexcept nogil
    cdef int keep_whole(self, const uint8_t* batch, const BatchInfo* info) noexcept nogil
    cdef int keep_records(self, const uint8_t* batch, const uint8_t* records, const Sifted* sifted) noexcept nogil
    cdef int keep_none(self, const uint8_t* batch) noexcept nogil
