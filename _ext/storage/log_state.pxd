from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free

from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.atomics cimport shared_u64


# Kinds of files, as bits of Segment.files.
cdef enum:
    FILE_LOG = 1
    FILE_INDEX = 2
    FILE_TIME_INDEX = 4
    FILE_TXN_INDEX = 8
    FILE_SNAPSHOT = 16
    FILE_EPOCHS = 32

# Changes made while a log was loaded; segments.pyx has the texts.
cdef enum:
    EVENT_REMOVED_LEFTOVER = 0      # a .deleted or .cleaned file, or a .swap of an interrupted split
    EVENT_COMPLETED_SWAP = 1
    EVENT_REMOVED_ORPHAN = 2        # an index without its log
    EVENT_REBUILT_INDEXES = 3       # missing, stale or torn
    EVENT_CUT_LOG = 4
    EVENT_REMOVED_SEGMENT = 5       # after a cut
    EVENT_REMOVED_SNAPSHOT = 6      # a snapshot that no start needs
    EVENT_CUT_EPOCHS = 7
    EVENT_CUT_TXN_INDEX = 8
    EVENT_UNREADABLE = 9            # damage in an old segment, which is left unchanged
    EVENT_RESTARTED_LOG = 10        # the log ended before its start offset
    EVENT_NOT_CLEAN = 11            # marked as stopped cleanly, but the active segment is not valid
    EVENT_CORRUPT_EPOCHS = 12
    EVENT_GAP = 13                  # offsets are missing where none may be missing
    EVENT_SHORTENED = 14            # the log ends before its recovery point
    EVENT_CORRUPT_GAP_LIMIT = 15
    EVENT_REBUILT_EPOCHS = 16       # from the batches, because the checkpoint was incomplete
    EVENT_CORRUPT_SNAPSHOT = 17     # incomplete
    EVENT_PRUNED_PRODUCERS = 18     # more than a partition may have

# Errors besides errno; all are returned as negative numbers.
cdef enum:
    ERROR_OFFSET_OVERFLOW = -2002   # an offset that does not fit in a relative offset
    ERROR_TOO_LARGE = -2003         # a log file larger than 2^31-1 bytes


cdef struct Event:
    int32_t code                    # an EVENT_
    int32_t kind                    # a FILE_ bit, or 0
    int64_t base_offset
    int64_t offset                  # first lost offset, if known
    int64_t position
    int64_t lost_bytes


cdef struct Segment:
    int64_t base_offset
    int64_t size
    uint32_t files                  # FILE_ bits of the files that exist


cdef struct EpochEntry:
    int32_t epoch
    int64_t start_offset


cdef struct LoadedBatch:
    int32_t base_sequence
    int32_t last_sequence
    int64_t base_offset
    int64_t last_offset
    int64_t timestamp


cdef struct LoadedProducer:
    int64_t producer_id
    int64_t last_timestamp
    int64_t current_txn_first_offset    # -1: none open
    int32_t coordinator_epoch           # -1: none known
    int16_t producer_epoch
    int16_t batch_count                 # 0-5
    int64_t last_offset                 # of its newest batch or marker, -1 if not known
    bint replayed                       # its newest batch or marker was read from the log after the snapshot
    LoadedBatch[5] batches              # oldest first


# A growing array: `items` is malloc'ed memory for `room` items, of which `count` are in use.
cdef struct Array:
    void* items
    int64_t count
    int64_t room
    size_t item_bytes


cdef struct LogState:
    # Begin and end of the log.
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t recovery_point
    # The active segment.
    int64_t base_offset
    int64_t size
    int64_t index_entries
    int64_t timeindex_entries
    int64_t txnindex_entries
    int64_t last_index_offset           # of the last entry of the offset index; base_offset - 1 without entries
    int64_t last_index_position         # 0 without entries; size minus this value is the part after the last entry
    int64_t last_timeindex_timestamp    # -1 without entries
    int64_t max_timestamp               # -1 without one
    int64_t offset_of_max_timestamp     # the last offset of the batch that has it, -1 without one
    int64_t first_timestamp             # the first batch's largest timestamp, from which segment.ms counts; -1 without one
    # The whole log.
    int64_t total_bytes
    int64_t first_open_txn_offset       # the smallest first offset of an open transaction, -1 without one
    int64_t newest_abort_offset         # not below the largest last offset in any transaction index, -1 without an entry
    int64_t newest_end_offset           # of the newest marker that was replayed and ended a transaction with records, -1 without one
    int64_t scanned_bytes               # bytes that loading had to read
    int64_t lost_bytes                  # bytes of logs that were cut off, or that were in segments after a cut
    shared_u64* progress                # shared count of recovered bytes, for other processes to read; NULL: none
    bint epochs_changed
    bint snapshot_corrupt               # a snapshot was removed, and the log is read instead
    bint snapshot_current               # there is a snapshot at the log's end, with exactly these producers
    int64_t snapshots                   # number of snapshots
    bint snapshot_wanted                # a recovery had to begin its replay of producers before the current active segment
    int64_t producer_limit              # most producers to keep, 0: all
    int64_t pruned_producers            # producers dropped because of that limit
    uint64_t[2] hash_key                # key of the hash table of producers
    bint has_gap_limit                  # a file contains the limit below which offsets may be missing
    bint shortened                      # the log ends before the given recovery point: records are lost
    int64_t gap_limit                   # offsets below it may be missing; at or above it a gap is damage
    int64_t created_ms                  # when the active segment was created, from the times of its files; -1 if not needed
    Array segments                      # of Segment, by base offset
    Array epochs                        # of EpochEntry, by epoch
    Array producers                     # of LoadedProducer
    Array events                        # of Event
    Array slots                         # of int32: hash table over producers, -1 free
    # Number of further changes on disk before loading ends with ECANCELED; -1: no limit. For crash tests.
    int64_t changes_left


cdef void init_state(LogState* state) noexcept nogil
cdef void free_state(LogState* state) noexcept nogil

# Returns a new zeroed item at the end, NULL if there is no memory.
cdef void* append_item(Array* array) noexcept nogil


cdef inline void clear_array(Array* array) noexcept nogil:
    """Remove all items and keep the memory."""
    array.count = 0


cdef inline void free_array(Array* array) noexcept nogil:
    """Remove all items and free the memory."""
    free(array.items)
    array.items = NULL
    array.count = array.room = 0


cdef int add_event(LogState* state, int code, int kind, int64_t base_offset, int64_t offset, int64_t position,
                   int64_t lost_bytes) noexcept nogil

# Count bytes of logs for which the recovery is done.
cdef void add_progress(LogState* state, int64_t bytes) noexcept nogil

# Call this before each change on disk. Returns 0, or -ECANCELED if the allowance is used up.
cdef int about_to_change(LogState* state) noexcept nogil

# Whether offsets may be missing before a batch or segment that begins at `offset`, because compaction processed them or they are
# below the log start offset.
cdef inline bint may_follow_gap(const LogState* state, int64_t offset) noexcept nogil:
    return offset <= state.gap_limit or offset <= state.log_start_offset


cdef void clear_producers(LogState* state) noexcept nogil
# Drop the least recent writers without an open transaction while there are more producers than `producer_limit`. Returns 0, or
# -ENOMEM.
cdef int prune_producers(LogState* state) noexcept nogil
cdef LoadedProducer* find_loaded(LogState* state, int64_t producer_id, bint create) noexcept nogil

# Apply a batch of the log to its producer. `record`: a control batch's first record (header excluded), n bytes of it. *aborted is
# set if the batch ended a transaction by abort, *first_offset to that transaction's first offset. Returns 0, or -ENOMEM.
cdef int replay_batch(LogState* state, const BatchInfo* info, const uint8_t* record, size_t n,
                      bint* aborted, int64_t* first_offset) noexcept nogil

# Returns the smallest first offset of an open transaction of another producer, -1 without one.
cdef int64_t first_open_txn(LogState* state, int64_t except_producer_id) noexcept nogil
