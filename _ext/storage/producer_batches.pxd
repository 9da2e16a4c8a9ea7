from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport LogState


# Adds to producers that were restored from a snapshot, as of the time when the log ended at `until_offset`, the batches before the one
# that a snapshot has: up to five, if their headers are near that offset. Returns 0, or -errno.
cdef int complete_batches(LogState* state, int directory, int64_t until_offset) noexcept nogil
