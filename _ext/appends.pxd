"""Every change of a partition's log: append, roll, truncate, recover after a death. One C function under one slot's lock each.

The order of the steps is the contract (``broker/shm/README.md``, rule 1); the names of the fault points between them
stand in ``faults.pxd``.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from broker._ext.locks cimport LockResult
from broker._ext.records cimport BatchInfo
from broker._ext.shared cimport Commit, Slot


cdef enum AppendResult:
    APPEND_OK = 0
    APPEND_BUSY = -1              # the lock or the arena is taken: come back
    APPEND_STALE = -2             # another incarnation, or deleted: UNKNOWN_TOPIC_OR_PARTITION
    APPEND_NOT_LEADER = -3
    APPEND_FENCED_EPOCH = -4
    APPEND_OFFLINE = -5           # KAFKA_STORAGE_ERROR
    APPEND_IO_ERROR = -6          # this write failed, nothing of it is in the log; KAFKA_STORAGE_ERROR, retriable
    APPEND_OUT_OF_RANGE = -7      # a follower's append or truncation does not fit the log


cdef enum:
    MAX_JOINED = 64


cdef struct AppendItem:           # one checked record batch
    uint8_t* data                 # whole batch; base offset, leader epoch (LogAppendTime: timestamps) are patched in place
    BatchInfo info
    # out
    int16_t error                 # Kafka's code, 0 when appended or a duplicate
    uint8_t duplicate
    uint8_t appended
    int64_t base_offset
    int64_t append_time           # -1 for CreateTime
    int64_t log_start_offset


cdef struct AppendOutcome:
    int64_t log_end_offset        # after the append
    int64_t high_watermark
    int32_t leader_epoch
    int32_t error_number          # errno of APPEND_IO_ERROR


# Take the slot's lock and, if its last holder died, recover the slot first.
cdef LockResult take_slot(uint32_t index, Slot* slot, int spins) noexcept nogil

cdef AppendResult append_as_leader(uint32_t index, uint32_t incarnation, int32_t leader_epoch, AppendItem* items, int count,
                                   int64_t wall_ms, int spins, AppendOutcome* outcome) noexcept nogil
cdef AppendResult append_as_follower(uint32_t index, uint32_t incarnation, int32_t leader_epoch, uint8_t* data, int64_t size,
                                     int64_t leader_high_watermark, int64_t leader_log_start_offset, int64_t wall_ms, int spins,
                                     AppendOutcome* outcome) noexcept nogil
cdef AppendResult truncate_to(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset, int64_t wall_ms,
                              int spins) noexcept nogil
cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil
cdef int roll_now(uint32_t index, Slot* slot, int64_t wall_ms) noexcept nogil

# Replace the commit block: fill the one not in use, then one release-store.
cdef void publish(Slot* slot, const Commit* commit) noexcept nogil
cdef int redo(uint32_t index, Slot* slot) noexcept nogil
cdef int write_epoch_file(Slot* slot) noexcept nogil
cdef void assign_epoch(Slot* slot, int32_t epoch, int64_t start_offset) noexcept nogil
cdef int64_t segment_holding(Slot* slot, int64_t offset, int64_t beyond) noexcept nogil
cdef int64_t next_segment(Slot* slot, int64_t after, int64_t beyond) noexcept nogil
cdef void wake_after(uint32_t index, Slot* slot, bint log_end, bint committed) noexcept nogil
# Wake who waits for records to be on the device; after a flush, and with all others where the slot itself changed.
cdef void wake_flushed(uint32_t index, Slot* slot) noexcept nogil
cdef void wake_everyone(uint32_t index, Slot* slot) noexcept nogil
# Leave the active segment as an ordered stop does; the caller holds the slot's lock. 0, or -errno.
cdef int end_segment(uint32_t index, Slot* slot) noexcept nogil
cdef void clear_recent(Slot* slot) noexcept nogil
# After a file call under the slot's lock failed with `result` (-errno): the slot, its directory [R 4.4].
cdef void note_failure(Slot* slot, int result) noexcept nogil

# A change that stopped half way: the slot is OFFLINE, or LOADING, to be loaded anew, if only room was missing.
cdef void give_up(Slot* slot, int result) noexcept nogil
# Whether the slot is what the caller takes it for; leader_epoch -1 for any. The caller holds its lock.
cdef AppendResult check_slot(Slot* slot, uint32_t incarnation, int32_t leader_epoch, uint32_t role) noexcept nogil
cdef int snapshot_producers(Slot* slot, int64_t offset) noexcept nogil
