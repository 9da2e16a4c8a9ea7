"""Compaction of one log: what a pass carries. One Compactor a thread of the cleaner, used by that thread alone.

The rules are those of Kafka's LogCleaner (KIP-58, KIP-98, KIP-354, KIP-534); `docs/decisions/0009` says where we differ.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from broker._ext.compacted_records cimport RecordKey
from broker._ext.compacted_segment cimport Output
from broker._ext.compaction_transactions cimport Transactions
from broker._ext.log_state cimport Array
from broker._ext.offset_map cimport OffsetMap
from broker._ext.records cimport BatchInfo
from broker._ext.shared cimport Slot


cdef struct LastOfProducer:       # the batch or marker that an active producer's state lives by
    int64_t producer_id
    int64_t last_offset           # -1: none, its epoch stands in a marker
    int16_t epoch


cdef struct Verdict:              # on a batch as a whole
    bint discard                  # its records go, whatever they are
    bint delete_batch             # and the batch with them
    bint keep_empty               # stays without records
    bint starts_horizon           # a marker of a transaction without data


cdef struct Span:
    int64_t start
    int64_t end


cdef struct Replaced:             # a segment that the new one takes the place of
    int64_t base_offset
    int64_t size
    uint64_t inode


cdef class Compactor:
    cdef OffsetMap map
    cdef uint8_t* buffer
    cdef size_t buffer_bytes      # now; a batch larger than it makes it grow
    cdef size_t usual_bytes
    cdef double load_factor
    cdef object decompress, compress, open_old, reduce_old, pace, swap_lock
    cdef int stop                 # set by another thread
    # the log of this pass
    cdef uint32_t slot, incarnation
    cdef uint64_t truncations
    cdef int directory
    cdef int32_t index_interval_bytes
    cdef int64_t now_ms, delete_retention_ms
    cdef int64_t first_dirty_offset, upper_bound, latest_offset
    cdef int64_t old_horizon_ns
    cdef bint old_tombstones_stay  # in the segment at hand
    cdef int64_t next_offset, segment_end      # what a batch's offsets lie between
    cdef Transactions transactions
    cdef Array producers          # of LastOfProducer, by id
    cdef Output output
    cdef Array spans              # of Span
    cdef Array replaced           # of Replaced
    cdef Array rebuilt            # of bytes: records with new timestamp deltas
    cdef bint swap_begun          # in this group: its `.swap` files are no longer the pass's to remove
    cdef Verdict verdict
    cdef BatchInfo batch
    cdef int64_t bytes_read, bytes_written, map_bytes_read, records_read, records_kept, keyless

    cdef int lock(self) noexcept nogil
    cdef int open_log(self) except -1
    cdef int close_log(self) except -1
    cdef bint sources_stand(self) noexcept nogil
    cdef int open_file(self, int64_t base_offset, int kind) except -1
    cdef bytes read_index(self, int64_t base_offset, int kind)
    cdef int read_producers(self) except -1
    cdef int copy_producers(self, Slot* slot) noexcept nogil
    cdef int64_t fill(self, int descriptor, int64_t position, int64_t size) except -1
    cdef int grow(self, int64_t base_offset, int64_t position, int64_t size, int64_t got) except -1
    cdef int next_batch(self, const uint8_t* p, size_t n) noexcept nogil
    cdef bytes open_batch(self, const uint8_t* batch, int64_t base, int64_t position)
    # the map
    cdef int build_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1
    cdef int build_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int map_records(self, const uint8_t* p, size_t n) noexcept nogil
    cdef int map_old(self, const uint8_t* message, int64_t base, int64_t position) except -1
    cdef list opened(self, const uint8_t* message, int64_t base, int64_t position)
    # the rewriting
    cdef int clean_step(self, int descriptor, int64_t base, int64_t* position, int64_t size) except -1
    cdef int clean_window(self, const uint8_t* p, size_t n, size_t* used) noexcept nogil
    cdef int clean_compressed(self, const uint8_t* batch, int64_t base, int64_t position) except -1
    cdef int judge(self, const uint8_t* batch) noexcept nogil
    cdef bint keeps_producer(self) noexcept nogil
    cdef int clean_old(self, const uint8_t* message, int64_t base, int64_t position) except -1
    cdef int sift_records(self, const uint8_t* p, size_t n, bint* tombstones, int64_t* max_timestamp, int32_t* kept) noexcept nogil
    cdef bint stays(self, const RecordKey* record, bint tombstones_stay) noexcept nogil
    cdef int64_t new_horizon(self, bint tombstones) noexcept nogil
    cdef int gather(self, const uint8_t* records, bint tombstones) noexcept nogil
    cdef void head_of(self, uint8_t* head, const uint8_t* batch, int64_t size, bint tombstones, int64_t max_timestamp,
                      int32_t kept) noexcept nogil
    cdef int keep_whole(self, const uint8_t* batch) noexcept nogil
    cdef int keep_records(self, const uint8_t* batch, const uint8_t* records, bint tombstones, int64_t max_timestamp,
                          int32_t kept) noexcept nogil
    cdef int keep_none(self, const uint8_t* batch) noexcept nogil
