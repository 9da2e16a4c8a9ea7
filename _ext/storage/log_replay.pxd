from libc.stdint cimport int64_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.log_scan cimport Scanner
from odradek._ext.storage.log_state cimport Array, LogState


cdef enum:
    HEADERS_BYTES = 1 << 16         # of a read that wants only headers


# Restores the producers as of the time when the log ended at `offset`: from the newest valid snapshot not above it, then from the
# batches after that. Corrupt snapshots are removed. replay_without_snapshot: without a snapshot, read the log from its start
# (otherwise there are no producers).
cdef int restore_producers(LogState* state, int directory, Array* snapshots, int64_t offset,
                           bint replay_without_snapshot) noexcept nogil

# Apply the batches in [from_offset, until_offset) to the producers, reading only headers. Returns 0, or -errno.
cdef int replay_log(LogState* state, int directory, int64_t from_offset, int64_t until_offset) noexcept nogil

# Takes the leader epochs from the headers of all batches if the checkpoint does not cover the log's first one: the checkpoint is
# written without a sync, and a power failure may leave it empty. Call it after the recovery, which cuts what is damaged. If the
# checkpoint covers the log, at most one header is read.
cdef int complete_epochs(LogState* state, int directory) noexcept nogil

# Apply the batch at `position` to its producer; of a control batch the record is read as well. *aborted is set if the batch ended a
# transaction by abort, *first_offset to that transaction's first offset. Returns 0, or -errno.
cdef int replay_at(LogState* state, Scanner* scanner, int64_t position, const BatchInfo* info, bint* aborted,
                   int64_t* first_offset) noexcept nogil
