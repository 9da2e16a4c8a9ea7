"""The partitions that this broker follows, read from the slots of the shared table.

Used by the replicator's main thread only. No lock is taken. The ring of changes names the slots that may have changed; if it was
overwritten, and at times, all slots are read.
"""

from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from odradek._ext.partition.follower_append cimport FollowerPosition, follower_position
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport checked_slot
from odradek._ext.shm.atomics cimport (
    fence_acquire,
    load_acquire_32,
    load_acquire_64,
    load_acquire_i32,
    load_relaxed_64,
    load_relaxed_i32,
    store_relaxed_i64,
)
from odradek._ext.shm.layout cimport CHANGE_RING, Header, region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport ROLE_FOLLOWER, SLOT_ONLINE, Slot, slot_at, state_now


cdef enum:
    PATIENCE_MS = 1000


class Followed(NamedTuple):
    """A partition that this broker follows. ``leader_id``: -1 if it has no leader now."""

    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    leader_id: int
    leader_epoch: int


class LogPosition(NamedTuple):
    """The state of a follower's log at one moment. ``last_epoch``: the leader epoch of its last batch; -1 if it has none."""

    log_start: int
    log_end: int
    high_watermark: int
    last_epoch: int


cdef struct Seen:                 # of a slot, at the last look
    uint32_t incarnation
    int32_t leader_id
    int32_t leader_epoch
    uint8_t followed


cdef class FollowedSlots:
    cdef Seen* seen
    cdef uint32_t room
    cdef readonly uint64_t version    # metadata version of the last look

    def __dealloc__(self):
        free(self.seen)

    def look(self, bint at_all=False) -> list[tuple[int, Followed | None]]:
        """[(slot, Followed)] of the slots that changed since the last call, with None for a slot that is not followed any more.

        :param at_all: read all slots, also those that are not in the ring: a role may end without an announcement.
        """
        cdef Header* header = region().header
        cdef uint64_t newest = load_acquire_64(&header.metadata_version), at, changed
        cdef uint32_t slot
        changes = []
        self.make_room()
        if not at_all and self.version != 0 and newest - self.version < CHANGE_RING // 2:
            at = self.version + 1
            while at <= newest:
                changed = load_relaxed_64(&header.changes[at % CHANGE_RING])
                if changed:
                    self.look_at(<uint32_t>(changed - 1), changes)
                at += 1
            fence_acquire()
            if load_acquire_64(&header.metadata_version) - self.version < CHANGE_RING // 2:
                self.version = newest
                return changes
            newest = load_acquire_64(&header.metadata_version)
        for slot in range(<uint32_t>header.slots_used):
            self.look_at(slot, changes)
        self.version = newest
        return changes

    cdef int make_room(self) except -1:
        cdef uint32_t room = <uint32_t>region().header.max_slots
        cdef void* memory
        if self.room == room:
            return 0
        memory = realloc(self.seen, room * sizeof(Seen))
        if memory == NULL:
            raise MemoryError(f"no memory for the roles of {room} partitions")
        self.seen = <Seen*>memory
        memset(self.seen, 0, room * sizeof(Seen))
        self.room = room
        return 0

    cdef int look_at(self, uint32_t index, list changes) except -1:
        """Append what has changed in a slot. A slot whose role is being changed counts as not followed: the change is announced."""
        cdef Slot* slot = slot_at(index)
        cdef Seen* seen = &self.seen[index]
        cdef Seen now
        read_role(slot, &now)
        if not now.followed:
            if seen.followed:
                seen.followed = False
                changes.append((index, None))
            return 0
        if seen.followed and seen.incarnation == now.incarnation and seen.leader_id == now.leader_id \
                and seen.leader_epoch == now.leader_epoch:
            return 0
        name = (<char*>slot.topic)[:slot.topic_bytes]
        found = Followed(name.decode(errors="replace"), (<char*>slot.topic_id)[:16], slot.partition, now.incarnation, now.leader_id,
                         now.leader_epoch)
        fence_acquire()
        if slot.incarnation != now.incarnation:
            return 0                    # announced again
        seen[0] = now
        changes.append((index, found))
        return 0


cdef void read_role(Slot* slot, Seen* out) noexcept nogil:
    """Without the lock: a role change stores ROLE_NONE first and the role last [R 10]. The epoch is read before and after its leader,
    because the role may be the same before a change and after it."""
    cdef uint32_t role = load_acquire_32(&slot.role)
    out.incarnation = slot.incarnation
    out.leader_epoch = load_acquire_i32(&slot.leader_epoch)
    out.leader_id = load_relaxed_i32(&slot.leader_id)
    out.followed = role == ROLE_FOLLOWER and state_now(slot) == SLOT_ONLINE
    fence_acquire()
    if load_acquire_32(&slot.role) != role or slot.leader_epoch != out.leader_epoch or slot.incarnation != out.incarnation:
        out.followed = False


def position_of(uint32_t index, uint32_t incarnation, int leader_epoch) -> LogPosition | None:
    """The LogPosition of a followed partition; None if the slot has another role, epoch or partition, or its log is not open."""
    cdef FollowerPosition position
    if not follower_position(checked_slot(index), &position) or position.role != ROLE_FOLLOWER or position.state != SLOT_ONLINE \
            or position.incarnation != incarnation or position.leader_epoch != leader_epoch:
        return None
    return LogPosition(position.log_start_offset, position.log_end_offset, position.high_watermark, position.last_epoch)


def note_fetch_error(uint32_t index, uint32_t incarnation, int leader_epoch, int error) -> None:
    """Note in the slot why the partition is not fetched; 0: it is fetched. Does nothing if the slot has another role or epoch, or
    its lock is not available: the note is only information."""
    cdef Slot* slot = checked_slot(index)
    cdef int32_t epoch = leader_epoch
    cdef int64_t code = error
    with nogil:
        if slot.fetch_error != code and wait_slot(index, slot, PATIENCE_MS) == 0:
            if slot.incarnation == incarnation and slot.role == ROLE_FOLLOWER and slot.leader_epoch == epoch:
                store_relaxed_i64(&slot.fetch_error, code)
            unlock(index, slot)
