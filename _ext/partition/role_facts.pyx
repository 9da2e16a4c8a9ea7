"""The role of a partition in this broker as its slot describes it, for `odradek partition explain`, metrics and tests.

Any process, any thread that may wait for the slot's lock. The facts are of one moment.
"""

from collections import namedtuple

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport MAX_FOLLOWERS, Commit, Follower, Slot, followers_at, read_commit


RoleFacts = namedtuple(
    "RoleFacts",
    "role incarnation leader_id leader_epoch partition_epoch controller_epoch leader_epoch_start recovering "
    "log_start_offset log_end_offset high_watermark min_in_sync replicas adding removing in_sync max_in_sync in_sync_state "
    "in_sync_serial in_sync_ms fetch_error followers",
)
RoleFacts.__doc__ = """The role of a partition.

`leader_epoch_start`: log end offset when the leader epoch began, -1 if this broker is not the leader; `adding`, `removing`: ids of
replicas that a reassignment adds or removes; `in_sync_state`: an InSyncState; `in_sync_ms`: milliseconds since the proposal under way
was made, or since the last change; `fetch_error`: why a follower is not fetched, 0 for none; `followers`: a list of FollowerState."""

FollowerState = namedtuple(
    "FollowerState", "broker_id broker_epoch log_end_offset log_start_offset fetched_ms_ago caught_up_ms_ago"
)
FollowerState.__doc__ = """A follower as its leader knows it. The times are -1 if it has not fetched in this leader epoch."""


def describe_role(uint32_t index) -> RoleFacts:
    """Return the RoleFacts of a slot. Raises IndexError if the table has no such slot, SlotBusy if its lock is not available."""
    cdef Slot* slot = checked_slot(index)
    cdef Slot copy
    cdef Follower[MAX_FOLLOWERS] followers
    cdef Commit commit
    cdef int64_t now
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            memcpy(&copy, slot, sizeof(Slot))
            if copy.has_followers:
                memcpy(followers, followers_at(slot), sizeof(followers))
            read_commit(slot, &commit)
            now = monotonic_ms()
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return facts_of(&copy, followers, &commit, now)


cdef object facts_of(Slot* slot, Follower* entries, Commit* commit, int64_t now):
    replicas = [slot.replicas[i] for i in range(slot.replica_count)]
    followers = [
        FollowerState(
            entries[i].broker_id, entries[i].broker_epoch, entries[i].log_end_offset,
            entries[i].log_start_offset, passed(entries[i].last_fetch_ms, now), passed(entries[i].caught_up_ms, now),
        )
        for i in range(MAX_FOLLOWERS if slot.has_followers else 0)
        if entries[i].broker_id >= 0
    ]
    return RoleFacts(
        slot.role, slot.incarnation, slot.leader_id, slot.leader_epoch, slot.partition_epoch, slot.controller_epoch,
        slot.leader_epoch_start, slot.recovering != 0, slot.log_start_offset, commit.log_end_offset, commit.high_watermark,
        slot.settings.min_in_sync_replicas, replicas,
        [replica for i, replica in enumerate(replicas) if slot.adding >> i & 1],
        [replica for i, replica in enumerate(replicas) if slot.removing >> i & 1],
        [slot.in_sync[i] for i in range(slot.in_sync_count)],
        [slot.max_in_sync[i] for i in range(slot.max_in_sync_count)],
        slot.in_sync_state, slot.in_sync_serial, passed(slot.in_sync_since_ms, now), slot.fetch_error, followers,
    )


cdef int64_t passed(int64_t then, int64_t now) noexcept:
    """Milliseconds since a monotonic time; -1 for the time 0, which means never."""
    return max(now - then, <int64_t>0) if then else -1
