"""The role of a partition in this broker, as the controller of the cluster assigned it: leader, follower, or none [R 10].

Called by the coordinator's replicas thread, the one writer of roles. A change is made under the slot's mutex: first `role_epoch` is
cleared, then the fields are stored, and `role_epoch` is stored last. If the process dies in between, the recovery of the slot finds
the cleared epoch and takes the role away, and the controller's repeated request is applied as a new one.
"""

from odradek._ext.partition.slots import LogUnsettled, SlotChanged

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.partition.followers cimport begin_followers, drop_removed_followers
from odradek._ext.partition.high_watermark cimport move_high_watermark
from odradek._ext.partition.leader_epochs cimport note_epoch
from odradek._ext.partition.lost_tails cimport lead_without_tail
from odradek._ext.partition.slot_access cimport load_again, note_failure, wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, name_of
from odradek._ext.shm.atomics cimport (
    fence_release,
    fill_ids,
    store_relaxed_8,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_32,
    store_release_i32,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport (
    ROLE_EPOCH_CLEARED,
    ROLE_EPOCH_NOTED,
    ROLE_EPOCH_STORED,
    ROLE_FIELDS_STORED,
    ROLE_STORED,
    fault,
)
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport (
    IN_SYNC_COMMITTED,
    MAX_FOLLOWERS,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    Slot,
    read_commit,
    slot_at,
)
from odradek._ext.shm.waking cimport wake_everyone
from odradek._ext.storage.file_calls cimport file_error
from odradek._ext.storage.log_dirs cimport is_full


cdef enum:                        # in addition to -errno
    SAME_EPOCH = 0
    NEW_EPOCH = 1
    WRONG_SLOT = 2
    OLDER_EPOCH = 3
    TRUNCATED = 4


cdef struct Assignment:           # what the controller says
    uint32_t role
    int32_t leader_id
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t controller_epoch
    uint32_t recovering
    uint32_t adding
    uint32_t removing
    int32_t replica_count
    int32_t in_sync_count
    int32_t[MAX_IN_SYNC] replicas
    int32_t[MAX_IN_SYNC] in_sync


cdef int take_assignment(Assignment* out, replicas, adding, removing, in_sync) except -1:
    """Convert Python values before a lock is taken. :raises ValueError: too many replicas."""
    cdef int i
    if len(replicas) > MAX_IN_SYNC or len(in_sync) > MAX_IN_SYNC:
        raise ValueError(f"a partition may have at most {MAX_IN_SYNC} replicas, not {len(replicas)} with {len(in_sync)} in sync")
    if len(replicas) > MAX_FOLLOWERS + 1:
        raise ValueError(f"a partition may have at most {MAX_FOLLOWERS} followers, not {len(replicas) - 1}")
    out.adding = out.removing = 0
    for i, replica in enumerate(replicas):
        out.replicas[i] = replica
        if replica in adding:
            out.adding |= <uint32_t>1 << i
        if replica in removing:
            out.removing |= <uint32_t>1 << i
    for i, replica in enumerate(in_sync):
        out.in_sync[i] = replica
    out.replica_count = <int32_t>len(replicas)
    out.in_sync_count = <int32_t>len(in_sync)
    return 0


def become_leader(uint32_t index, uint32_t incarnation, *, int leader_id, int leader_epoch, int partition_epoch, int controller_epoch,
                  replicas, in_sync, adding=(), removing=(), bint recovering=False) -> bool:
    """Make this broker the leader of the partition in a leader epoch, or change the in-sync set and the replicas in the present one.

    A new leader epoch begins at the log end; the epoch is in the epoch file before the role is visible. In the present epoch the
    states of the followers are kept. A proposal that is under way ends.

    :param leader_id: of this broker. :return: whether a new leader epoch began.
    :raises SlotChanged: another incarnation, a log that is not open, or an epoch older than the present role's.
    :raises ValueError: more replicas than a slot can hold.
    :raises OSError: the leader-epoch checkpoint could not be written; the slot is then OFFLINE, or LOADING if only disk space was
    missing.
    """
    cdef Assignment assignment
    take_assignment(&assignment, replicas, adding, removing, in_sync)
    assignment.role = ROLE_LEADER
    assignment.leader_id = leader_id
    assignment.leader_epoch = leader_epoch
    assignment.partition_epoch = partition_epoch
    assignment.controller_epoch = controller_epoch
    assignment.recovering = recovering
    return assign(index, incarnation, &assignment)


def become_follower(uint32_t index, uint32_t incarnation, *, int leader_id, int leader_epoch, int partition_epoch,
                    int controller_epoch, replicas, in_sync, adding=(), removing=()) -> bool:
    """Make this broker a follower of the leader `leader_id` (-1: there is none) in a leader epoch.

    The log changes only when the replicator has compared it with the leader's. :return: whether the leader epoch is new.
    :raises SlotChanged: see `become_leader`. :raises ValueError: more replicas than a slot can hold.
    """
    cdef Assignment assignment
    take_assignment(&assignment, replicas, adding, removing, in_sync)
    assignment.role = ROLE_FOLLOWER
    assignment.leader_id = leader_id
    assignment.leader_epoch = leader_epoch
    assignment.partition_epoch = partition_epoch
    assignment.controller_epoch = controller_epoch
    assignment.recovering = 0
    return assign(index, incarnation, &assignment)


def leave_role(uint32_t index, uint32_t incarnation, int leader_epoch) -> None:
    """Take the role away: the broker neither leads nor follows the partition until the controller assigns a role in a newer leader
    epoch. Nothing is deleted.

    :param leader_epoch: of the controller's request; negative values leave the present one.
    :raises SlotChanged: another incarnation, or an epoch older than the present role's.
    """
    cdef Slot* slot = checked_slot(index)
    cdef int32_t epoch = leader_epoch
    cdef int result = SAME_EPOCH
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if slot.incarnation != incarnation:
                result = WRONG_SLOT
            elif 0 <= epoch < slot.role_epoch:
                result = OLDER_EPOCH
            else:
                withdraw_role(slot)
                store_relaxed_i64(&slot.leader_epoch_start, -1)
                store_relaxed_i32(&slot.leader_id, -1)
                store_release_i32(&slot.role_epoch, max(epoch, slot.role_epoch))
                wake_everyone(index, slot)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    raise_refusal(slot, result, leader_epoch, -1)


def led_slots() -> list[int]:
    """The slots of the partitions that this broker leads, in ascending order. Reads without locks: the caller is the one writer of
    roles, and the role of a slot that a dead process left half-changed is no leader's."""
    cdef uint32_t index
    return [index for index in range(region().header.slots_used) if slot_at(index).role == ROLE_LEADER]


def give_up_leadership(uint32_t index) -> bool:
    """Leave the role of a leader, if the slot has it, as if the broker had started again: the controller's next LeaderAndIsr is never
    taken for an old one. Nothing is deleted.

    :return: whether the broker led the partition until now. :raises SlotBusy: the lock is not available.
    """
    cdef Slot* slot = checked_slot(index)
    cdef bint taken, led = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            led = slot.role == ROLE_LEADER
            if led:
                # The epoch first: the recovery of the slot takes the role away if this process dies in between [R 10.1].
                store_release_i32(&slot.role_epoch, -1)
                fault(ROLE_EPOCH_CLEARED)
                withdraw_role(slot)
                fault(ROLE_STORED)
                store_relaxed_i64(&slot.leader_epoch_start, -1)
                store_relaxed_i32(&slot.leader_id, -1)
                wake_everyone(index, slot)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return led


def role_epoch(uint32_t index) -> int:
    """The leader epoch of the role that the controller assigned last; -1 if it has assigned none since the start."""
    return checked_slot(index).role_epoch


cdef object assign(uint32_t index, uint32_t incarnation, const Assignment* assignment):
    cdef Slot* slot = checked_slot(index)
    cdef int result = 0
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            result = change_role(index, slot, incarnation, assignment)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    raise_refusal(slot, result, assignment.leader_epoch, assignment.partition_epoch)
    return result == NEW_EPOCH


cdef int raise_refusal(Slot* slot, int result, int leader_epoch, int partition_epoch) except -1:
    """Raise the exception for the result of a change."""
    if result == WRONG_SLOT:
        raise SlotChanged(f"{name_of(slot)} is not online, or its slot was given to another partition")
    if result == TRUNCATED:
        raise LogUnsettled(f"{name_of(slot)} was truncated, and its recovery point is not written yet")
    if result == OLDER_EPOCH:
        raise SlotChanged(f"{name_of(slot)} has a newer epoch than leader epoch {leader_epoch}, partition epoch {partition_epoch}")
    if result < 0:
        raise file_error(-result, f"{name_of(slot)}/leader-epoch-checkpoint")
    return 0


cdef int change_role(uint32_t index, Slot* slot, uint32_t incarnation, const Assignment* new) noexcept nogil:
    """The caller holds the slot's mutex. Returns SAME_EPOCH, NEW_EPOCH, WRONG_SLOT, TRUNCATED, OLDER_EPOCH, or -errno."""
    cdef Commit commit
    cdef bint fresh = new.leader_epoch != slot.role_epoch or new.role != slot.role
    # A new epoch of a leader that leads on: nobody truncated its log. Readers without the mutex see a leader all the time, so that
    # neither an append nor one that waits for the high watermark is refused [R 10.6].
    cdef bint leads_on = new.role == ROLE_LEADER and slot.role == ROLE_LEADER and slot.role_epoch >= 0
    cdef int result
    if slot.incarnation != incarnation or slot.state != SLOT_ONLINE:
        return WRONG_SLOT
    read_commit(slot, &commit)
    if new.role == ROLE_LEADER and slot.recovery_point > commit.log_end_offset:
        return TRUNCATED
    if new.leader_epoch < slot.role_epoch or (not fresh and new.partition_epoch < slot.partition_epoch):
        return OLDER_EPOCH
    if fresh and new.role == ROLE_LEADER:
        result = note_epoch(slot, new.leader_epoch, commit.log_end_offset)
        fault(ROLE_EPOCH_NOTED)
        if result != 0:
            fail(index, slot, result)
            return result
    store_release_i32(&slot.role_epoch, -1)
    fault(ROLE_EPOCH_CLEARED)
    if fresh and not leads_on:
        withdraw_role(slot)         # readers without the mutex must not combine the old role with the new epoch
        store_release_i32(&slot.led_since, new.leader_epoch)
    store_fields(slot, new, fresh, commit.log_end_offset)
    fault(ROLE_FIELDS_STORED)
    store_release_32(&slot.role, new.role)
    fault(ROLE_STORED)
    store_release_i32(&slot.role_epoch, new.leader_epoch)
    fault(ROLE_EPOCH_STORED)
    if new.role == ROLE_LEADER:
        move_high_watermark(slot, monotonic_ms())
    wake_everyone(index, slot)
    return NEW_EPOCH if fresh else SAME_EPOCH


cdef void withdraw_role(Slot* slot) noexcept nogil:
    """Before the fields that belong to the role change. Without the fence, a processor with a weak memory order (aarch64) may show a
    reader the fields before the end of the role."""
    store_release_32(&slot.role, ROLE_NONE)
    fence_release()


cdef void store_fields(Slot* slot, const Assignment* new, bint fresh, int64_t log_end_offset) noexcept nogil:
    """Store everything but the role and its epoch. A proposed in-sync set ends, and responses to it are ignored."""
    store_relaxed_i32(&slot.leader_id, new.leader_id)
    store_relaxed_i32(&slot.partition_epoch, new.partition_epoch)
    slot.controller_epoch = new.controller_epoch
    slot.recovering = new.recovering
    slot.adding = new.adding
    slot.removing = new.removing
    fill_ids(slot.replicas, new.replicas, MAX_IN_SYNC)
    store_relaxed_i32(&slot.replica_count, new.replica_count)
    fill_ids(slot.in_sync, new.in_sync, MAX_IN_SYNC)
    store_relaxed_i32(&slot.in_sync_count, new.in_sync_count)
    fill_ids(slot.max_in_sync, new.in_sync, MAX_IN_SYNC)
    store_relaxed_i32(&slot.max_in_sync_count, new.in_sync_count)
    store_release_32(&slot.in_sync_state, IN_SYNC_COMMITTED)
    slot.in_sync_serial += 1
    store_relaxed_i64(&slot.in_sync_since_ms, monotonic_ms())
    store_relaxed_i64(&slot.fetch_error, 0)
    store_relaxed_i64(&slot.fetch_lag, -1)
    store_release_i32(&slot.leader_epoch, new.leader_epoch)     # a reader that sees it also sees the leader of this epoch
    if new.role != ROLE_LEADER:
        store_relaxed_i64(&slot.leader_epoch_start, -1)
        store_relaxed_8(&slot.has_followers, 0)
    elif fresh:
        store_relaxed_i64(&slot.leader_epoch_start, log_end_offset)
        lead_without_tail(slot, new.replica_count)
        begin_followers(slot, monotonic_ms())
    else:
        drop_removed_followers(slot)


cdef void fail(uint32_t index, Slot* slot, int result) noexcept nogil:
    """The epoch file could not be written: the slot becomes LOADING if only disk space was missing, else OFFLINE."""
    if is_full(result):
        load_again(slot)
    else:
        store_release_32(&slot.state, SLOT_OFFLINE)
    note_failure(slot, result)
    wake_everyone(index, slot)
