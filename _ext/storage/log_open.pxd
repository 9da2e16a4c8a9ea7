from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport LogState


# Opens the log in the directory `path`. log_start_offset, recovery_point: from the checkpoint files, 0 without an entry.
# cleaner_offset: from cleaner-offset-checkpoint, -1 without an entry, INT64_MAX if the file cannot be read. clean: the broker was
# stopped in order. index_interval: index.interval.bytes. Returns 0, -errno, or an ERROR_ code of log_state.
cdef int load(LogState* state, const char* path, int64_t log_start_offset, int64_t recovery_point, int64_t cleaner_offset,
              bint clean, int64_t index_interval) noexcept nogil
