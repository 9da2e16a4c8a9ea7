"""The throttle of a follower (KIP-73): partitions that are listed as throttled and not in sync are left out of requests while the rate of
this broker is over follower.replication.throttled.rate.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.replication.fetched_partitions cimport FetchedPartition, FetchedPartitions
from odradek._ext.shm.replication_quota cimport QUOTA_FOLLOWER, quota_limited


cdef inline bint is_member(const FetchedPartition* fetched) noexcept nogil:
    """Return whether the replica is in sync: it has all records that are committed, or the leader has not responded yet and its in-sync
    replicas contained this one when its leader epoch began."""
    if fetched.leader_high_watermark < 0:
        return fetched.member
    return fetched.leader_high_watermark <= fetched.fetch_offset


cdef inline bint is_throttled(const FetchedPartition* fetched) noexcept nogil:
    return quota_limited(QUOTA_FOLLOWER) and fetched.throttled and not is_member(fetched)

# Before a request: hold the partitions that may not be fetched now, and release the others. Returns after how many ms a partition that
# is held may be fetched again; 0 if none is held. `max_bytes` is the largest number of bytes that a request may name for a throttled
# partition; it is reduced to what there is room for.
cdef int64_t hold_throttled(FetchedPartitions partitions, int32_t* max_bytes, int64_t now_ms) noexcept nogil
