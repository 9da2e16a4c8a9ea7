"""Compaction of one log: the state of a pass. Each thread of the cleaner has its own Compactor.

The rules are those of Kafka's LogCleaner (KIP-58, KIP-98, KIP-354, KIP-534); `docs/decisions/0009` describes the differences.
`CompactedLog` reads the log, `KeyedLog` builds the map of its keys, a Compactor rewrites the log by that map.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from odradek._ext.compaction.compacted_records cimport RecordKey
from odradek._ext.compaction.compacted_segment cimport Output
from odradek._ext.compaction.compaction_map cimport KeyedLog
from odradek._ext.storage.log_state cimport Array


cdef struct Verdict:              # on a whole batch
    bint discard                  # all its records are removed
    bint delete_batch             # the batch is removed as well
    bint keep_empty               # the batch is kept without records
    bint starts_horizon           # it is a marker of a transaction without data


cdef struct Span:
    int64_t start
    int64_t end


cdef struct ReplacedSegment:      # a segment that the new one replaces
    int64_t base_offset
    int64_t size
    uint64_t inode


cdef class Compactor(KeyedLog):
    cdef object compress, reduce_old
    cdef int64_t now_ms, upper_bound
    cdef int64_t old_horizon_ns
    cdef bint old_tombstones_stay  # in the current segment
    cdef Output output
    cdef Array spans              # of Span
    cdef Array replaced           # of ReplacedSegment
    cdef Array rebuilt            # of bytes: records with new timestamp deltas
    cdef bint swap_begun          # in this group: its `.swap` files no longer belong to the pass, which must not remove them
    cdef Verdict verdict
    cdef int64_t bytes_read, bytes_written, records_read, records_kept, keyless

    cdef bint sources_unchanged(self) noexcept nogil
    cdef int clean_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1
    cdef int clean_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int clean_compressed(self, const uint8_t* batch, int64_t base, int64_t position) except -1
    cdef int decide(self, const uint8_t* batch) noexcept nogil
    cdef bint keeps_producer(self) noexcept nogil
    cdef int clean_old(self, const uint8_t* message, int64_t base, int64_t position) except -1
    cdef int sift_records(self, const uint8_t* p, size_t n, bint* tombstones, int64_t* max_timestamp, int32_t* kept) noexcept nogil
    cdef bint is_kept(self, const RecordKey* record, bint keep_tombstones) noexcept nogil
    cdef int64_t new_horizon(self, bint tombstones) noexcept nogil
    cdef int gather(self, const uint8_t* records, bint tombstones) noexcept nogil
    cdef void head_of(self, uint8_t* head, const uint8_t* batch, int64_t size, bint tombstones, int64_t max_timestamp,
                      int32_t kept) noexcept nogil
    cdef int keep_whole(self, const uint8_t* batch) noexcept nogil
    cdef int keep_records(self, const uint8_t* batch, const uint8_t* records, bint tombstones, int64_t max_timestamp,
                          int32_t kept) noexcept nogil
    cdef int keep_none(self, const uint8_t* batch) noexcept nogil
