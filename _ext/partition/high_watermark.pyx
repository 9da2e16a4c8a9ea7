"""The high watermark; see high_watermark.pxd. Runs with the slot's mutex held and needs no GIL."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.commits cimport commit_to_log_end, current, publish
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.slot_access cimport APPEND_BUSY, APPEND_OK, APPEND_OUT_OF_RANGE, AppendResult, check_slot, take_slot
from odradek._ext.shm.brokers cimport broker_alive
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport HIGH_WATERMARK_PUBLISHED, fault
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.slot cimport MAX_FOLLOWERS, RECENT_KEPT, ROLE_LEADER, Commit, Follower, Slot, followers_at, slot_at
from odradek._ext.shm.waking cimport wake_after


cdef bint in_cluster() noexcept nogil:
    return region().header.clustered != 0


# -- the rule ---------------------------------------------------------------------------------------------------------

cdef Follower* follower_of(Slot* slot, int32_t broker_id) noexcept nogil:
    cdef Follower* entries
    cdef int i
    if not slot.has_followers:
        return NULL
    entries = followers_at(slot)
    for i in range(MAX_FOLLOWERS):
        if entries[i].broker_id == broker_id:
            return &entries[i]
    return NULL


cdef bint may_join_soon(Follower* follower, int64_t now_ms) noexcept nogil:
    """Whether a replica outside the maximal in-sync set was caught up recently, so that the high watermark waits for it."""
    return follower != NULL and follower.caught_up_ms > 0 and now_ms - follower.caught_up_ms <= region().header.lag_limit_ms \
        and broker_alive(follower.broker_id)


cdef int64_t allowed_high_watermark(Slot* slot, int64_t log_end_offset, int64_t flushed_offset, int64_t now_ms) noexcept nogil:
    """A leader waits for its device if flush.messages requires that: the other replicas report only records that are on theirs, and any
    of the in-sync replicas may be the next leader after a loss of power."""
    cdef int64_t allowed = log_end_offset
    cdef Follower* follower
    cdef int32_t i, broker_id
    if slot.role != ROLE_LEADER or slot.in_sync_count < effective_min_in_sync(slot):
        return -1
    if log_end_offset - flushed_offset >= slot.settings.flush_messages:
        allowed = flushed_offset
    for i in range(slot.replica_count):
        broker_id = slot.replicas[i]
        if broker_id == region().header.broker_id:
            continue
        if not is_listed(slot.max_in_sync, slot.max_in_sync_count, broker_id):
            if not region().header.clustered:
                continue
            follower = follower_of(slot, broker_id)
            if may_join_soon(follower, now_ms):
                allowed = min(allowed, follower.log_end_offset)
        else:
            follower = follower_of(slot, broker_id)
            allowed = min(allowed, follower.log_end_offset if follower != NULL else -1)
    return allowed


cdef bint move_high_watermark(Slot* slot, int64_t now_ms) noexcept nogil:
    cdef Commit* commit = current(slot)
    cdef int64_t allowed = allowed_high_watermark(slot, commit.log_end_offset, slot.flushed_offset, now_ms)
    if allowed <= commit.high_watermark:
        return False
    set_high_watermark(slot, allowed)
    return True


cdef bint follow_device(Slot* slot, int64_t flushed_offset, int64_t segment_base, int64_t position) noexcept nogil:
    cdef Commit commit = current(slot)[0]
    cdef int64_t allowed = allowed_high_watermark(slot, commit.log_end_offset, flushed_offset, monotonic_ms())
    if allowed <= commit.high_watermark:
        return False
    if allowed == flushed_offset and 0 <= segment_base == commit.segment_base:
        publish_high_watermark(slot, &commit, allowed, segment_base, position)
    else:
        set_high_watermark(slot, allowed)
    return True


# -- publication ------------------------------------------------------------------------------------------------------

cdef void publish_high_watermark(Slot* slot, Commit* commit, int64_t offset, int64_t segment_base, int64_t position) noexcept nogil:
    """`commit`: a copy of the current commit, which becomes the new one."""
    commit.high_watermark = offset
    commit.high_watermark_base = segment_base
    commit.high_watermark_position = position
    publish(slot, commit)
    fault(HIGH_WATERMARK_PUBLISHED)
    settle_last_stable(slot, offset)


cdef void set_high_watermark(Slot* slot, int64_t offset) noexcept nogil:
    """A batch that begins at the high watermark is often among the recent ones; then its position is known. It remains valid:
    compaction leaves segments alone that reach beyond the high watermark."""
    cdef Commit commit = current(slot)[0]
    cdef int64_t base = -1, position = -1
    cdef int i
    if offset <= commit.high_watermark:
        return
    if offset == commit.log_end_offset:
        commit_to_log_end(&commit)
        base = commit.high_watermark_base
        position = commit.high_watermark_position
    else:
        for i in range(RECENT_KEPT):
            if slot.recent[i].base_offset == offset:
                base = slot.recent[i].segment_base
                position = slot.recent[i].position
    publish_high_watermark(slot, &commit, offset, base, position)


cdef AppendResult advance_high_watermark(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int64_t offset,
                                         int spins) noexcept nogil:
    """Raise the high watermark to `offset` (at most the log end offset); lower values change nothing."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, slot.role)
    if checked == APPEND_OK:
        if offset > current(slot).log_end_offset:
            checked = APPEND_OUT_OF_RANGE
        else:
            set_high_watermark(slot, offset)
    unlock(index, slot)
    if checked == APPEND_OK:
        wake_after(index, slot, False, True)
    return checked
