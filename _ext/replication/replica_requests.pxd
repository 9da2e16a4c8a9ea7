"""Builds the Fetch requests of a replica fetcher, versions 12 to 17."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.replication.fetched_partitions cimport FetchedPartitions


cdef enum:
    FETCH_OLDEST = 12             # the first with divergence detection; topics by name
    FETCH_BY_ID = 13
    FETCH_WITH_STATE = 15         # replica id and broker epoch in a tagged field
    FETCH_OF_REPLICA = 17         # the newest that this fetcher sends


cdef struct FetchSettings:
    int32_t replica_id
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes             # of a response
    int32_t partition_max_bytes
    int32_t throttled_max_bytes   # of a partition that the follower's throttle applies to


cdef struct FetchSession:         # KIP-227
    int32_t session_id            # 0: none
    int32_t epoch                 # of the next request; 0: it contains all partitions

# Read the positions that the next request is to contain. A partition whose role has changed becomes inactive.
cdef void refresh_unsent(FetchedPartitions partitions) noexcept nogil

# Call `refresh_unsent` first.
# Write a request, with its length field, for the partitions whose position the leader does not have, or for all of them if
# the session's epoch is 0, and the partitions that its session is to forget. Marks them as sent. `out.error` is set without memory.
cdef void build_fetch(WriteBuffer* out, FetchedPartitions partitions, const FetchSettings* settings, const FetchSession* session,
                      int16_t version, int32_t correlation_id, const uint8_t* client_id, int16_t client_id_bytes,
                      int64_t broker_epoch) noexcept nogil
