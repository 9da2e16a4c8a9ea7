"""The state of all partitions, read from the slots in one pass and without a lock, for metrics and lag.

The reporter runs this. A slot may change hands meanwhile, so the incarnation is compared before and after, and the commit block
is read as a consistent copy [R 1, R 8]. Words outside the commit block are read one by one.
"""

from typing import NamedTuple

from cpython.array cimport array, resize_smart
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from odradek._ext.shm.atomics cimport fence_acquire, load_acquire_32, load_acquire_64, load_acquire_i64
from odradek._ext.shm.brokers cimport broker_alive
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.partition_view cimport PartitionView
from odradek._ext.shm.slot cimport (
    IN_SYNC_COMMITTED,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    SLOT_DELETED,
    SLOT_FREE,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    TAIL_LOST,
    TAIL_LOST_LED,
    Commit,
    Slot,
    read_commit,
    slot_at,
    state_now,
)
from odradek._ext.shm.topics cimport UNPUBLISHED_LEADER, Topic
from odradek._ext.shm.views cimport read_view


cdef enum:                            # index of a count
    LED
    FOLLOWED
    UNDER_REPLICATED
    UNDER_MIN
    AT_MIN
    OFFLINE
    NO_LEADER
    NOT_PREFERRED
    REASSIGNING
    UNFETCHED
    LOST_TAIL
    LOST_TAIL_LED_NOW
    UNDER_REPLICATED_MS
    PENDING_MS
    COUNTS


class Partition(NamedTuple):
    """The state of one partition, read from its slot.

    `state`: a SlotState; `leads`: this broker is the leader; `leader_id`: -1 without a leader; `preferred_id`: the first replica;
    `replicas`, `in_sync`: their numbers; `segment_base`, `segment_bytes`: of the active segment. In a cluster, leader and replicas of a
    partition that another broker leads are what the controller published. `follows`: this broker follows another one; `lag`: of a
    followed partition, the committed records of its leader that the log lacked at the leader's last response; -1 if not known."""

    partition: int
    slot: int
    incarnation: int
    generation: int
    state: int
    leads: bool
    log_dir: int
    leader_id: int
    preferred_id: int
    replicas: int
    in_sync: int
    min_in_sync: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    segment_base: int
    segment_bytes: int
    follows: bool
    lag: int


class ReplicaCounts(NamedTuple):
    """Numbers of partitions, and two times.

    `led`, `followed`, `offline`: by their state on this broker; `under_replicated`, `under_min_in_sync`, `at_min_in_sync`,
    `reassigning`: of those that this broker leads; `unfetched`: of the followed ones, those that are not fetched because of an error;
    `lost_tail`: those whose log lost records at its end when it was loaded and was neither in sync nor led since; `lost_tail_led`: those
    that this broker leads although their log had lost records at its end. `no_leader`, `not_preferred`: of all partitions of the cluster,
    those without a live leader, and those that another broker than the
    preferred one leads. `under_replicated_ms`: the longest time for which the in-sync replicas of an under-replicated partition have
    not changed; `pending_ms`: the age of the oldest change of in-sync replicas that the controller has not decided; 0 if there is none."""

    led: int
    followed: int
    under_replicated: int
    under_min_in_sync: int
    at_min_in_sync: int
    offline: int
    no_leader: int
    not_preferred: int
    reassigning: int
    unfetched: int
    lost_tail: int
    lost_tail_led: int
    under_replicated_ms: int
    pending_ms: int


def partitions_of(Topic topic) -> list[Partition]:
    """A `Partition` for each partition of a topic, except those whose slot now holds another partition, and those of other brokers
    that the controller has not published."""
    cdef list partitions = []
    cdef Slot* slot
    cdef Commit commit
    cdef PartitionView view
    cdef uint32_t index, incarnation, state
    cdef uint64_t generation
    cdef int i
    for i in range(topic.count):
        if topic.slots[i] == 0:
            continue
        index = topic.slots[i] - 1
        incarnation = topic.incarnations[i]
        slot = slot_at(index)
        if load_acquire_32(&slot.incarnation) != incarnation:
            continue
        generation = load_acquire_64(&slot.generation)
        read_commit(slot, &commit)
        state = state_now(slot)
        read_view(slot, &view)
        if slot.role == ROLE_LEADER:
            view.leader_id = slot.leader_id
            view.replica_count = slot.replica_count
            view.in_sync_count = slot.in_sync_count
            view.replicas[0] = slot.replicas[0]
        elif state == SLOT_REMOTE and view.leader_id == UNPUBLISHED_LEADER:
            continue
        row = Partition(
            i, index, incarnation, generation, state, slot.role == ROLE_LEADER, slot.log_dir, max(view.leader_id, -1),
            view.replicas[0] if view.replica_count else -1, view.replica_count, view.in_sync_count,
            slot.settings.min_in_sync_replicas, slot.log_start_offset, commit.log_end_offset, commit.high_watermark,
            load_acquire_i64(&slot.last_stable_offset), commit.segment_base, commit.size,
            slot.role == ROLE_FOLLOWER, slot.fetch_lag if slot.role == ROLE_FOLLOWER else -1,
        )
        fence_acquire()
        if slot.incarnation != incarnation or state == SLOT_FREE or state == SLOT_DELETED:
            continue
        partitions.append(row)
    return partitions


cdef inline void count_led(Slot* slot, int64_t now, int64_t* counts) noexcept nogil:
    cdef int32_t least = min(slot.settings.min_in_sync_replicas, slot.replica_count)
    cdef int64_t unchanged = max(now - slot.in_sync_since_ms, <int64_t>0)
    counts[LED] += 1
    counts[UNDER_MIN] += slot.in_sync_count < least
    counts[AT_MIN] += slot.in_sync_count == least
    counts[REASSIGNING] += slot.adding != 0 or slot.removing != 0
    if slot.in_sync_count < slot.replica_count:
        counts[UNDER_REPLICATED] += 1
        counts[UNDER_REPLICATED_MS] = max(counts[UNDER_REPLICATED_MS], unchanged)
    if slot.in_sync_state != IN_SYNC_COMMITTED:
        counts[PENDING_MS] = max(counts[PENDING_MS], unchanged)


cdef void count_slot(Slot* slot, int64_t now, int64_t* counts) noexcept nogil:
    cdef PartitionView view
    cdef uint32_t state = state_now(slot)
    if state == SLOT_FREE or state == SLOT_DELETED:
        return
    counts[LOST_TAIL] += slot.lost_tail == TAIL_LOST
    counts[LOST_TAIL_LED_NOW] += slot.lost_tail == TAIL_LOST_LED and slot.role == ROLE_LEADER
    if state == SLOT_OFFLINE:
        counts[OFFLINE] += 1
    elif state == SLOT_ONLINE and slot.role == ROLE_LEADER:
        count_led(slot, now, counts)
    elif state != SLOT_REMOTE and slot.role == ROLE_FOLLOWER:
        counts[FOLLOWED] += 1
        counts[UNFETCHED] += slot.fetch_error != 0
    read_view(slot, &view)
    if view.leader_id == UNPUBLISHED_LEADER:
        return
    counts[NO_LEADER] += view.leader_id < 0 or not broker_alive(view.leader_id)
    counts[NOT_PREFERRED] += view.replica_count > 0 and view.leader_id != view.replicas[0]


def replica_counts() -> ReplicaCounts:
    """The ReplicaCounts of this broker in a cluster, in one pass over all slots and without a lock."""
    cdef int64_t[COUNTS] counts
    cdef int64_t now = monotonic_ms()
    cdef uint64_t i
    memset(counts, 0, sizeof(counts))
    with nogil:
        for i in range(min(region().header.slots_used, region().header.max_slots)):
            count_slot(slot_at(<uint32_t>i), now, counts)
    return ReplicaCounts(
        led=counts[LED],
        followed=counts[FOLLOWED],
        under_replicated=counts[UNDER_REPLICATED],
        under_min_in_sync=counts[UNDER_MIN],
        at_min_in_sync=counts[AT_MIN],
        offline=counts[OFFLINE],
        no_leader=counts[NO_LEADER],
        not_preferred=counts[NOT_PREFERRED],
        reassigning=counts[REASSIGNING],
        unfetched=counts[UNFETCHED],
        lost_tail=counts[LOST_TAIL],
        lost_tail_led=counts[LOST_TAIL_LED_NOW],
        under_replicated_ms=counts[UNDER_REPLICATED_MS],
        pending_ms=counts[PENDING_MS],
    )


def settings_of(Topic topic) -> tuple[int, int, int] | None:
    """(retention in ms, retention in bytes, largest batch in bytes) of a topic, from the first of its partitions that has a log on
    this broker; None if none has: the slots of others contain no settings."""
    cdef Slot* slot
    cdef int i
    for i in range(topic.count):
        if topic.slots[i]:
            slot = slot_at(topic.slots[i] - 1)
            if load_acquire_32(&slot.state) != SLOT_REMOTE:
                return slot.settings.retention_ms, slot.settings.retention_bytes, slot.settings.max_message_bytes
    return None


def sample_ends(array incarnations, array ends) -> list[int]:
    """Update two arrays: the incarnation ('Q') and the high watermark ('q') of every slot; -1 for a slot that is not in
    service. Returns the indexes that changed, as a list.

    The arrays grow with the table; a slot that is new in them counts as changed. Raises TypeError for arrays of other types.
    """
    if incarnations.typecode != "Q" or ends.typecode != "q":
        raise TypeError(f"expected arrays of type 'Q' and 'q', not {incarnations.typecode!r} and {ends.typecode!r}")
    cdef Py_ssize_t used = <Py_ssize_t>region().header.slots_used, known = len(ends), i
    cdef Slot* slot
    cdef Commit commit
    cdef uint64_t incarnation
    cdef int64_t end
    cdef list changed = []
    if used > known:
        resize_smart(incarnations, used)
        resize_smart(ends, used)
        for i in range(known, used):
            incarnations.data.as_ulonglongs[i] = 0
            ends.data.as_longlongs[i] = -1
    for i in range(used):
        slot = slot_at(<uint32_t>i)
        incarnation = load_acquire_32(&slot.incarnation)
        end = -1
        if state_now(slot) == SLOT_ONLINE:
            read_commit(slot, &commit)
            end = commit.high_watermark
        fence_acquire()
        if slot.incarnation != incarnation:
            continue                        # it is changing hands: next time
        if incarnations.data.as_ulonglongs[i] != incarnation or ends.data.as_longlongs[i] != end:
            incarnations.data.as_ulonglongs[i] = incarnation
            ends.data.as_longlongs[i] = end
            changed.append(i)
    return changed


def unstable() -> list[tuple[int, int, int]]:
    """The partitions that this broker leads and in which a transaction is open: (slot, incarnation, first offset of the oldest one)."""
    cdef uint32_t i, incarnation
    cdef int64_t first
    cdef Slot* slot
    cdef list found = []
    for i in range(<uint32_t>region().header.slots_used):
        slot = slot_at(i)
        incarnation = load_acquire_32(&slot.incarnation)
        if state_now(slot) != SLOT_ONLINE or slot.role != ROLE_LEADER:
            continue
        first = load_acquire_i64(&slot.first_unstable_offset)
        fence_acquire()
        if first >= 0 and slot.incarnation == incarnation:
            found.append((i, incarnation, first))
    return found


def lock_counts() -> tuple[int, int]:
    """(how often a slot's lock was busy, recoveries of a lock whose holder died), summed over all slots."""
    cdef uint64_t i, busy = 0, recoveries = 0
    cdef Slot* slot
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        busy += slot.lock_busy
        recoveries += slot.lock_recoveries
    return busy, recoveries
