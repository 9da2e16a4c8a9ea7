from libc.stdint cimport int64_t


# Why a new segment begins before an append.
cdef enum:
    ROLL_NO = 0
    ROLL_SIZE = 1               # segment.bytes
    ROLL_TIME = 2               # segment.ms
    ROLL_INDEX_FULL = 3         # segment.index.bytes
    ROLL_OFFSET_OVERFLOW = 4    # a relative offset has 31 bits


cdef struct RollRules:
    int64_t segment_bytes
    int64_t segment_ms
    int64_t jitter_ms           # drawn once a segment from [0, segment.jitter.ms]
    int64_t index_bytes


cdef struct ActiveSegment:
    int64_t base_offset
    int64_t size
    int64_t index_entries
    int64_t timeindex_entries
    int64_t first_timestamp     # the first batch's largest timestamp, -1 without
    int64_t created_ms          # when the segment was created or, after a start, loaded


# Whether an append of `append_bytes`, ending at last_offset, with max_timestamp the largest in it, needs a new segment.
cdef int roll_reason(const RollRules* rules, const ActiveSegment* active, int64_t append_bytes, int64_t last_offset,
                     int64_t max_timestamp, int64_t now_ms) noexcept nogil
