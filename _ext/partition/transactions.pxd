"""The changes that the transaction coordinator makes in a partition: it allows a transaction with a mark, and ends it with a marker."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.partition.log_writing cimport AppendOutcome
from odradek._ext.partition.slot_access cimport AppendResult


cdef struct TransactionEnd:       # a marker to append
    int64_t producer_id
    int32_t coordinator_epoch
    int16_t producer_epoch
    uint8_t commits
    uint8_t transaction_version
    int64_t first_offset          # of the transaction to end; -1 for the one that is open
    # out
    int16_t error                 # Kafka's error code, 0 if the transaction is ended
    int64_t offset                # of the marker; -1 for an error, and for a repeated marker that needed no write


# Set the mark of a producer, so that its first batch of this epoch is appended without a question if the request has this transactional id.
# *error: 0, INVALID_PRODUCER_EPOCH if the partition has a newer epoch, TRANSACTION_COORDINATOR_FENCED if it has a marker of a coordinator
# with a newer epoch than `coordinator_epoch`, or NOT_ENOUGH_REPLICAS if there is no room for the producer. `id_hash`: see `hash_of_id`.
# `owner`: the owner of a producer that has none yet.
cdef AppendResult allow_transaction(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint64_t id_hash, int64_t producer_id,
                                    int16_t producer_epoch, int32_t coordinator_epoch, bint version_2, uint32_t owner, int spins,
                                    int16_t* error) noexcept nogil

# Append markers in order, as leader: one write and one commit for up to MAX_JOINED markers of different producers in one segment. They are
# also appended while the disk is full. The result of each marker is in its `error` and `offset`. If the return value is not APPEND_OK,
# nothing was appended. After a failure that follows the first write, the markers that were not written have an error.
cdef AppendResult append_markers(uint32_t index, uint32_t incarnation, int32_t leader_epoch, TransactionEnd* ends, int count,
                                 int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil
