"""The fault points: numbered steps at which a test can kill the process (debug build only; see atomics.h)."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport FAULTS_COMPILED, fault_point, shared_u64


cpdef enum FaultPoint:
    FAULT_NONE = 0
    # An append, in the order of its steps [R 1.3]
    APPEND_LOCKED = 1
    APPEND_EPOCH_FILE_WRITTEN = 2
    APPEND_LOG_WRITTEN = 3
    APPEND_TXN_INDEX_WRITTEN = 4
    APPEND_INDEX_WRITTEN = 5
    APPEND_TIME_INDEX_WRITTEN = 6
    APPEND_BLOCK_FILLED = 7
    APPEND_COMMITTED = 8
    APPEND_PRODUCER_APPLIED = 9
    APPEND_APPLIED = 10
    APPEND_RECENT_HALF_WRITTEN = 11
    APPEND_BEFORE_UNLOCK = 12
    APPEND_UNLOCKED = 13
    APPEND_WOKEN = 14
    WAKE_PENDING_SET = 15
    # A roll
    ROLL_STARTED = 20
    ROLL_TIME_INDEX_WRITTEN = 21
    ROLL_TIME_INDEX_COMMITTED = 22
    ROLL_SNAPSHOT_WRITTEN = 23
    ROLL_LOG_CREATED = 24
    ROLL_INDEXES_CREATED = 25
    ROLL_COMMITTED = 26
    # Recovery of a slot whose holder died
    RECOVER_STARTED = 30
    RECOVER_FILES_CUT = 31
    RECOVER_APPLIED_ONE = 32
    RECOVER_BEFORE_CONSISTENT = 33
    # Truncation
    TRUNCATE_INTENT_STORED = 40
    TRUNCATE_SEGMENTS_REMOVED = 41
    TRUNCATE_FILE_CUT = 42
    TRUNCATE_SEGMENT_CREATED = 43
    TRUNCATE_COMMITTED = 44
    TRUNCATE_STATE_REBUILT = 45
    TRUNCATE_GAP_LIMIT_LOWERED = 46
    RESTART_INTENT_STORED = 140   # the whole log is dropped
    RESTART_GAP_LIMIT_LOWERED = 141
    RESTART_SEGMENTS_REMOVED = 142
    RESTART_SEGMENT_CREATED = 143
    RESTART_COMMITTED = 144
    RESTART_STATE_REBUILT = 145
    FOLLOW_BEFORE_UNLOCK = 146    # a follower's append
    FOLLOW_LOG_START_STORED = 147
    EPOCHS_HALF_CHANGED = 148
    # Deletion of a topic's partition
    DELETE_INTENT_STORED = 50
    DELETE_RENAMED = 51
    DELETE_STATE_STORED = 52
    DELETE_ANNOUNCED = 53
    # A producer run
    PRODUCER_RUN_FILLED = 60
    PRODUCER_BATCH_STORED = 61
    PRODUCER_MARKER_HALF_STORED = 62
    PRODUCER_KEY_STORED = 63
    PRODUCER_HALF_LISTED = 64
    PRODUCER_HALF_DROPPED = 65
    # A run is taken from the arena, or given back
    ARENA_RUN_SPLIT = 66
    ARENA_RUN_TAKEN = 67
    ARENA_RUN_GIVEN = 68
    ARENA_RUN_MERGED = 69
    # Transactions of a producer
    PRODUCER_MARK_STORED = 150
    TRANSACTION_OPENED = 151        # its first offset is stored, it is not in the list yet
    TRANSACTION_HALF_LISTED = 152
    TRANSACTION_UNREPLICATED = 153  # its end is noted as unreplicated; it is still open
    TRANSACTION_ENDED = 154         # its first offset is cleared, it is still in the list
    TRANSACTION_HALF_DELISTED = 155
    UNSTABLE_HALF_STORED = 156
    UNREPLICATED_HALF_STORED = 157
    MARKERS_RESERVED = 158          # markers are checked, and their producers have room
    # The log start offset moves and segments are removed
    REMOVE_LOG_START_STORED = 70
    REMOVE_LOG_START_DURABLE = 71
    REMOVE_INTENT_STORED = 72
    REMOVE_INDEX_RENAMED = 73
    REMOVE_LOG_RENAMED = 74
    REMOVE_SNAPSHOT_RENAMED = 75
    REMOVE_FILES_RENAMED = 76
    REMOVE_GENERATION_CHANGED = 77
    REMOVE_FILE_UNLINKED = 78
    # A flush
    FLUSH_BEGUN = 80
    FLUSH_SYNCED = 81
    FLUSH_ADVANCED = 82
    FLUSH_HIGH_WATERMARK_MOVED = 83
    HIGH_WATERMARK_PUBLISHED = 84   # by a flush or by replicas; the last stable offset follows
    # The swap of a compacted segment
    CLEANED_WRITTEN = 90
    SWAP_PREPARED_ONE = 91
    SWAP_PREPARED = 92
    SWAP_DIRECTORY_SYNCED = 93
    SWAP_INTENT_STORED = 94
    SWAP_OLD_RENAMED = 95
    SWAP_FIRST_SET_ASIDE = 96
    SWAP_NAME_TAKEN = 97
    SWAP_FILES_RENAMED = 98
    SWAP_GENERATION_CHANGED = 99
    SWAP_UNLOCKED = 100
    # Before and after the swaps of a compaction pass
    GAP_LIMIT_NAMED = 101
    GAP_LIMIT_DURABLE = 102
    CLEANER_OFFSET_WRITTEN = 103
    GAP_LIMIT_PREPARED = 104
    # A producer snapshot
    SNAPSHOT_WRITTEN = 110
    SNAPSHOT_SYNCED = 111
    SNAPSHOT_RENAMED = 112
    # Views and roles [R 10]
    VIEW_FILLED = 120
    VIEW_PUBLISHED = 121
    ROLE_EPOCH_CLEARED = 122
    ROLE_EPOCH_NOTED = 123
    ROLE_FIELDS_STORED = 124
    ROLE_STORED = 125
    ROLE_EPOCH_STORED = 126
    # A follower's fetch, and a change of the in-sync set [R 10]
    FOLLOWER_FETCH_NOTED = 130
    FOLLOWER_HIGH_WATERMARK_MOVED = 131
    IN_SYNC_MAXIMAL_STORED = 132
    IN_SYNC_PROPOSED = 133
    IN_SYNC_PARTLY_STORED = 134
    IN_SYNC_COMMIT_STORED = 135
    IN_SYNC_STATE_STORED = 136


cdef shared_u64* armed_fault() noexcept nogil    # of the mapping: fault point, countdown, signal


cdef inline void fault(int point) noexcept nogil:
    if FAULTS_COMPILED:             # a release build skips even the look-up of what is armed
        fault_point(armed_fault(), <uint64_t>point)
