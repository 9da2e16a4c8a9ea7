"""The slot of a partition in the shared mapping: its log's state, its leadership, its settings, the processes that wait for it.

``broker/odradek/shm/README.md`` numbers the rules of which process may write what under which lock [R n].
"""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport shared_i32, shared_i64, shared_u32, shared_u64, shared_u8
from odradek._ext.shm.c_library cimport pthread_mutex_t
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC, PartitionView


cdef enum:
    MAX_FOLLOWERS = 12
    MAX_TOPIC_BYTES = 249
    EPOCHS_KEPT = 8
    RECENT_KEPT = 8

cpdef enum SlotState:
    SLOT_FREE = 0
    SLOT_LOADING = 1
    SLOT_ONLINE = 2
    SLOT_OFFLINE = 3              # its log directory or its log failed: KAFKA_STORAGE_ERROR
    SLOT_DELETED = 4              # reusable when every living worker has confirmed a newer metadata version [R 8.2]
    SLOT_REMOTE = 5               # leader and replicas are other brokers: only metadata

cpdef enum BegunEpoch:
    EPOCH_KEPT = 0                # the leader epoch is the one from before the start
    EPOCH_UNSTORED = 1            # a new leader epoch that the metadata store may not have yet
    EPOCH_STORED = 2

cpdef enum LostTail:              # of a partition's log, when it was loaded
    TAIL_COMPLETE = 0             # nothing was lost, or the log has had all committed records again since
    TAIL_LOST = 1                 # records are missing at the end of the log
    TAIL_LOST_LED = 2             # and this broker has become the leader without them

cpdef enum Role:
    ROLE_NONE = 0
    ROLE_LEADER = 1
    ROLE_FOLLOWER = 2


cpdef enum ThrottledSide:         # bits: in which role this broker throttles a partition [R 11]
    THROTTLED_LEADER = 1
    THROTTLED_FOLLOWER = 2


cpdef enum InSyncState:           # of the in-sync set of a partition that this broker leads [R 10]
    IN_SYNC_COMMITTED = 0         # the set is the one that the controller knows
    IN_SYNC_EXPANDING = 1         # a larger set is proposed to the controller
    IN_SYNC_SHRINKING = 2         # a smaller set is proposed to the controller


cdef struct Commit:               # published as a whole by one release-store of `Slot.sequence` [R 1]
    int64_t segment_base          # base offset of the active segment
    int64_t size                  # bytes of the active segment
    int64_t log_end_offset
    int32_t index_entries
    int32_t timeindex_entries
    int32_t txnindex_entries
    int32_t rolls                 # rolls since load: positions with different values are in different files
    int64_t high_watermark
    int64_t high_watermark_base   # segment that holds the high watermark, -1 if not known
    int64_t high_watermark_position
    int64_t first_timestamp       # of the active segment's first batch, -1 if the segment is empty
    int64_t max_timestamp         # of the active segment, -1 if none
    int64_t max_timestamp_offset
    int64_t indexed_position      # end of the bytes that the last entry of the offset index covers
    int64_t timeindexed_timestamp  # timestamp of the last entry of the time index, -1 if none
    int64_t timeindexed_offset
    int64_t created_ms            # wall clock when the segment was created


cdef struct TopicSettings:        # the part of a topic's configuration that the data path reads
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t retention_ms
    int64_t retention_bytes
    int64_t flush_messages
    int64_t flush_ms
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t file_delete_delay_ms
    int64_t delete_retention_ms
    int64_t min_compaction_lag_ms
    int64_t max_compaction_lag_ms
    int32_t min_cleanable_dirty_millionths    # of min.cleanable.dirty.ratio
    int32_t index_interval_bytes
    int32_t index_max_bytes
    int32_t max_message_bytes
    int32_t min_in_sync_replicas
    int32_t compression_level     # of the codec in `compression`
    uint8_t log_append_time       # message.timestamp.type
    uint8_t compact
    uint8_t delete_
    uint8_t compression           # 255: keep the producer's codec
    uint8_t unclean_election
    uint8_t no_down_conversion    # message.downconversion.enable=false
    uint8_t exact_retention       # odradek.retention.exact
    uint8_t throttled             # a sum of ThrottledSide: replication of this partition is throttled in this broker


cdef struct Follower:
    shared_i32 broker_id          # -1: free
    shared_i32 candidate          # 1: at its last fetch it could join the in-sync set, and it was not proposed since
    shared_i64 broker_epoch
    shared_i64 candidate_epoch    # broker epoch of the fetch that set `candidate`; -1: the request had none. AlterPartition sends it
    shared_i64 log_end_offset
    shared_i64 log_start_offset
    shared_i64 last_fetch_ms      # monotonic; 0: it has not fetched in this leader epoch
    shared_i64 caught_up_ms       # monotonic time at which it last had every record of the leader; 0: not in this leader epoch
    shared_i64 leader_end_at_fetch  # log end offset of the leader at its last fetch


cdef struct EpochStart:
    int32_t epoch
    int32_t spare
    int64_t start_offset


cdef struct RecentBatch:          # answers reads at the tail without a system call
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t segment_base
    int64_t max_timestamp


cdef struct Slot:
    pthread_mutex_t mutex         # process-shared, robust; initialised once in the life of the mapping [R 5, R 8]
    shared_u32 mutex_ready
    shared_u32 state              # SlotState
    shared_u32 incarnation        # changes whenever the slot is given to another partition
    shared_u32 role               # Role
    shared_u64 generation         # changes with every roll, truncation, deletion, swap, log start change; may contain SWAP_UNDER_WAY [R 4]
    shared_u64 sequence           # low bit: which commit block is valid [R 1]
    Commit[2] commits
    # what was applied to the state by redo of the log [R 1]
    shared_i64 applied_base
    shared_i64 applied_position
    shared_i64 first_unstable_offset  # first offset of the oldest open transaction, -1 if none; see `unstable_sequence`
    shared_i64 last_stable_offset
    shared_i64 log_start_offset
    shared_i64 flushed_offset     # every record before it is on the device
    shared_i64 recovery_point     # the value last written to the checkpoint
    shared_i64 flushed_ms         # CLOCK_MONOTONIC time at which `flushed_offset` was last advanced
    shared_u64 flusher            # serial << 8 | process index + 2 of the only flusher, 0 if none; a truncation clears it
    shared_i64 synced_base        # active segment when all files and directory entries were last synced, -1: unknown
    shared_i64 synced_end         # log end offset at that time; later records are synced only up to `flushed_offset`
    shared_u64 flushes            # how often `flushed_offset` was advanced
    # open transactions [R 2.10]
    shared_u32 unstable_sequence  # odd during a change of `first_unstable_offset` and of the two fields below
    uint32_t spare_unstable
    shared_i64 unstable_base      # segment with the batch that begins at `first_unstable_offset`, -1 if not known
    shared_i64 unstable_position  # of that batch in the segment's file
    shared_i64 newest_abort_offset  # not below the largest last offset in any transaction index of the log, -1 if there is no entry
    # Transactions whose markers the high watermark has not passed: the smallest first offset (-1: none), and the largest offset of
    # a marker. [0] holds the last stable offset until the high watermark has passed its last marker; later ones wait in [1].
    shared_i64[2] unreplicated_first
    shared_i64[2] unreplicated_last
    # leadership [R 3]
    shared_i32 leader_epoch
    shared_i32 partition_epoch
    shared_i32 leader_id
    int32_t partition
    shared_i32 in_sync_count
    shared_i32 replica_count
    shared_i32 max_in_sync_count
    shared_i32 epoch_count
    shared_i32[MAX_IN_SYNC] in_sync
    shared_i32[MAX_IN_SYNC] max_in_sync
    shared_i32[MAX_IN_SYNC] replicas
    uint32_t adding               # bit i: a reassignment adds replicas[i]
    uint32_t removing             # bit i: a reassignment removes replicas[i]
    int32_t controller_epoch      # of the controller that assigned the role
    uint32_t recovering           # 1: the leader was elected uncleanly and has not reported its recovery (LeaderRecoveryState)
    shared_i64 leader_epoch_start  # log end offset when this broker became the leader in `leader_epoch`; -1: it is not the leader
    shared_u32 in_sync_state      # InSyncState
    shared_u32 in_sync_wanted     # 1: a follower may join the in-sync set; the coordinator clears it before it looks
    uint64_t in_sync_serial       # number of proposals; the response to an older proposal is ignored
    shared_i64 in_sync_since_ms   # monotonic time of the proposal that is under way
    shared_i32[MAX_IN_SYNC] proposed  # the in-sync set that is proposed, for the successor of a coordinator
    shared_i32 proposed_count
    shared_u32 epochs_sequence    # odd during a change of `epochs` [R 3]
    shared_i64 fetch_error        # of a follower: Kafka's error code for which its fetcher does not fetch it, or -errno; 0: none
    shared_i64 fetch_lag          # of a follower: committed records of the leader that the log lacked at the last response; -1: none yet
    shared_i32 role_epoch         # leader epoch of the role; -1: none was assigned since the start, or an assignment is under way
    shared_i32 led_since          # leader epoch in which this broker began to lead, without interruption since, if it leads [R 10.6]
    EpochStart[EPOCHS_KEPT] epochs
    TopicSettings settings
    # waiting processes [R 6]
    shared_u64 waiters_log_end
    shared_u64 waiters_committed
    shared_u64 waiters_flushed
    # producers [R 2]
    shared_u64 producer_run       # first unit of the run << 8 | log2(units) + 1; 0: none
    shared_u32 producer_count     # live entries of the run
    uint32_t producers_changed    # since the last snapshot
    shared_i64 pending_snapshot   # offset + 1 of the newest snapshot that is written but not synced and renamed; 0: none
    uint64_t snapshot_writes      # how many were written: a snapshot is renamed only if it is the one that was synced
    # intent of a structural change that is in progress [R 4]
    shared_u64 intent
    int64_t[4] intent_arguments
    # recent batches
    shared_u32 recent_sequence    # odd during a change
    uint32_t recent_next
    RecentBatch[RECENT_KEPT] recent
    shared_u64 lock_recoveries
    shared_u64 lock_busy
    shared_u64 created_version    # metadata version that announced this incarnation
    shared_u64 truncations        # since load: a compaction that sees another number than at its start has read another log
    shared_i64 lost_tail_bytes    # that recovery cut off the log when it was loaded; 0: not known how many [R 13]
    shared_i64 lost_tail_end      # log end offset after that recovery
    shared_i64 gap_limit          # below it offsets may be missing, from it on none is [R 4]; INT64_MAX: not known yet
    shared_u8 log_dir
    uint8_t internal
    uint16_t topic_bytes
    uint8_t uncut                 # a failed write may have left bytes after the commit: cut them before anything else [R 4]
    shared_u8 begun_epoch         # BegunEpoch: whether `leader_epoch` began with this start [R 3]
    shared_u8 lost_tail           # LostTail, in a cluster [R 13]
    shared_u8 has_followers       # 1: the entries of `followers_at` are valid; 0: there are none [R 10.5]
    uint8_t[16] topic_id
    uint8_t[256] topic            # name of topic_bytes bytes, not terminated


cdef struct SlotViews:            # what the controller published, only in a cluster
    shared_u64 view_sequence      # low bit: which view is valid
    PartitionView[2] views


cdef Slot* slot_at(uint32_t index) noexcept nogil

# Two parts of a slot that most slots do not need are in separate arrays of the mapping, so that they take memory only where they are used:
# its views, and its MAX_FOLLOWERS entries for followers. The entries for followers are valid only if `has_followers` is set.
cdef SlotViews* views_at(const Slot* slot) noexcept nogil
cdef Follower* followers_at(const Slot* slot) noexcept nogil

# The slot's state; OFFLINE if its log directory is offline.
cdef uint32_t state_now(Slot* slot) noexcept nogil

# [R 1] Copy the current commit block, consistently.
cdef void read_commit(Slot* slot, Commit* out) noexcept nogil
