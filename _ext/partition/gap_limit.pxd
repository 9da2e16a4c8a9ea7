"""The gap limit of a partition's log: the offset below which offsets may be missing [R 4].

Only compaction, which removes records, and a follower, which copies its leader's gaps, make gaps. A gap before a batch that
begins above the limit was therefore made by a power failure that kept a later part of the log and lost an earlier one. Recovery
and `odradek log verify` decide by this rule. gap_limit_file.pxd describes the file that stores the limit.
"""

from libc.stdint cimport INT64_MAX, int64_t

from odradek._ext.shm.slot cimport Slot


# Write "<topic>-<partition>/odradek-gaps-checkpoint", relative to the log directory; `out` has 512 bytes.
cdef void gap_limit_path(Slot* slot, char* out) noexcept nogil

# Replace the file, then change the slot's limit. `durable`: the file is on the device when this returns. The caller holds the
# slot's lock. Returns 0, or -errno with the slot's limit unchanged.
cdef int put_gap_limit(Slot* slot, int64_t limit, bint durable) noexcept nogil

# Whether the log needs a higher limit because offsets may be missing below `limit`. An unknown limit is replaced by a known one.
cdef inline bint is_gap_limit_below(Slot* slot, int64_t limit) noexcept nogil:
    return slot.gap_limit < limit or slot.gap_limit == INT64_MAX

# Rename the file that `prepare_gap_limit` wrote to its final name, and change the slot's limit. The caller holds the slot's lock,
# has checked `is_gap_limit_below`, and calls `sync_gap_limit` afterwards without the lock. Returns 0, or -errno.
cdef int name_gap_limit(Slot* slot, int directory, int64_t limit) noexcept nogil

# Lower the limit of a log that now ends at `limit`. The limit is on the device when this returns. The caller holds the slot's lock.
# Returns 0, or -errno.
cdef int lower_gap_limit(Slot* slot, int64_t limit) noexcept nogil
