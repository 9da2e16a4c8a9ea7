"""Reads the leader's response to a replica fetcher: checks it and appends its records to the logs of the followers."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.replication.fetched_partitions cimport FetchedPartitions


cdef struct FetchTotals:          # of one fetcher since its start
    int64_t responses
    int64_t records_bytes         # appended
    int64_t unknown               # parts of responses for partitions that were not requested

cdef struct FetchResponse:
    int32_t correlation_id
    int16_t error                 # of the whole response
    int32_t session_id
    bint busy                     # nothing was appended because a log was busy

# Returns 0, or -1 if the response is malformed; then the part before the malformed one was appended. Decisions are in the events.
cdef int take_response(FetchedPartitions partitions, const uint8_t* data, int64_t size, int16_t version, int32_t correlation_id,
                       FetchResponse* out, FetchTotals* totals) noexcept nogil
