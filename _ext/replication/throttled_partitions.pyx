"""The throttle of a follower; see throttled_partitions.pxd. Called by a fetcher's thread without the GIL."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from odradek._ext.replication.fetched_partitions cimport FetchedPartition, FetchedPartitions
from odradek._ext.shm.replication_quota cimport QUOTA_FOLLOWER, quota_limited, quota_room, quota_wait_ms


cdef enum:
    LEAST_BYTES = 1 << 14             # that are requested of a throttled partition


cdef int64_t hold_throttled(FetchedPartitions partitions, int32_t* max_bytes, int64_t now_ms) noexcept nogil:
    cdef int64_t room
    if quota_limited(QUOTA_FOLLOWER):
        room = quota_room(QUOTA_FOLLOWER, now_ms)
        hold_all(partitions, room == 0)
        if partitions.throttled_count:
            max_bytes[0] = <int32_t>min(<int64_t>max_bytes[0], max(room // partitions.throttled_count, <int64_t>LEAST_BYTES))
    elif partitions.held_count:
        hold_all(partitions, False)
    return quota_wait_ms(QUOTA_FOLLOWER, now_ms) if partitions.held_count else 0


cdef void hold_all(FetchedPartitions partitions, bint hold) noexcept nogil:
    """Hold the throttled partitions, or release them."""
    cdef uint32_t place
    cdef FetchedPartition* fetched
    cdef bint throttled
    partitions.held_count = partitions.throttled_count = 0
    for place in range(partitions.partitions_used):
        fetched = &partitions.partitions[place]
        if not fetched.used or not fetched.active:
            continue
        throttled = is_throttled(fetched)
        if fetched.held != (hold and throttled):
            fetched.held = hold and throttled
            fetched.sent = False
        partitions.held_count += fetched.held
        partitions.throttled_count += throttled and not fetched.held
