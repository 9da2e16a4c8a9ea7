"""The gap limit of a partition's log: the offset below which offsets may be missing [R 4].

Compaction removes records, and a follower copies the gaps of its leader; nothing else makes gaps. So a gap in front of a batch
that begins above the limit was made by a loss of power, which kept a later part of the log and not the one before it. Both a
recovery and `odradek log verify` decide by this. The file that keeps it: gap_limit_file.pxd.
"""

from libc.stdint cimport INT64_MAX, int64_t

from odradek._ext.shm.layout cimport Slot


# "<topic>-<partition>/odradek-gaps-checkpoint" relative to the log directory; `out` has 512 bytes.
cdef void gap_limit_path(Slot* slot, char* out) noexcept nogil

# Under the slot's lock: replace the file, and then change the slot's limit; `durable`: on the device when this returns. 0, or
# -errno: the slot says what it said before.
cdef int put_gap_limit(Slot* slot, int64_t limit, bint durable) noexcept nogil

# Whether the log needs a higher limit: offsets may be missing below `limit`. A limit that is not known is replaced by one that is.
cdef inline bint is_gap_limit_below(Slot* slot, int64_t limit) noexcept nogil:
    return slot.gap_limit < limit or slot.gap_limit == INT64_MAX

# Under the slot's lock, if `is_gap_limit_below`: give the file that `prepare_gap_limit` made its name, and change the slot's limit;
# `sync_gap_limit` follows, without the lock. 0, or -errno.
cdef int name_gap_limit(Slot* slot, int directory, int64_t limit) noexcept nogil

# Under the slot's lock: a log that ends at `limit` from now on. The device has the lower limit when this returns. 0, or -errno.
cdef int lower_gap_limit(Slot* slot, int64_t limit) noexcept nogil
