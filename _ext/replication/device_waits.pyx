"""The wait of a follower for its device; see device_waits.pxd. Called by a fetcher's thread without the GIL."""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.replication.fetched_partitions cimport (
    DEVICE_NEW,
    DEVICE_READY,
    DEVICE_SLOW,
    FetchedPartition,
    FetchedPartitions,
)
from odradek._ext.shm.atomics cimport fence, fetch_or_64
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.slot cimport slot_at


cdef void look_at_device(FetchedPartitions partitions, DeviceLook* out) noexcept nogil:
    cdef uint32_t place
    cdef FetchedPartition* fetched
    cdef bint any_waits = False
    out.waiting = 0
    out.fresh = False
    for place in range(partitions.partitions_used):
        fetched = &partitions.partitions[place]
        if not fetched.used or not fetched.active or fetched.device == DEVICE_READY:
            continue
        fetch_or_64(&slot_at(fetched.slot).waiters_flushed, <uint64_t>1 << region().self)
        fence()
        if not partitions.refresh(fetched) or fetched.device == DEVICE_READY:
            continue
        any_waits = True
        if not fetched.held:
            out.waiting += 1
            out.fresh |= fetched.device == DEVICE_NEW
    partitions.awaits_device = any_waits


cdef void go_on_without(FetchedPartitions partitions) noexcept nogil:
    cdef uint32_t place
    cdef FetchedPartition* fetched
    for place in range(partitions.partitions_used):
        fetched = &partitions.partitions[place]
        if fetched.used and fetched.device == DEVICE_NEW:
            fetched.device = DEVICE_SLOW
