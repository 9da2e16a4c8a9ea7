"""The transactions at the current position of a pass through a log, with the aborted ones from the transaction indexes. Only
for compaction.

Owned by one pass. A marker may be removed if no batch of its transaction was met (Kafka's CleanedTransactionMetadata).
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.index_entries cimport AbortedEntry
from odradek._ext.storage.log_state cimport Array


cdef struct OpenAborted:          # an aborted transaction that is open at the current position
    AbortedEntry entry
    bint seen                     # a batch of it was met, so its marker is still needed


cdef struct Transactions:         # the transactions at the current position in the log
    Array aborted                 # of AbortedEntry, by first offset
    int64_t next
    Array open_aborted            # of OpenAborted
    Array open_committed          # of int64 producer ids


cdef void init_transactions(Transactions* state) noexcept nogil
cdef void free_transactions(Transactions* state) noexcept nogil

# Sort the entries of `aborted`, once after filling it.
cdef void sort_aborted(Transactions* state) noexcept nogil

# Begin a pass at the log's start; `aborted` is kept.
cdef void start_transactions(Transactions* state) noexcept nogil

# Process a control batch: *idle is set if no batch of its transaction was met, so that it may be removed. `kept`, unless NULL,
# receives the transaction index entry (AbortedEntry) of an abort that is kept. Returns 0, or -ENOMEM.
cdef int track_marker(Transactions* state, const uint8_t* batch, const BatchInfo* info, Array* kept, bint* idle) noexcept nogil

# Process a batch that is no control batch: *aborted is set if it belongs to an aborted transaction. Returns 0, or -ENOMEM.
cdef int track_batch(Transactions* state, const BatchInfo* info, bint* aborted) noexcept nogil
