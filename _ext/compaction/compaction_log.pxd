"""The log that a pass of compaction works on: its slot and lock, its segments, its active producers, its transactions.

Belongs to one `Compactor` and is used by its thread only, except for `stop`. Owns the descriptor of the log's directory.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.compaction.compaction_transactions cimport Transactions
from odradek._ext.shm.slot cimport Slot
from odradek._ext.storage.log_state cimport Array


cdef enum:                        # reason why a pass ends without an error
    ABORTED_BUSY = 1
    ABORTED_DELETED = 2
    ABORTED_TRUNCATED = 3
    ABORTED_SOURCE = 4


cdef struct LastOfProducer:       # the batch or marker that preserves an active producer's state
    int64_t producer_id
    int64_t last_offset           # -1: none, a marker contains its epoch
    int16_t epoch


cdef class CompactedLog:
    cdef object swap_lock
    cdef int stop                 # set by another thread
    cdef uint32_t slot, incarnation
    cdef uint64_t truncations
    cdef int directory            # -1: no log is open
    cdef int32_t index_interval_bytes
    cdef int64_t delete_retention_ms
    cdef Transactions transactions
    cdef Array producers          # of LastOfProducer, by id

    # Read the state of a slot's log at the beginning of a pass, and remove what an earlier pass left unfinished.
    cdef int begin_pass(self, uint32_t slot_index, uint32_t incarnation) except -1
    cdef int end_pass(self) except -1
    # Take the slot's lock and check that it still has the log of this pass. Returns 0 with the lock held, or an ABORTED_ code
    # without it.
    cdef int lock(self) noexcept nogil
    # Raise the exception for the result of a step under the lock, unless it is 0.
    cdef int check(self, int result) except -1
    # Raise CompactionAborted if the broker stops or the log was deleted.
    cdef int look(self) except -1
    # Open a file of the log for reading. Raises CompactionAborted if it was removed, and OSError.
    cdef int open_file(self, int64_t base_offset, int kind) except -1
    cdef bytes read_index(self, int64_t base_offset, int kind)
    # Read the last batch, or the epoch, of each active producer at this time; `last_of` finds it, or returns NULL.
    cdef int read_producers(self) except -1
    cdef const LastOfProducer* last_of(self, int64_t producer_id) noexcept nogil
    cdef int copy_producers(self, Slot* slot) noexcept nogil
