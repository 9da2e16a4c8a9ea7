"""The steps of an append that leader and follower share: log, transaction index, indexes, commit, and the updates after it.

Their order is a contract (``broker/odradek/shm/README.md``, rule 1); ``faults.pxd`` names the fault points between them.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.partition.commits cimport current
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.slot cimport Commit, Slot


cdef enum:
    MAX_JOINED = 64


cdef enum Unverified:
    UNVERIFIED = 1                # its producer has no open transaction of its epoch and no mark in the partition: ask the coordinator
    BEHIND_UNVERIFIED = 2         # an earlier batch of its producer in the same call is UNVERIFIED, and must be appended first


cdef struct AppendItem:           # one checked record batch
    uint8_t* data                 # whole batch; base offset, leader epoch and (LogAppendTime) timestamps are changed in place
    BatchInfo info
    uint32_t owner                # owner of its producer if the partition does not know the producer; see owners.pxd
    uint8_t after_refused         # an earlier batch of its producer was refused and not sent again: it cannot be the producer's first
    uint8_t transaction_version   # of the transaction that a marker ends; 0 also if it is not known
    uint8_t trusted               # transactional, and needs no mark to open the producer's transaction
    uint8_t by_coordinator        # its sequences are not checked: a coordinator never repeats a batch, and begins each one with 0
    uint64_t id_hash              # of the request's transactional id, see `hash_of_id`; of a transactional batch that is not trusted
    # out
    int16_t error                 # Kafka's error code, 0 if appended or a duplicate
    uint8_t duplicate
    uint8_t appended
    uint8_t room                  # Room: why there is no room for its producer, if that is the error
    uint8_t unverified            # Unverified: why `error` is INVALID_TXN_STATE; 0: for another reason, or there is another error or none
    uint32_t place                # place of its producer's entry; see producer_at
    int64_t base_offset
    int64_t append_time           # -1 for CreateTime
    int64_t log_start_offset


cdef struct AppendOutcome:
    int64_t log_end_offset        # after the append
    int64_t high_watermark
    int32_t leader_epoch
    int32_t error_number          # errno of APPEND_IO_ERROR
    int64_t restart_at            # base offset of the first batch, for APPEND_BEFORE_LOG


cdef inline void set_outcome(Slot* slot, int result, AppendOutcome* outcome) noexcept nogil:
    """Store the state of the log after an append that ended with `result` (0, or -errno)."""
    cdef Commit* commit = current(slot)
    outcome.log_end_offset = commit.log_end_offset
    outcome.high_watermark = commit.high_watermark
    outcome.leader_epoch = slot.leader_epoch
    outcome.error_number = -result


cdef inline void advance(Commit* commit, const AppendItem* item) noexcept nogil:
    """Advance the size and the log end by an item whose base offset is known."""
    if commit.size == 0:
        commit.first_timestamp = item.info.max_timestamp
    commit.size += item.info.size
    commit.log_end_offset = item.base_offset + item.info.last_offset_delta + 1


# Write and commit batches that fit into the active segment and whose offsets are set: control batches only, or none [R 1.7].
# Returns 0, or -errno, and then the log contains none of them. `alone`: this leader is the only in-sync replica, so that the high
# watermark moves as well.
cdef int write_and_commit(uint32_t index, Slot* slot, AppendItem** batches, int count, bint alone) noexcept nogil

# Empty the ring of recent batches: its entries are no longer in the log, or its writer died during a change.
cdef void clear_recent(Slot* slot) noexcept nogil
