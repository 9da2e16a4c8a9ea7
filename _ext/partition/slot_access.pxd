"""The begin and the end of every change of a slot: taking its lock, recovering a dead owner's work, checking the slot's
identity, and the consequences of a failure [R 1, R 4, R 5]."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.shm.locks cimport LockResult
from odradek._ext.shm.slot cimport Slot


cpdef enum AppendResult:
    APPEND_OK = 0
    APPEND_BUSY = -1              # the lock or the arena is taken: try again later
    APPEND_STALE = -2             # another incarnation, or deleted: UNKNOWN_TOPIC_OR_PARTITION
    APPEND_NOT_LEADER = -3
    APPEND_FENCED_EPOCH = -4
    APPEND_OFFLINE = -5           # KAFKA_STORAGE_ERROR
    APPEND_IO_ERROR = -6          # this write failed and the log contains nothing of it; KAFKA_STORAGE_ERROR, retriable
    APPEND_OUT_OF_RANGE = -7      # a follower's append or truncation does not fit the log
    APPEND_CORRUPT = -8           # a batch that the leader sent is damaged; those before it were appended
    APPEND_BEFORE_LOG = -9        # the follower's log is empty, and the first batch begins before it: `start_at` its base offset
    APPEND_UNSETTLED = -10        # after a truncation the recovery point is not written yet [R 4.10]


# Take the slot's lock and, if its last holder died, recover the slot first. LOCK_TAKEN or LOCK_BUSY.
cdef LockResult take_slot(uint32_t index, Slot* slot, int spins) noexcept nogil

# Like `take_slot`, for callers that may wait, with short pauses. Returns 0, or -1 after the time-out.
cdef int wait_slot(uint32_t index, Slot* slot, int64_t timeout_ms) noexcept nogil

# After the death of a process: recover every slot whose lock it held, so that this does not wait for the next append. A lock that
# is busy is left to its holder, because the first process that gets a dead owner's lock recovers the slot.
cdef void recover_dead_owners() noexcept nogil

# Check the slot's identity, state, role and epoch against the caller's expectation; leader_epoch -1 matches any. The caller holds
# its lock.
cdef AppendResult check_slot(Slot* slot, uint32_t incarnation, int32_t leader_epoch, uint32_t role) noexcept nogil

# Store the consequences of a file call that failed with `result` (-errno) for the slot and its directory; under the slot's lock [R
# 4.4].
cdef void note_failure(Slot* slot, int result) noexcept nogil

# Change an ONLINE slot to LOADING: the coordinator loads its log again once the disk has space. Its leader epoch no longer counts
# as one that began for a load, because clients were served in it.
cdef void load_again(Slot* slot) noexcept nogil

# After a change that stopped half way: the slot becomes LOADING, to be loaded again, if only disk space was missing, else OFFLINE.
cdef void give_up(Slot* slot, int result) noexcept nogil
