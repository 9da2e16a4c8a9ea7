"""The file `odradek-gaps-checkpoint` of a log: the offset below which offsets may be missing [R 4]. gap_limit.pxd describes its
purpose.

INT64_MAX in LogState and Slot means that the limit is not known; then every gap is attributed to compaction.
"""

from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport LogState


cdef const char* GAP_LIMIT_NAME

# Read the offset in the file; -1 if the file has a wrong format. Returns 0, or -errno.
cdef int read_gap_limit_file(int directory, int64_t* limit) noexcept nogil

# Replace the file. `durable`: the file is on the device when this returns. Returns 0, or -errno.
cdef int write_gap_limit_file(int directory, int64_t limit, bint durable) noexcept nogil

# Replace the file in steps, so that nothing waits for the device between them: write and sync the file under another name; rename
# it to its final name; sync that name. Each returns 0, or -errno.
cdef int prepare_gap_limit(int directory, int64_t limit) noexcept nogil
cdef int name_prepared_gap_limit(int directory) noexcept nogil
cdef int sync_gap_limit(int directory) noexcept nogil
cdef void drop_prepared_gap_limit(int directory) noexcept nogil         # removes a prepared file that will not be renamed

# Set `state.gap_limit` while the log is opened: from the file, if `state.has_gap_limit`, and from `cleaner-offset-checkpoint` (-1:
# no entry). Returns 0, or -errno.
cdef int read_gap_limit(LogState* state, int directory, int64_t cleaner_offset) noexcept nogil

# Lower a limit above the log's end while the log is opened, because it would cover records that are appended later. Returns 0, or
# -errno.
cdef int fit_gap_limit(LogState* state, int directory) noexcept nogil
