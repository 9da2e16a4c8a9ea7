"""Producer state of a partition: an open-addressing table in a run of entries from the shared arena [R 2].

The slot's mutex protects all of it. An entry's `ring` word is the last store of an update, so that a redo after a death finds
either the old state or the new one.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from broker._ext.shared cimport BATCHES_KEPT, Slot


cdef struct ProducerBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t timestamp
    int32_t base_sequence
    int32_t last_sequence


cdef struct ProducerEntry:        # 256 bytes
    uint64_t key                  # producer id + 1; 0: free
    uint64_t ring                 # producer epoch << 48 | batches kept << 40 | index of the newest << 32 | coordinator epoch
    int64_t last_timestamp
    int64_t transaction_first_offset    # -1: none open
    uint64_t verification         # KIP-890: sequence and epoch that a verification is under way for
    int64_t last_marker_offset
    ProducerBatch[BATCHES_KEPT] batches
    uint8_t[48] spare


cdef enum ProducerCheck:
    PRODUCER_NEXT = 0             # append it
    PRODUCER_DUPLICATE = 1        # answered with the first append's offset
    PRODUCER_OUT_OF_ORDER = 45
    PRODUCER_FENCED = 47          # INVALID_PRODUCER_EPOCH

cdef enum ArenaResult:
    ARENA_READY = 0
    ARENA_BUSY = 1
    ARENA_FULL = 2

cdef int16_t entry_epoch(ProducerEntry* entry) noexcept nogil
cdef int entry_batches(ProducerEntry* entry) noexcept nogil
cdef ProducerBatch* newest_batch(ProducerEntry* entry) noexcept nogil
cdef ProducerBatch* batch_back(ProducerEntry* entry, int back) noexcept nogil

cdef uint32_t run_entries(Slot* slot) noexcept nogil
cdef ProducerEntry* run_start(Slot* slot) noexcept nogil
cdef ProducerEntry* find_producer(Slot* slot, int64_t producer_id) noexcept nogil

# Whether a batch continues what the slot knows of its producer; `duplicate_of` is set for PRODUCER_DUPLICATE.
cdef ProducerCheck check_sequence(ProducerEntry* entry, int16_t epoch, int32_t base_sequence, int32_t last_sequence,
                                  ProducerBatch* duplicate_of) noexcept nogil

# Room for one more producer beside `pending` others of the same write that are not applied yet, known ones included (they may
# be evicted for this one); to be called before the write, because after the commit nothing may fail.
cdef ArenaResult reserve_producer(uint32_t index, Slot* slot, int64_t producer_id, uint32_t pending) noexcept nogil

# Take a committed batch into the state; doing it again changes nothing.
cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional) noexcept nogil
cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp) noexcept nogil

# As read from a snapshot.
cdef ArenaResult restore_producer(uint32_t index, Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
                                  int64_t timestamp, int64_t transaction_first_offset) noexcept nogil
cdef void restore_batch(Slot* slot, int64_t producer_id, int32_t base_sequence, int32_t last_sequence, int64_t base_offset,
                        int64_t last_offset, int64_t timestamp) noexcept nogil

cdef void forget_producers(Slot* slot) noexcept nogil
# What is derived from the entries, after a death: their number and the oldest open transaction.
cdef void recount_producers(Slot* slot) noexcept nogil
# First offset of the oldest open transaction of any producer but this one, -1 if there is none.
cdef int64_t first_unstable_without(Slot* slot, int64_t producer_id) noexcept nogil
# Drop producers without open transaction that were last heard before `before_ms`; the number dropped, -1 if the arena is busy.
cdef int expire_producers(uint32_t index, Slot* slot, int64_t before_ms) noexcept nogil
# The last stable offset that follows from open transactions, into the slot.
cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil

# 0, or -errno.
cdef int write_snapshot(Slot* slot, int directory_fd, const char* path, const char* temporary_path) noexcept nogil

# Add the producers that a snapshot file tells of: 0, 1 if it is corrupt (some may have been added), or -errno.
cdef int read_snapshot(uint32_t index, Slot* slot, int directory_fd, const char* path) noexcept nogil
