"""The file `odradek-gaps-checkpoint` of a log: the offset below which offsets may be missing [R 4]. What it is for: gap_limit.pxd.

INT64_MAX in LogState and Slot means that the limit is not known: then every gap is taken for the work of compaction.
"""

from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport LogState


cdef const char* GAP_LIMIT_NAME

# The offset in the file, -1 if it does not follow the format: 0, or -errno.
cdef int read_gap_limit_file(int directory, int64_t* limit) noexcept nogil

# Replace the file; `durable`: it is on the device when this returns. 0, or -errno.
cdef int write_gap_limit_file(int directory, int64_t limit, bint durable) noexcept nogil

# To replace it in steps, so that the device is not waited for between them: make the file, under another name and synced; give it its
# name; sync the name. Each 0, or -errno.
cdef int prepare_gap_limit(int directory, int64_t limit) noexcept nogil
cdef int name_prepared_gap_limit(int directory) noexcept nogil
cdef int sync_gap_limit(int directory) noexcept nogil
cdef void drop_prepared_gap_limit(int directory) noexcept nogil         # what is not to get the name

# While the log is opened: what the file says, if `state.has_gap_limit`, and what `cleaner-offset-checkpoint` says (-1: nothing),
# into `state.gap_limit`. 0, or -errno.
cdef int read_gap_limit(LogState* state, int directory, int64_t cleaner_offset) noexcept nogil

# While the log is opened: a limit behind the log's end would cover what is appended next. 0, or -errno.
cdef int fit_gap_limit(LogState* state, int directory) noexcept nogil
