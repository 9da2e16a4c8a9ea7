"""When a partition's active segment ends and a new one begins: Kafka's LogSegment.shouldRoll as a pure function.

Asked under the slot's lock before each append, by whoever appends.
"""

from libc.stdint cimport int64_t


cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    LARGEST_RELATIVE_OFFSET = 0x7FFFFFFF

NAMES = ("no", "size", "time", "index_full", "offset_overflow")


cdef int roll_reason(const RollRules* rules, const ActiveSegment* active, int64_t append_bytes, int64_t last_offset,
                     int64_t max_timestamp, int64_t now_ms) noexcept nogil:
    cdef int64_t waited
    if active.size > rules.segment_bytes - append_bytes:
        return ROLL_SIZE
    if active.size > 0:
        # By the batches' own time where they have one: a log that is copied rolls as the original did.
        waited = max_timestamp - active.first_timestamp if active.first_timestamp >= 0 else now_ms - active.created_ms
        if waited > rules.segment_ms - rules.jitter_ms:
            return ROLL_TIME
    # The time index keeps one entry free for the one that ends the segment.
    if active.index_entries >= rules.index_bytes // OFFSET_ENTRY_BYTES \
            or active.timeindex_entries >= rules.index_bytes // TIME_ENTRY_BYTES - 1:
        return ROLL_INDEX_FULL
    if not 0 <= last_offset - active.base_offset <= LARGEST_RELATIVE_OFFSET:
        return ROLL_OFFSET_OVERFLOW
    return ROLL_NO


def reason(dict rules, dict active, int64_t append_bytes, int64_t last_offset, int64_t max_timestamp, int64_t now_ms):
    """`roll_reason` with RollRules and ActiveSegment as dicts of their fields; one of NAMES."""
    cdef RollRules native_rules = rules
    cdef ActiveSegment native_active = active
    return NAMES[roll_reason(&native_rules, &native_active, append_bytes, last_offset, max_timestamp, now_ms)]
