"""The view of a partition: what the controller published about its leader and replicas, from which clients are answered [R 10].

One writer, the coordinator's replicas thread, fills the copy that is not in use and then switches to it, so readers of any process
need no lock. With an embedded metadata store there are no views: the role in the slot is the truth.
"""

from typing import NamedTuple

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from odradek._ext.shm.atomics cimport (
    copy_ids,
    copy_words,
    cpu_pause,
    fence_acquire,
    fence_release,
    fill_words,
    load_acquire_64,
    load_relaxed_64,
    store_release_64,
)
from odradek._ext.shm.faults cimport VIEW_FILLED, VIEW_PUBLISHED, fault
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC, PartitionView
from odradek._ext.shm.slot cimport Slot, SlotViews, slot_at, views_at


class View(NamedTuple):
    """What the controller published about a partition: ids of brokers, and epochs. `leader_id`: -1 without a leader; `offline`:
    the replicas that are not alive, or whose log directory has failed."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


cdef Slot* slot_of(uint32_t index) except NULL:
    if index >= region().header.slots_used:
        raise IndexError(f"the table has no slot {index}")
    return slot_at(index)


cdef void read_view(Slot* slot, PartitionView* out) noexcept nogil:
    cdef SlotViews* of_slot
    cdef uint64_t sequence
    if not region().header.clustered:
        out.offline = 0
        out.leader_id = slot.leader_id
        out.leader_epoch = slot.leader_epoch
        out.partition_epoch = slot.partition_epoch
        out.replica_count = slot.replica_count
        out.in_sync_count = slot.in_sync_count
        copy_ids(out.replicas, slot.replicas, MAX_IN_SYNC)
        copy_ids(out.in_sync, slot.in_sync, MAX_IN_SYNC)
        return
    of_slot = views_at(slot)
    while True:
        sequence = load_acquire_64(&of_slot.view_sequence)
        copy_words(out, &of_slot.views[sequence & 1], sizeof(PartitionView))
        fence_acquire()
        if load_relaxed_64(&of_slot.view_sequence) == sequence:
            return
        cpu_pause()


cdef void write_view(Slot* slot, const PartitionView* view) noexcept nogil:
    cdef SlotViews* of_slot = views_at(slot)
    cdef uint64_t sequence = load_relaxed_64(&of_slot.view_sequence)
    fence_release()     # a reader that sees the copy being filled also sees that the other one was published before
    fill_words(&of_slot.views[(sequence + 1) & 1], view, sizeof(PartitionView))
    fault(VIEW_FILLED)
    store_release_64(&of_slot.view_sequence, sequence + 1)
    fault(VIEW_PUBLISHED)


def publish_view(uint32_t index, *, int leader_id, int leader_epoch, int partition_epoch, replicas, in_sync, offline=()) -> None:
    """Publish what the controller says about a partition. Only the one writer of the table calls this, in a cluster.

    :raises ValueError: too many replicas; then nothing is changed.
    """
    cdef Slot* slot = slot_of(index)
    cdef PartitionView view
    cdef int i
    if len(replicas) > MAX_IN_SYNC or len(in_sync) > MAX_IN_SYNC:
        raise ValueError(f"a partition may have at most {MAX_IN_SYNC} replicas, not {len(replicas)} with {len(in_sync)} in sync")
    memset(&view, 0, sizeof(view))
    view.leader_id = leader_id
    view.leader_epoch = leader_epoch
    view.partition_epoch = partition_epoch
    view.replica_count = <int32_t>len(replicas)
    view.in_sync_count = <int32_t>len(in_sync)
    for i, replica in enumerate(replicas):
        view.replicas[i] = replica
        if replica in offline:
            view.offline |= <uint32_t>1 << i
    for i, replica in enumerate(in_sync):
        view.in_sync[i] = replica
    write_view(slot, &view)


def view_of(uint32_t index) -> View:
    """The View of a partition. Raises IndexError if the table has no such slot."""
    cdef PartitionView view
    read_view(slot_of(index), &view)
    return view_tuple(&view)


cdef object view_tuple(const PartitionView* view):
    replicas = [view.replicas[i] for i in range(view.replica_count)]
    return View(
        view.leader_id, view.leader_epoch, view.partition_epoch, replicas,
        [view.in_sync[i] for i in range(view.in_sync_count)],
        [replica for i, replica in enumerate(replicas) if view.offline >> i & 1],
    )
