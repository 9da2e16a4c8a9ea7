"""What the transaction coordinator does to a partition: it allows a transaction, and ends it with a marker."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.partition.log_writing cimport AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult


cdef struct TransactionEnd:       # a marker to append
    int64_t producer_id
    int32_t coordinator_epoch
    int16_t producer_epoch
    uint8_t commits
    uint8_t transaction_version
    # out
    int16_t error                 # Kafka's error code, 0 if the transaction is ended
    int64_t offset                # of the marker; -1 for an error, and for a repeated marker that needed no write


# Mark a producer, so that its first batch of this epoch is appended without a further question if the request has this transactional
# id. *error: 0, INVALID_PRODUCER_EPOCH if the partition knows a newer epoch, or NOT_ENOUGH_REPLICAS if there is no room for the
# producer. `id_hash`: see `hash_of_id`. `owner`: of a producer without one.
cdef AppendResult allow_transaction(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint64_t id_hash, int64_t producer_id,
                                    int16_t producer_epoch, bint version_2, uint32_t owner, int spins, int16_t* error) noexcept nogil

# Append markers in order, as leader: one write and one commit for up to MAX_JOINED markers of different producers in one segment. A full
# disk does not refuse them. The result of each marker is in its `error` and `offset`. Every return value but APPEND_OK says that nothing
# was appended; a failure after the first write is an error of the markers that follow.
cdef AppendResult append_markers(uint32_t index, uint32_t incarnation, int32_t leader_epoch, TransactionEnd* ends, int count,
                                 int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil
