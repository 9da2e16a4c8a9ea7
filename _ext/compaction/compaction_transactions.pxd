"""Where a walk over a log stands among its transactions, aborted ones by the transaction indexes; for compaction only.

Owned by one pass. A marker may go when nothing of its transaction was met (Kafka's CleanedTransactionMetadata).
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.storage.log_state cimport Array


cdef struct AbortedEntry:         # an entry of a transaction index
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset


cdef struct OpenAborted:          # an aborted transaction that the walk is inside of
    AbortedEntry entry
    bint seen                     # a batch of it was met: its marker has a meaning


cdef struct Transactions:         # where a walk over the log stands among the transactions
    Array aborted                 # of AbortedEntry, by first offset
    int64_t next
    Array open_aborted            # of OpenAborted
    Array open_committed          # of int64 producer ids


cdef void init_transactions(Transactions* state) noexcept nogil
cdef void free_transactions(Transactions* state) noexcept nogil

# Sort what `aborted` was filled with, once.
cdef void sort_aborted(Transactions* state) noexcept nogil

# Begin a walk at the log's start; `aborted` stays.
cdef void start_transactions(Transactions* state) noexcept nogil

# A control batch: *idle is set when nothing of its transaction was met, so that it may go. `kept`, unless NULL, takes the
# transaction index's entry (AbortedEntry) of an abort that stays. 0, or -ENOMEM.
cdef int meet_marker(Transactions* state, const uint8_t* batch, const BatchInfo* info, Array* kept, bint* idle) noexcept nogil

# A batch that is not control: *aborted is set when it belongs to an aborted transaction. 0, or -ENOMEM.
cdef int meet_batch(Transactions* state, const BatchInfo* info, bint* aborted) noexcept nogil
