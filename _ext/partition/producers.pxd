"""What a partition knows of its producers: checked before an append, changed behind its commit [R 2].

The slot's mutex protects all of it. An entry's `ring` word is the last store of an update, so that a redo after a death finds
either the old state or the new one. The layout is in producer_runs.pxd, room for new producers in producer_room.pxd.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.partition.producer_entry cimport ProducerBatch, ProducerEntry
from odradek._ext.shm.layout cimport BATCHES_KEPT, Slot


cdef enum ProducerCheck:
    PRODUCER_NEXT = 0             # append it
    PRODUCER_DUPLICATE = 1        # answered with the first append's offset
    PRODUCER_OUT_OF_ORDER = 45
    PRODUCER_FENCED = 47          # INVALID_PRODUCER_EPOCH


# Whether a batch continues what the slot knows of its producer; `duplicate_of` is set for PRODUCER_DUPLICATE.
cdef ProducerCheck check_sequence(ProducerEntry* entry, int16_t epoch, int32_t base_sequence, int32_t last_sequence,
                                  ProducerBatch* duplicate_of) noexcept nogil

# Take a committed batch into the state, heard at `heard_ms` (monotonic) from a client of `owner`; doing it again changes nothing. Room was
# reserved before. `place`: where the producer's entry was then; 0 if it is not known.
cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional, uint32_t owner, uint32_t place,
                      int64_t heard_ms) noexcept nogil
cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp, int64_t heard_ms) noexcept nogil

# A producer as a snapshot tells of it, or a load of the log; NULL without a place for it. Then its batches, the oldest first.
cdef ProducerEntry* restore_producer(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t timestamp,
                                     int64_t transaction_first_offset, int64_t heard_ms) noexcept nogil
cdef void restore_batch(ProducerEntry* entry, int32_t base_sequence, int32_t last_sequence, int64_t base_offset, int64_t last_offset,
                        int64_t timestamp) noexcept nogil

cdef void forget_producers(Slot* slot) noexcept nogil
# What is derived from the entries, after a death: index, lists, counts, and the oldest open transaction.
cdef void repair_producers(Slot* slot) noexcept nogil
# First offset of the oldest open transaction of any producer but this one, -1 if there is none.
cdef int64_t first_unstable_without(Slot* slot, int64_t producer_id) noexcept nogil
# The last stable offset that follows from open transactions, into the slot.
cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil

# Drop producers without open transaction that were last heard of before `before_ms` (monotonic), among the next `most` places from *at on,
# which is advanced; their number.
cdef int expire_producers(Slot* slot, int64_t before_ms, uint32_t* at, uint32_t most) noexcept nogil
# Give memory back that the partition's producers do not need any more; waits for the arena.
cdef void shrink_producers(uint32_t index, Slot* slot) noexcept nogil
