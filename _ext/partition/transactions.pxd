"""What the transaction coordinator does to a partition: it allows a transaction, and ends it with a marker."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport AppendResult


# Mark a producer, so that its first batch of this epoch is appended without a further question. *error: 0, INVALID_PRODUCER_EPOCH if
# the partition knows a newer epoch, or NOT_ENOUGH_REPLICAS if there is no room for the producer. `owner`: of a producer without one.
cdef AppendResult allow_transaction(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t producer_id,
                                    int16_t producer_epoch, bint version_2, uint32_t owner, int spins, int16_t* error) noexcept nogil
