"""A partition's state of its producers: checked before an append, changed after its commit [R 2].

The slot's mutex protects all of it. An entry's `ring` word is the last store of an update, so that a redo after a death finds
either the old state or the new one. producer_runs.pxd describes the layout, producer_room.pxd the room for new producers.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.partition.producer_entry cimport ProducerBatch, ProducerEntry
from odradek._ext.shm.slot cimport Slot


cdef enum ProducerCheck:
    PRODUCER_NEXT = 0             # append the batch
    PRODUCER_DUPLICATE = 1        # answer with the offset of the first append
    PRODUCER_OUT_OF_ORDER = 45
    PRODUCER_FENCED = 47          # INVALID_PRODUCER_EPOCH


# Check whether a batch continues the slot's state of its producer; `duplicate_of` is set for PRODUCER_DUPLICATE.
cdef ProducerCheck check_sequence(ProducerEntry* entry, int16_t epoch, int32_t base_sequence, int32_t last_sequence,
                                  ProducerBatch* duplicate_of) noexcept nogil

# Apply a committed batch to the state, heard at `heard_ms` (monotonic) from a client of `owner`; applying it again changes nothing.
# Room was reserved before. `place`: the place of the producer's entry at that time; 0 if the producer is not known. `segment_base`
# and `position`: where the batch is in the log.
cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional, uint32_t owner, uint32_t place,
                      int64_t segment_base, int64_t position, int64_t heard_ms) noexcept nogil
# Apply a committed marker. It clears a mark whose producer epoch is below `marks_before`.
cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp, int32_t marks_before, int64_t heard_ms) noexcept nogil

# Set the mark of a producer, whose entry is `entry` (NULL: a new one of `owner`, for which room was reserved before).
cdef void put_mark(Slot* slot, ProducerEntry* entry, int64_t producer_id, uint64_t mark, uint32_t owner, int64_t heard_ms) noexcept nogil

# Restore a producer from a snapshot or from a load of the log; NULL if there is no place for it. Its batches follow, the oldest
# first; `settle_restored` follows the last producer.
cdef ProducerEntry* restore_producer(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t timestamp,
                                     int64_t transaction_first_offset, int64_t heard_ms) noexcept nogil
cdef void restore_batch(ProducerEntry* entry, int32_t base_sequence, int32_t last_sequence, int64_t base_offset, int64_t last_offset,
                        int64_t timestamp) noexcept nogil

# After producers were restored: derive the list of open transactions.
cdef void settle_restored(Slot* slot) noexcept nogil

cdef void forget_producers(Slot* slot) noexcept nogil
# Set the slot's fields that are derived from open transactions to the state without any.
cdef void forget_transactions(Slot* slot) noexcept nogil
# Derive index, lists, counts and the oldest open transaction from the entries again, after a death.
cdef void repair_producers(Slot* slot) noexcept nogil
# Compute the last stable offset and store it in the slot: the smallest of the high watermark, the first offset of the oldest open
# transaction, and the first offsets of transactions whose markers the high watermark has not passed.
cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil

# Drop producers without an open transaction that were last heard before `before_ms` (monotonic), among the next `most` places from
# *at on, which is advanced. Returns their number.
cdef int expire_producers(Slot* slot, int64_t before_ms, uint32_t* at, uint32_t most) noexcept nogil
# Free memory that the partition's producers no longer need; waits for the arena.
cdef void shrink_producers(uint32_t index, Slot* slot) noexcept nogil
