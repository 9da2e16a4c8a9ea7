"""How every change of a slot begins and how one that fails ends: its lock, the recovery of a dead owner's work, the check of
whether it is what the caller takes it for, and what a failure makes of it [R 1, R 4, R 5]."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.shm.layout cimport Slot
from odradek._ext.shm.locks cimport LockResult


cdef enum AppendResult:
    APPEND_OK = 0
    APPEND_BUSY = -1              # the lock or the arena is taken: come back
    APPEND_STALE = -2             # another incarnation, or deleted: UNKNOWN_TOPIC_OR_PARTITION
    APPEND_NOT_LEADER = -3
    APPEND_FENCED_EPOCH = -4
    APPEND_OFFLINE = -5           # KAFKA_STORAGE_ERROR
    APPEND_IO_ERROR = -6          # this write failed, nothing of it is in the log; KAFKA_STORAGE_ERROR, retriable
    APPEND_OUT_OF_RANGE = -7      # a follower's append or truncation does not fit the log


# Take the slot's lock and, if its last holder died, recover the slot first. LOCK_TAKEN or LOCK_BUSY.
cdef LockResult take_slot(uint32_t index, Slot* slot, int spins) noexcept nogil

# The same by who may wait, in small pauses; 0, or -1 after the time-out.
cdef int wait_slot(uint32_t index, Slot* slot, int64_t timeout_ms) noexcept nogil

# After the death of a process: recover every slot whose lock it held, so that nobody waits for the next append to do it. A lock that
# is busy is left to its holder: whoever gets a dead owner's lock first recovers the slot.
cdef void recover_dead_owners() noexcept nogil

# Whether the slot is what the caller takes it for; leader_epoch -1 for any. The caller holds its lock.
cdef AppendResult check_slot(Slot* slot, uint32_t incarnation, int32_t leader_epoch, uint32_t role) noexcept nogil

# After a file call under the slot's lock failed with `result` (-errno): the slot, its directory [R 4.4].
cdef void note_failure(Slot* slot, int result) noexcept nogil

# An ONLINE slot becomes LOADING: the coordinator loads its log again once the disk has room. Its leader epoch no longer counts as one
# that was begun for a load, because clients were served in it.
cdef void load_again(Slot* slot) noexcept nogil

# A change that stopped half way: the slot is OFFLINE, or LOADING, to be loaded again, if only room was missing.
cdef void give_up(Slot* slot, int result) noexcept nogil
