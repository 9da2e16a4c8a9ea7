from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport LogState


# Reads all segments from state.segments[first] on and checks lengths, checksums and offsets; cuts the log at the first bad batch,
# removes everything after it, and rebuilds the indexes. The state's producers must be those at the base offset of the first
# segment. Fills in the active segment.
cdef int recover_segments(LogState* state, int directory, int64_t first, int64_t index_interval) noexcept nogil

# Rebuilds the offset and time index of a segment below the recovery point from its headers; cuts nothing.
cdef int rebuild_indexes(LogState* state, int directory, int64_t number, int64_t index_interval) noexcept nogil
