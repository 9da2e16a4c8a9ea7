from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport Array, LogState


# Restores the producers as of the time when the log ended at `offset`: from the newest valid snapshot not above it, then from the
# batches after that. Corrupt snapshots are removed. replay_without_snapshot: without a snapshot, read the log from its start
# (otherwise there are no producers).
cdef int restore_producers(LogState* state, int directory, Array* snapshots, int64_t offset,
                           bint replay_without_snapshot) noexcept nogil

# Reads all segments from state.segments[first] on and checks lengths, checksums and offsets; cuts the log at the first bad batch,
# removes everything after it, and rebuilds the indexes. The state's producers must be those at the base offset of the first
# segment. Fills in the active segment.
cdef int recover_segments(LogState* state, int directory, int64_t first, int64_t index_interval) noexcept nogil

# Takes the leader epochs from the headers of all batches if the checkpoint does not cover the log's first one: the checkpoint is
# written without a sync, and a power failure may leave it empty. If the checkpoint covers the log, at most one header is read.
cdef int complete_epochs(LogState* state, int directory) noexcept nogil

# Rebuilds the offset and time index of a segment below the recovery point from its headers; cuts nothing.
cdef int rebuild_indexes(LogState* state, int directory, int64_t number, int64_t index_interval) noexcept nogil
