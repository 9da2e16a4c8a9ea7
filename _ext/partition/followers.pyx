"""What a leader knows of its followers; see followers.pxd.

Workers call `note_follower_fetch` in their loops, for each partition of a follower's Fetch request; the coordinator reads the
result. The slot's mutex protects the entries.
"""

from typing import NamedTuple

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.high_watermark cimport follower_of, is_listed, move_high_watermark
from odradek._ext.partition.slot_access cimport take_slot, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot
from odradek._ext.protocol.kafka_errors cimport (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek._ext.shm.atomics cimport (
    fence_acquire,
    fence_release,
    load_acquire_32,
    load_acquire_i32,
    store_relaxed_32,
    store_relaxed_8,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_8,
    store_release_i32,
    store_release_i64,
)
from odradek._ext.shm.brokers cimport broker_alive
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport FOLLOWER_FETCH_NOTED, FOLLOWER_HIGH_WATERMARK_MOVED, fault
from odradek._ext.shm.layout cimport COORDINATOR, SERVING, STARTING, Process, region
from odradek._ext.shm.locks cimport LOCK_BUSY, unlock
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport (
    IN_SYNC_COMMITTED,
    MAX_FOLLOWERS,
    ROLE_LEADER,
    SLOT_DELETED,
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    Commit,
    Follower,
    Slot,
    followers_at,
    slot_at,
    state_now,
)
from odradek._ext.shm.waking cimport wake_after, wake_slot


# -- entries ----------------------------------------------------------------------------------------------------------

cdef void clear_follower(Follower* follower, int32_t broker_id) noexcept nogil:
    """The id is stored last: after a death the entry is free, or complete."""
    store_release_i32(&follower.broker_id, -1)
    fence_release()                     # no reader without the mutex sees the cleared fields under the former id
    store_relaxed_i32(&follower.candidate, 0)
    store_relaxed_i64(&follower.broker_epoch, -1)
    store_relaxed_i64(&follower.candidate_epoch, -1)
    store_relaxed_i64(&follower.log_end_offset, -1)
    store_release_i64(&follower.log_start_offset, -1)
    store_relaxed_i64(&follower.caught_up_ms, 0)
    store_relaxed_i64(&follower.last_fetch_ms, 0)
    store_relaxed_i64(&follower.leader_end_at_fetch, 0)
    store_release_i32(&follower.broker_id, broker_id)


cdef void drop_removed_followers(Slot* slot) noexcept nogil:
    cdef Follower* entries
    cdef int i
    if not slot.has_followers:
        return
    entries = followers_at(slot)
    for i in range(MAX_FOLLOWERS):
        if entries[i].broker_id >= 0 and not is_listed(slot.replicas, slot.replica_count, entries[i].broker_id):
            clear_follower(&entries[i], -1)


cdef void make_entries(Slot* slot) noexcept nogil:
    """Clear the entries, then make them valid. After a death in between, no entry is valid."""
    cdef Follower* entries = followers_at(slot)
    cdef int i
    for i in range(MAX_FOLLOWERS):
        clear_follower(&entries[i], -1)
    store_release_8(&slot.has_followers, 1)


cdef Follower* entry_for(Slot* slot, int32_t broker_id) noexcept nogil:
    """The entry of a replica, a free one if it has none; NULL if the assignment has more followers than there are entries."""
    cdef Follower* follower = follower_of(slot, broker_id)
    if follower == NULL:
        if slot.has_followers:
            drop_removed_followers(slot)
        else:
            make_entries(slot)
        follower = follower_of(slot, -1)
        if follower != NULL:
            clear_follower(follower, broker_id)
    return follower


cdef void begin_followers(Slot* slot, int64_t now_ms) noexcept nogil:
    cdef Follower* follower
    cdef int32_t i, broker_id
    store_relaxed_8(&slot.has_followers, 0)
    for i in range(slot.replica_count):
        broker_id = slot.replicas[i]
        if broker_id == region().header.broker_id:
            continue
        follower = entry_for(slot, broker_id)
        if follower != NULL and is_listed(slot.in_sync, slot.in_sync_count, broker_id):
            store_relaxed_i64(&follower.caught_up_ms, now_ms)


cdef bint may_join(Slot* slot, const Follower* follower) noexcept nogil:
    """Records of earlier leader epochs may be below the leader's log end and above its high watermark: a follower without them
    would lose them as the next leader."""
    return follower.last_fetch_ms > 0 and follower.log_end_offset >= current(slot).high_watermark \
        and follower.log_end_offset >= slot.leader_epoch_start \
        and is_listed(slot.replicas, slot.replica_count, follower.broker_id) and broker_alive(follower.broker_id)


# -- a follower's fetch -----------------------------------------------------------------------------------------------

cdef int16_t check_follower(Slot* slot, uint32_t incarnation, int32_t leader_epoch, int32_t broker_id) noexcept nogil:
    """Whether the slot is a leader from which this replica may fetch: Kafka's error code, 0 if it is. An unknown replica is
    refused with an error that makes it wait: the assignment with it may be on its way to this broker."""
    cdef uint32_t state = state_now(slot)
    if slot.incarnation != incarnation or state == SLOT_FREE or state == SLOT_DELETED:
        return UNKNOWN_TOPIC_OR_PARTITION
    if state == SLOT_OFFLINE:
        return KAFKA_STORAGE_ERROR
    if state == SLOT_LOADING or state == SLOT_REMOTE:
        return NOT_LEADER_OR_FOLLOWER
    if slot.role and leader_epoch >= 0 and leader_epoch != slot.leader_epoch:
        return FENCED_LEADER_EPOCH if leader_epoch < slot.leader_epoch else UNKNOWN_LEADER_EPOCH
    if slot.role != ROLE_LEADER:
        return NOT_LEADER_OR_FOLLOWER
    if not is_listed(slot.replicas, slot.replica_count, broker_id) or broker_id == region().header.broker_id:
        return UNKNOWN_LEADER_EPOCH if leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER
    return NO_ERROR


cdef int16_t note_fetch(Slot* slot, int32_t broker_id, int64_t broker_epoch, int64_t fetch_offset, int64_t log_start_offset,
                        int64_t now_ms, bint* log_start_moved) noexcept nogil:
    """The caller holds the lock and has checked the slot. A request of an earlier registration of an in-sync follower is refused: the
    registered one may have lost these records.

    After ZooKeeper was restored from an older backup, the registration itself has a smaller epoch than the former one. So a follower
    that no high watermark waits for may have any; before it joins, the controller compares its epoch with that of its registration.
    An in-sync one leaves the set when its fetches have been refused for `replica.lag.time.max.ms`.
    """
    cdef Commit* commit = current(slot)
    cdef Follower* follower = entry_for(slot, broker_id)
    if follower == NULL:
        return UNKNOWN_LEADER_EPOCH
    if 0 <= broker_epoch < follower.broker_epoch and \
            (slot.in_sync_state != IN_SYNC_COMMITTED or is_listed(slot.in_sync, slot.in_sync_count, broker_id)):
        return NOT_LEADER_OR_FOLLOWER
    if fetch_offset < slot.log_start_offset or fetch_offset > commit.log_end_offset:
        return OFFSET_OUT_OF_RANGE
    # After a death between two stores the follower counts as caught up at an earlier time, never at a later one.
    if broker_epoch >= 0:
        store_relaxed_i64(&follower.broker_epoch, broker_epoch)
    log_start_moved[0] = follower.log_start_offset != log_start_offset
    store_release_i64(&follower.log_start_offset, log_start_offset)
    store_relaxed_i64(&follower.log_end_offset, fetch_offset)
    if fetch_offset >= commit.log_end_offset:
        store_relaxed_i64(&follower.caught_up_ms, max(follower.caught_up_ms, now_ms))
    elif follower.last_fetch_ms > 0 and fetch_offset >= follower.leader_end_at_fetch:
        store_relaxed_i64(&follower.caught_up_ms, max(follower.caught_up_ms, follower.last_fetch_ms))
    store_relaxed_i64(&follower.leader_end_at_fetch, max(follower.leader_end_at_fetch, commit.log_end_offset))
    store_relaxed_i64(&follower.last_fetch_ms, max(follower.last_fetch_ms, now_ms))
    fault(FOLLOWER_FETCH_NOTED)
    return NO_ERROR


cdef bint note_candidate(Slot* slot, Follower* follower, int64_t broker_epoch) noexcept nogil:
    """Whether the fetch that was noted makes its follower a candidate for the in-sync set. Only a fetch does: what is known of a
    follower that has started again since its last fetch may be more than its log still has. While a proposal is under way the
    epoch remains the one that was proposed."""
    if is_listed(slot.in_sync, slot.in_sync_count, follower.broker_id) or not may_join(slot, follower):
        store_relaxed_i32(&follower.candidate, 0)
        return False
    if slot.in_sync_state != IN_SYNC_COMMITTED:
        return False
    store_relaxed_i64(&follower.candidate_epoch, broker_epoch)
    store_relaxed_i32(&follower.candidate, 1)
    return True


cdef uint64_t coordinator_mask() noexcept nogil:
    cdef Process* process
    cdef uint64_t mask = 0
    cdef int i
    for i in range(region().header.process_count):
        process = &region().processes[i]
        if process.kind == COORDINATOR and (process.state == STARTING or process.state == SERVING):
            mask |= <uint64_t>1 << i
    return mask


cdef int16_t note_follower_fetch(uint32_t index, uint32_t incarnation, int32_t leader_epoch, int32_t broker_id, int64_t broker_epoch,
                                 int64_t fetch_offset, int64_t log_start_offset, int64_t now_ms, int spins) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef bint moved = False, wanted = False, log_start_moved = False
    cdef int16_t error
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return LOCK_BUSY_RESULT
    error = check_follower(slot, incarnation, leader_epoch, broker_id)
    if error == NO_ERROR:
        error = note_fetch(slot, broker_id, broker_epoch, fetch_offset, log_start_offset, now_ms, &log_start_moved)
    if error == NO_ERROR:
        wanted = note_candidate(slot, follower_of(slot, broker_id), broker_epoch)
        if wanted:
            store_relaxed_32(&slot.in_sync_wanted, 1)
        moved = move_high_watermark(slot, now_ms)
        fault(FOLLOWER_HIGH_WATERMARK_MOVED)
    unlock(index, slot)
    if moved or log_start_moved:        # DeleteRecords waits for the log start offsets of the followers
        wake_after(index, slot, False, True)
    if wanted:
        wake_slot(index, coordinator_mask())
    return error


# -- for Python -------------------------------------------------------------------------------------------------------

class FollowerFacts(NamedTuple):
    """A follower as its leader knows it. Offsets and the broker epoch are -1 if it has not fetched in this leader epoch."""

    broker_id: int
    broker_epoch: int
    log_end_offset: int
    log_start_offset: int
    fetched_before_ms: int        # since its last fetch; -1: none in this leader epoch
    caught_up_before_ms: int      # since it last had every record of the leader; -1: never in this leader epoch


def low_watermark(uint32_t index, uint32_t incarnation, int leader_epoch) -> int | None:
    """The smallest log start offset of the live replicas of a partition; None if this broker has not led it without interruption since
    this leader epoch. -1 if a live follower has not fetched in the present epoch. No lock is taken.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Follower* follower
    cdef int64_t lowest = slot.log_start_offset
    cdef uint32_t role_epoch = load_acquire_i32(&slot.role_epoch)
    cdef int32_t partition_epoch = slot.partition_epoch
    cdef int32_t i, broker_id
    for i in range(min(slot.replica_count, <int32_t>MAX_IN_SYNC)):
        broker_id = slot.replicas[i]
        if broker_id == region().header.broker_id or not broker_alive(broker_id):
            continue
        follower = follower_of(slot, broker_id)
        lowest = min(lowest, follower.log_start_offset if follower != NULL else <int64_t>-1)
    fence_acquire()                                 # a role that ended meanwhile is seen: it ends before the followers change
    if load_acquire_32(&slot.role) != ROLE_LEADER or slot.incarnation != incarnation \
            or load_acquire_i32(&slot.led_since) > leader_epoch:
        return None
    if <int32_t>role_epoch < 0 or slot.role_epoch != <int32_t>role_epoch or slot.partition_epoch != partition_epoch:
        return -1                           # replicas or followers were being changed; all are woken after that [R 10.1]
    return lowest


def followers_of(uint32_t index) -> list[FollowerFacts]:
    """The followers of a partition that this broker leads, in no order: list[FollowerFacts]; empty if it is not the leader.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Follower[MAX_FOLLOWERS] copies
    cdef Follower* follower
    cdef int64_t now = monotonic_ms()
    cdef bint taken, leads = False
    cdef int i
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            leads = slot.state == SLOT_ONLINE and slot.role == ROLE_LEADER
            leads = leads and slot.has_followers
            if leads:
                memcpy(copies, followers_at(slot), sizeof(copies))
            unlock(index, slot)
    if not taken:
        raise busy(index)
    facts = []
    for i in range(MAX_FOLLOWERS if leads else 0):
        follower = &copies[i]
        if follower.broker_id >= 0:
            facts.append(FollowerFacts(
                follower.broker_id, follower.broker_epoch, follower.log_end_offset, follower.log_start_offset,
                max(<int64_t>0, now - follower.last_fetch_ms) if follower.last_fetch_ms else -1,
                max(<int64_t>0, now - follower.caught_up_ms) if follower.caught_up_ms else -1,
            ))
    return facts
