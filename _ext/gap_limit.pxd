"""The gap limit of a partition's log: the offset below which offsets may be missing, in `odradek-gaps-checkpoint` [R 4].

Compaction removes records, and a follower copies the gaps of its leader; nothing else makes gaps. So a gap in front of a batch
that begins above the limit was made by a loss of power, which kept a later part of the log and not the one before it. Both a
recovery and `odradek log verify` decide by this.
"""

from libc.stdint cimport INT64_MAX, int64_t

from broker._ext.log_state cimport LogState
from broker._ext.shared cimport Slot


# INT64_MAX in LogState and Slot means that the limit is not known: all gaps are taken for the work of compaction.

cdef const char* GAP_LIMIT_NAME

# While the log is opened: what the file says, if `state.has_gap_limit`, and what `cleaner-offset-checkpoint` says (-1: nothing),
# into `state.gap_limit`. 0, or -errno.
cdef int read_gap_limit(LogState* state, int directory, int64_t cleaner_offset) noexcept nogil

# While the log is opened: a limit behind the log's end would cover what is appended next. 0, or -errno.
cdef int fit_gap_limit(LogState* state, int directory) noexcept nogil

# "<topic>-<partition>/odradek-gaps-checkpoint" relative to the log directory; `out` has 512 bytes.
cdef void gap_limit_path(Slot* slot, char* out) noexcept nogil

# Under the slot's lock: replace the file, and then change the slot's limit; `durable`: on the device when this returns. 0, or
# -errno: the slot says what it said before.
cdef int put_gap_limit(Slot* slot, int64_t limit, bint durable) noexcept nogil

# Whether the log needs a higher limit: offsets may be missing below `limit`. A limit that is not known is replaced by one that is.
cdef inline bint is_gap_limit_below(Slot* slot, int64_t limit) noexcept nogil:
    return slot.gap_limit < limit or slot.gap_limit == INT64_MAX

# To raise the limit without the slot's lock being held while the device works: make the file, under another name and synced;
# then, with the lock, if `is_gap_limit_below`, give it its name, and change the slot's limit; then sync the name. Each 0, or -errno.
cdef int prepare_gap_limit(int directory, int64_t limit) noexcept nogil
cdef int name_gap_limit(Slot* slot, int directory, int64_t limit) noexcept nogil
cdef int sync_gap_limit(int directory) noexcept nogil
cdef void drop_prepared_gap_limit(int directory) noexcept nogil         # what is not to get the name

# Under the slot's lock: a log that ends at `limit` from now on. The device has the lower limit when this returns. 0, or -errno.
cdef int lower_gap_limit(Slot* slot, int64_t limit) noexcept nogil
