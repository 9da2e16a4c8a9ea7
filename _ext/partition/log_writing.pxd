"""The steps of an append that a leader and a follower share: log, transaction index, indexes, commit, what follows from it.

Their order is the contract (``broker/odradek/shm/README.md``, rule 1); the names of the fault points between them stand in ``faults.pxd``.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.partition.commits cimport current
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.layout cimport Commit, Slot


cdef enum:
    MAX_JOINED = 64


cdef struct AppendItem:           # one checked record batch
    uint8_t* data                 # whole batch; base offset, leader epoch (LogAppendTime: timestamps) are patched in place
    BatchInfo info
    uint32_t owner                # of its producer, should the partition not know it; see owners.pxd
    # out
    int16_t error                 # Kafka's code, 0 when appended or a duplicate
    uint8_t duplicate
    uint8_t appended
    uint8_t room                  # Room: why there is none for its producer, if that is the error
    uint32_t place                # where its producer was found; see producer_at
    int64_t base_offset
    int64_t append_time           # -1 for CreateTime
    int64_t log_start_offset


cdef struct AppendOutcome:
    int64_t log_end_offset        # after the append
    int64_t high_watermark
    int32_t leader_epoch
    int32_t error_number          # errno of APPEND_IO_ERROR


cdef inline void tell_outcome(Slot* slot, int result, AppendOutcome* outcome) noexcept nogil:
    """How the log stands after an append that ended with `result` (0, or -errno)."""
    cdef Commit* commit = current(slot)
    outcome.log_end_offset = commit.log_end_offset
    outcome.high_watermark = commit.high_watermark
    outcome.leader_epoch = slot.leader_epoch
    outcome.error_number = -result


cdef inline void advance(Commit* commit, const AppendItem* item) noexcept nogil:
    """The size and the log end behind an item whose base offset is known."""
    if commit.size == 0:
        commit.first_timestamp = item.info.max_timestamp
    commit.size += item.info.size
    commit.log_end_offset = item.base_offset + item.info.last_offset_delta + 1


# Write and commit batches that the active segment takes, whose offsets are set; 0, or -errno and nothing of them is in the log.
# `alone`: as a leader whose replica is the only one in sync, so that the high watermark moves as well.
cdef int write_and_commit(uint32_t index, Slot* slot, AppendItem** batches, int count, bint alone) noexcept nogil

# Empty the ring of recent batches: what it says is not in the log any more, or its writer died in the middle.
cdef void clear_recent(Slot* slot) noexcept nogil
