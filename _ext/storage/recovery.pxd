from libc.stdint cimport int64_t

from odradek._ext.storage.log_state cimport Array, LogState


# Producers as they were when the log ended at `offset`: the newest sound snapshot not above it, then the batches
# after that. Corrupt snapshots are removed. replay_without_snapshot: from the log's start where there is none (else:
# no producers).
cdef int restore_producers(LogState* state, int directory, Array* snapshots, int64_t offset,
                           bint replay_without_snapshot) noexcept nogil

# Reads all segments from state.segments[first] on: lengths, checksums, offsets; cuts the log at the first bad batch,
# removes what lies behind, writes the indexes anew. Producers must be those at the first one's base offset. Fills the
# active segment.
cdef int recover_segments(LogState* state, int directory, int64_t first, int64_t index_interval) noexcept nogil

# Takes the leader epochs from the headers of all batches if the checkpoint does not cover the log's first one: it is written
# without a sync, and a loss of power may leave it empty. Reads nothing else of a log whose checkpoint does.
cdef int complete_epochs(LogState* state, int directory) noexcept nogil

# Writes the offset and time index of a segment below the recovery point anew from its headers; cuts nothing.
cdef int rebuild_indexes(LogState* state, int directory, int64_t number, int64_t index_interval) noexcept nogil
