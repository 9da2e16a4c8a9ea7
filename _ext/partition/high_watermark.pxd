"""The high watermark: the one rule by which a leader moves it, and its publication. It never moves backwards. Under the slot's
lock.

A leader's high watermark is the lowest log end offset of these replicas: the leader itself, the members of the maximal in-sync
set, and the other replicas of the assignment that are alive and were caught up within replica.lag.time.max.ms, because they are
about to join the set. If flush.messages or more records of the leader's log are not on its device, its flushed offset counts instead
of its log end offset; a follower reports no such log end offset (`acknowledged_end`). It does not move while the committed in-sync
set is smaller than min.insync.replicas [R 10.4].
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.slot_access cimport AppendResult
from odradek._ext.shm.atomics cimport load_relaxed_i32, shared_i32
from odradek._ext.shm.brokers cimport broker_alive
from odradek._ext.shm.slot cimport Follower, Slot


# Raise the high watermark; lower values change nothing. Its position is stored if it is known without a look-up in an index;
# otherwise the readers find it. The caller holds the slot's lock.
cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil

# Apply the rule to a leader's high watermark at `now_ms` (monotonic). Returns whether it moved; False if this broker is not the
# leader. Call it after every change of what the rule reads: log end, followers, in-sync sets, flushed offset, settings, role. The
# caller holds the slot's lock, and wakes `waiters_committed` after it released the lock.
cdef bint move_high_watermark(Slot* slot, int64_t now_ms) noexcept nogil

# Like `move_high_watermark`, after everything before `flushed_offset` was synced and before the slot's own `flushed_offset` is
# raised. `segment_base` and `position` locate `flushed_offset`; -1 if not known.
cdef bint follow_device(Slot* slot, int64_t flushed_offset, int64_t segment_base, int64_t position) noexcept nogil

# The high watermark that the rule allows; below the current one if it may not move. Without the lock the result is only a hint.
cdef int64_t allowed_high_watermark(Slot* slot, int64_t log_end_offset, int64_t flushed_offset, int64_t now_ms) noexcept nogil

# The entry of a follower, NULL if it has none.
cdef Follower* follower_of(Slot* slot, int32_t broker_id) noexcept nogil

cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil


cdef inline bint is_alive(int32_t broker_id) noexcept nogil:
    return broker_alive(broker_id)


cdef inline int32_t effective_min_in_sync(Slot* slot) noexcept nogil:
    """The number of in-sync replicas that acks=all requires: min.insync.replicas, but not more than there are replicas."""
    return min(slot.settings.min_in_sync_replicas, slot.replica_count)


cdef inline bint is_member(const int32_t* members, int32_t count, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        if members[i] == broker_id:
            return True
    return False


cdef inline bint is_listed(shared_i32* members, int32_t count, int32_t broker_id) noexcept nogil:
    """Like `is_member`, for a set in a slot."""
    cdef int32_t i
    for i in range(count):
        if load_relaxed_i32(&members[i]) == broker_id:
            return True
    return False


cdef bint in_cluster() noexcept nogil    # other brokers may exist


cdef inline bint is_lone_leader(Slot* slot) noexcept nogil:
    """Whether no other replica can hold back the leader's high watermark: an append moves it in its own commit."""
    return slot.max_in_sync_count <= 1 and (slot.replica_count <= 1 or not in_cluster()) \
        and slot.in_sync_count >= effective_min_in_sync(slot)
