"""Changes of the in-sync set of a partition that this broker leads: proposal, commit, revert [R 10].

The coordinator calls this module; only it changes an in-sync set between two LeaderAndIsr requests. The slot stores the proposal that
is under way, so that the successor of a coordinator sends the same proposal again and understands the response to it. Every function
takes and releases the slot's lock.
"""

from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.partition.commits cimport current
from odradek._ext.partition.followers cimport may_join
from odradek._ext.partition.high_watermark cimport (
    allowed_high_watermark,
    follower_of,
    is_listed,
    is_member,
    move_high_watermark,
)
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, name_of
from odradek._ext.shm.atomics cimport (
    copy_ids,
    fill_ids,
    shared_i32,
    store_relaxed_32,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_32,
    store_release_i32,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport (
    IN_SYNC_COMMIT_STORED,
    IN_SYNC_MAXIMAL_STORED,
    IN_SYNC_PARTLY_STORED,
    IN_SYNC_PROPOSED,
    IN_SYNC_STATE_STORED,
    fault,
)
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport (
    IN_SYNC_COMMITTED,
    IN_SYNC_EXPANDING,
    IN_SYNC_SHRINKING,
    MAX_FOLLOWERS,
    ROLE_LEADER,
    SLOT_ONLINE,
    Commit,
    Follower,
    Slot,
    followers_at,
    read_commit,
    slot_at,
)
from odradek._ext.shm.waking cimport wake_after

from odradek._ext.partition.slots import SlotChanged


class Proposal(NamedTuple):
    """An in-sync set to propose to the controller, or a proposal that is under way."""

    slot: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    in_sync: list[int]
    broker_epochs: list[int]      # of `in_sync`: of the fetch by which a member joins; -1: a member already, or not known
    serial: int                   # 0: not proposed yet
    since_ms: int                 # monotonic time at which it was proposed; 0: not proposed yet


cdef struct Members:
    int32_t count
    int32_t[MAX_IN_SYNC] ids
    int64_t[MAX_IN_SYNC] broker_epochs    # of a proposal; ANY_EPOCH: not compared


cdef struct Found:                # a slot's state, copied under its lock
    uint32_t incarnation
    int32_t leader_epoch
    int32_t partition_epoch
    uint64_t serial
    int64_t since_ms
    Members members
    int64_t[MAX_IN_SYNC] broker_epochs


cdef enum:
    ANY_EPOCH = -2


cdef enum:                        # why a change is refused
    WRONG_SLOT = 1
    OTHER_EPOCH = 2
    UNDER_WAY = 3
    NO_CHANGE = 4
    NOT_A_REPLICA = 5
    NO_ROOM = 6
    NOT_CAUGHT_UP = 7


# -- sets -------------------------------------------------------------------------------------------------------------

cdef int take_members(Members* out, in_sync) except -1:
    """Convert Python values before a lock is taken. :raises ValueError: too many members, or none."""
    cdef int i
    if not 0 < len(in_sync) <= MAX_IN_SYNC:
        raise ValueError(f"an in-sync set has 1 to {MAX_IN_SYNC} members, not {len(in_sync)}")
    out.count = len(in_sync)
    for i, broker_id in enumerate(in_sync):
        out.ids[i] = broker_id
        out.broker_epochs[i] = ANY_EPOCH
    return 0


cdef int take_broker_epochs(Members* out, in_sync, broker_epochs) except -1:
    """As `take_members`. :raises ValueError: there are not as many epochs as members."""
    cdef int i
    if len(broker_epochs) != out.count:
        raise ValueError(f"the in-sync set {list(in_sync)} has {out.count} members, but {len(broker_epochs)} broker epochs were given")
    for i, broker_epoch in enumerate(broker_epochs):
        out.broker_epochs[i] = broker_epoch
    return 0


cdef void copy_members(Members* out, shared_i32* members, int32_t count) noexcept nogil:
    out.count = min(count, <int32_t>MAX_IN_SYNC)
    copy_ids(out.ids, members, out.count)


cdef void put_in(Members* members, int32_t broker_id) noexcept nogil:
    if not is_member(members.ids, members.count, broker_id) and members.count < MAX_IN_SYNC:
        members.ids[members.count] = broker_id
        members.count += 1


cdef void add_member(shared_i32* members, shared_i32* count, int32_t broker_id) noexcept nogil:
    if not is_listed(members, count[0], broker_id) and count[0] < MAX_IN_SYNC:
        store_relaxed_i32(&members[count[0]], broker_id)
        store_release_i32(count, count[0] + 1)


cdef void keep_members(shared_i32* members, shared_i32* count, const Members* kept) noexcept nogil:
    """Remove the members that are not in `kept`. After a death at any point the set has every member that is kept."""
    cdef int32_t i, end = 0
    for i in range(count[0]):
        if is_member(kept.ids, kept.count, members[i]):
            store_relaxed_i32(&members[end], members[i])
            end += 1
            fault(IN_SYNC_PARTLY_STORED)
    store_release_i32(count, end)


cdef void change_members(shared_i32* members, shared_i32* count, const Members* changed) noexcept nogil:
    """Members are added before others are removed: after a death at any point the set has every member that both sets have."""
    cdef int32_t i
    for i in range(changed.count):
        add_member(members, count, changed.ids[i])
        fault(IN_SYNC_PARTLY_STORED)
    keep_members(members, count, changed)
    for i in range(changed.count):      # those for which there was no room before
        add_member(members, count, changed.ids[i])


# -- what to propose --------------------------------------------------------------------------------------------------

cdef bint leads(Slot* slot) noexcept nogil:
    return slot.state == SLOT_ONLINE and slot.role == ROLE_LEADER


cdef void copy_facts(Slot* slot, Found* found) noexcept nogil:
    """The members are copied before."""
    cdef Follower* follower
    cdef int32_t i
    for i in range(found.members.count):
        found.broker_epochs[i] = -1
        follower = follower_of(slot, found.members.ids[i])
        if follower != NULL and not is_listed(slot.in_sync, slot.in_sync_count, follower.broker_id):
            found.broker_epochs[i] = follower.candidate_epoch
    found.incarnation = slot.incarnation
    found.leader_epoch = slot.leader_epoch
    found.partition_epoch = slot.partition_epoch
    found.serial = slot.in_sync_serial
    found.since_ms = slot.in_sync_since_ms


cdef object proposal(uint32_t index, Found* found, bint proposed):
    cdef int i
    return Proposal(index, found.incarnation, found.leader_epoch, found.partition_epoch,
                    [found.members.ids[i] for i in range(found.members.count)],
                    [found.broker_epochs[i] for i in range(found.members.count)],
                    found.serial if proposed else 0, found.since_ms if proposed else 0)


cdef bint find_expansion(Slot* slot, Found* found) noexcept nogil:
    cdef Follower* follower
    cdef int i
    store_relaxed_32(&slot.in_sync_wanted, 0)
    if not leads(slot) or slot.in_sync_state != IN_SYNC_COMMITTED:
        return False
    copy_members(&found.members, slot.in_sync, slot.in_sync_count)
    for i in range(MAX_FOLLOWERS if slot.has_followers else 0):
        follower = &followers_at(slot)[i]
        if follower.broker_id >= 0 and follower.candidate and may_join(slot, follower):
            put_in(&found.members, follower.broker_id)
        store_relaxed_i32(&follower.candidate, 0)
    copy_facts(slot, found)
    return found.members.count > slot.in_sync_count


cdef bint lags(Slot* slot, int32_t broker_id, int64_t log_end_offset, int64_t lag_ms, int64_t now_ms) noexcept nogil:
    """Whether a member of the in-sync set has not had every record of the leader for more than `lag_ms`."""
    cdef Follower* follower
    if broker_id == region().header.broker_id:
        return False
    follower = follower_of(slot, broker_id)
    if follower == NULL:
        return True
    return follower.log_end_offset != log_end_offset and now_ms - follower.caught_up_ms > lag_ms


cdef bint find_lagging(Slot* slot, int64_t lag_ms, Found* found) noexcept nogil:
    cdef int64_t now = monotonic_ms()
    cdef int i
    if not leads(slot) or slot.in_sync_state != IN_SYNC_COMMITTED:
        return False
    found.members.count = 0
    for i in range(slot.in_sync_count):
        if not lags(slot, slot.in_sync[i], current(slot).log_end_offset, lag_ms, now):
            put_in(&found.members, slot.in_sync[i])
    copy_facts(slot, found)
    return 0 < found.members.count < slot.in_sync_count


cdef object searched(uint32_t index, bint for_joins, int64_t lag_ms):
    """The result of `find_expansion` (``for_joins``) or of `find_lagging`; None if there is nothing to propose.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Found found
    cdef bint taken, some = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            some = find_expansion(slot, &found) if for_joins else find_lagging(slot, lag_ms, &found)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return proposal(index, &found, False) if some else None


def expansion_of(uint32_t index) -> Proposal | None:
    """The in-sync set with the followers that may join it now; None if there are none, another proposal is under way, or this
    broker is not the leader. Clears the slot's request to look at it.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    return searched(index, True, 0)


def lagging_of(uint32_t index, int64_t lag_ms) -> Proposal | None:
    """The in-sync set without the followers that lag: for more than `lag_ms` they did not have every record. None if no member
    lags, another proposal is under way, or this broker is not the leader.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    return searched(index, False, lag_ms)


cdef bint release_high_watermark(uint32_t index, Slot* slot) noexcept nogil:
    """Move a high watermark that a follower outside the in-sync set held back until it lagged for too long."""
    cdef bint moved = False
    if wait_slot(index, slot, LOCK_PATIENCE_MS) != 0:
        return False
    if leads(slot):
        moved = move_high_watermark(slot, monotonic_ms())
    unlock(index, slot)
    if moved:
        wake_after(index, slot, False, True)
    return moved


def lagging_slots(int64_t lag_ms) -> list[int]:
    """The slots for which `lagging_of` probably finds a smaller in-sync set; a scan of all slots, almost without locks.

    The scan also moves high watermarks that waited for a follower which has lagged for too long, as no other event would.
    """
    cdef uint64_t i
    cdef int32_t k
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t now = monotonic_ms()
    slots = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if not leads(slot) or slot.replica_count <= 1:
            continue
        read_commit(slot, &commit)
        if allowed_high_watermark(slot, commit.log_end_offset, slot.flushed_offset, now) > commit.high_watermark:
            with nogil:
                release_high_watermark(<uint32_t>i, slot)
        if slot.in_sync_state != IN_SYNC_COMMITTED:
            continue
        for k in range(min(slot.in_sync_count, <int32_t>MAX_IN_SYNC)):
            if lags(slot, slot.in_sync[k], commit.log_end_offset, lag_ms, now):
                slots.append(i)
                break
    return slots


def wanted_slots() -> list[int]:
    """The slots that ask for a look at their followers: for a coordinator that starts, or that a death woke."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used) if leads(slot_at(<uint32_t>i)) and slot_at(<uint32_t>i).in_sync_wanted]


def wanted_among(indexes) -> list[int]:
    """Those of the slots that ask for a look at their followers."""
    return [index for index in indexes if checked_slot(index).in_sync_wanted and leads(slot_at(index))]


# -- the proposal -----------------------------------------------------------------------------------------------------

cdef int check_leader(Slot* slot, uint32_t incarnation, int32_t leader_epoch) noexcept nogil:
    if slot.incarnation != incarnation or not leads(slot):
        return WRONG_SLOT
    return 0 if slot.leader_epoch == leader_epoch else OTHER_EPOCH


cdef bint joins(Slot* slot, int32_t broker_id, int64_t broker_epoch) noexcept nogil:
    """Whether a follower may still join the in-sync set, on the fetch on which the proposal is based. The high watermark does not wait
    for a follower before it is in the maximal set, so it may have passed the follower's log end since the set was suggested."""
    cdef Follower* follower = follower_of(slot, broker_id)
    return follower != NULL and may_join(slot, follower) and (broker_epoch == ANY_EPOCH or follower.candidate_epoch == broker_epoch)


cdef int store_proposal(Slot* slot, const Members* members, uint64_t* serial) noexcept nogil:
    """The caller holds the lock and has checked the slot. The state is stored last: after a death before that there is no
    proposal, and a maximal set that is too large only holds back the high watermark until the next change."""
    cdef int32_t i
    cdef int added = 0, removed = 0, room = slot.in_sync_count
    if slot.in_sync_state != IN_SYNC_COMMITTED:
        return UNDER_WAY
    for i in range(members.count):
        if not is_listed(slot.in_sync, slot.in_sync_count, members.ids[i]):
            added += 1
            if not is_listed(slot.replicas, slot.replica_count, members.ids[i]):
                return NOT_A_REPLICA
            if not joins(slot, members.ids[i], members.broker_epochs[i]):
                return NOT_CAUGHT_UP
    for i in range(slot.in_sync_count):
        removed += not is_member(members.ids, members.count, slot.in_sync[i])
    if room + added > MAX_IN_SYNC:
        return NO_ROOM
    if not added and not removed and not slot.recovering:
        return NO_CHANGE
    for i in range(members.count):
        add_member(slot.max_in_sync, &slot.max_in_sync_count, members.ids[i])
    fault(IN_SYNC_MAXIMAL_STORED)
    fill_ids(slot.proposed, members.ids, members.count)
    store_relaxed_i32(&slot.proposed_count, members.count)
    store_relaxed_i64(&slot.in_sync_since_ms, monotonic_ms())
    slot.in_sync_serial += 1
    serial[0] = slot.in_sync_serial
    fault(IN_SYNC_PROPOSED)
    store_release_32(&slot.in_sync_state, IN_SYNC_EXPANDING if added else IN_SYNC_SHRINKING)
    fault(IN_SYNC_STATE_STORED)
    return 0


def propose_in_sync(uint32_t index, incarnation, int leader_epoch, in_sync, broker_epochs=None) -> int:
    """Begin a change of the in-sync set, before it is sent to the controller. From now on the high watermark waits for members
    of both sets. Returns the serial number of the proposal.

    :param broker_epochs: see `Proposal`; None: those of the followers' last fetches.
    :raises SlotChanged: another incarnation, another leader epoch, not the leader, or another proposal is under way; or a follower
        may not join any more: the high watermark has passed its log end, it is dead, or it has registered again.
    :raises ValueError: the set is empty, too large, not a change, or adds a broker outside the assignment.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Members members
    cdef uint32_t expected = incarnation
    cdef uint64_t serial = 0
    cdef int result = 0
    cdef bint taken
    take_members(&members, in_sync)
    if broker_epochs is not None:
        take_broker_epochs(&members, in_sync, broker_epochs)
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            result = check_leader(slot, expected, leader_epoch)
            if result == 0:
                result = store_proposal(slot, &members, &serial)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result == NO_CHANGE or result == NOT_A_REPLICA or result == NO_ROOM:
        reason = "is the present one" if result == NO_CHANGE else "has members outside the assignment" if result == NOT_A_REPLICA \
            else "is too large"
        raise ValueError(f"the in-sync set {list(in_sync)} of {name_of(slot)} {reason}")
    if result == UNDER_WAY:
        raise SlotChanged(f"a change of the in-sync set of {name_of(slot)} is under way")
    if result == NOT_CAUGHT_UP:
        raise SlotChanged(f"a follower of {name_of(slot)} cannot join the in-sync set {list(in_sync)} any more: the high watermark "
                          "has passed its log end, it is dead, or it has registered again")
    if result != 0:
        raise SlotChanged(f"{name_of(slot)} is not led by this broker in leader epoch {leader_epoch}")
    return serial


cdef bint commit_change(Slot* slot, uint64_t serial, const Members* members, int32_t partition_epoch, bint recovering) noexcept nogil:
    """The caller holds the lock and has checked the slot. The committed set remains a subset of the maximal one at any step."""
    cdef int32_t i
    if slot.in_sync_state == IN_SYNC_COMMITTED or slot.in_sync_serial != serial or partition_epoch < slot.partition_epoch:
        return False
    for i in range(members.count):
        add_member(slot.max_in_sync, &slot.max_in_sync_count, members.ids[i])
    fault(IN_SYNC_MAXIMAL_STORED)
    change_members(slot.in_sync, &slot.in_sync_count, members)
    store_relaxed_i32(&slot.partition_epoch, partition_epoch)
    slot.recovering = recovering
    fault(IN_SYNC_COMMIT_STORED)
    keep_members(slot.max_in_sync, &slot.max_in_sync_count, members)
    store_release_32(&slot.in_sync_state, IN_SYNC_COMMITTED)
    fault(IN_SYNC_STATE_STORED)
    return True


def commit_in_sync(uint32_t index, incarnation, int leader_epoch, serial, in_sync, int partition_epoch, *, bint recovering=False) -> bool:
    """Store the in-sync set that the controller has committed, move the high watermark, and wake the processes that wait for it.

    Returns False, without an effect, if the response is outdated: another leader epoch, another proposal, or an older partition
    epoch. An equal partition epoch means that the controller had committed the set before, and the response was lost.

    :raises ValueError: the set is empty or too large.
    """
    cdef Slot* slot = checked_slot(index)
    cdef Members members
    cdef uint32_t expected = incarnation
    cdef uint64_t expected_serial = serial
    cdef bint taken, changed = False
    take_members(&members, in_sync)
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            changed = check_leader(slot, expected, leader_epoch) == 0 \
                and commit_change(slot, expected_serial, &members, partition_epoch, recovering)
            if changed:
                move_high_watermark(slot, monotonic_ms())
            unlock(index, slot)
            if changed:
                wake_after(index, slot, False, True)
    if not taken:
        raise busy(index)
    return changed


def revert_in_sync(uint32_t index, incarnation, int leader_epoch, serial) -> bool:
    """Withdraw a proposal that the controller has refused, and that it will not commit later. Returns False, without an effect,
    if the response is outdated."""
    cdef Slot* slot = checked_slot(index)
    cdef Members members
    cdef uint32_t expected = incarnation
    cdef uint64_t expected_serial = serial
    cdef bint taken, changed = False, moved = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            changed = check_leader(slot, expected, leader_epoch) == 0 and slot.in_sync_state != IN_SYNC_COMMITTED \
                and slot.in_sync_serial == expected_serial
            if changed:
                copy_members(&members, slot.in_sync, slot.in_sync_count)
                keep_members(slot.max_in_sync, &slot.max_in_sync_count, &members)
                store_release_32(&slot.in_sync_state, IN_SYNC_COMMITTED)
                fault(IN_SYNC_STATE_STORED)
                moved = move_high_watermark(slot, monotonic_ms())
            unlock(index, slot)
            if moved:
                wake_after(index, slot, False, True)
    if not taken:
        raise busy(index)
    return changed


def pending() -> list[tuple[int, int]]:
    """[(slot, serial)] of the proposals that are under way, also those of an earlier coordinator."""
    cdef uint64_t i
    cdef Slot* slot
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if leads(slot) and slot.in_sync_state != IN_SYNC_COMMITTED:
            found.append((i, slot.in_sync_serial))
    return found


def proposal_of(uint32_t index) -> Proposal | None:
    """The proposal that is under way, as it was proposed; None if there is none."""
    cdef Slot* slot = checked_slot(index)
    cdef Found found
    cdef bint taken, some = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            some = leads(slot) and slot.in_sync_state != IN_SYNC_COMMITTED
            if some:
                copy_members(&found.members, slot.proposed, slot.proposed_count)
                copy_facts(slot, &found)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return proposal(index, &found, True) if some else None


def in_sync_sets(uint32_t index) -> tuple[list[int], list[int]]:
    """(committed, maximal) in-sync set of a slot, copied at one moment: lists of broker ids."""
    cdef Slot* slot = checked_slot(index)
    cdef Members committed, maximal
    cdef bint taken
    cdef int i
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            copy_members(&committed, slot.in_sync, slot.in_sync_count)
            copy_members(&maximal, slot.max_in_sync, slot.max_in_sync_count)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return [committed.ids[i] for i in range(committed.count)], [maximal.ids[i] for i in range(maximal.count)]
