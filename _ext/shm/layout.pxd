"""The memory mapping that all processes of a broker share: header, process table, ready bitmaps, partition slots, producer
arena, meter pages.

It contains offsets and no pointers, because each process maps the memfd at a different address.
``broker/odradek/shm/README.md`` numbers the rules of which process may write what under which lock; comments refer to these
rules as [R n].
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.c_library cimport pthread_mutex_t


cdef enum:
    MAX_PROCESSES = 60            # one bit for each in a slot's waiter masks
    MAX_LOG_DIRS = 16
    MAX_BROKERS = 64
    MAX_IN_SYNC = 16
    MAX_FOLLOWERS = 12
    MAX_TOPIC_BYTES = 249
    EPOCHS_KEPT = 8
    RECENT_KEPT = 8
    BATCHES_KEPT = 5
    CHANGE_RING = 8192
    ARENA_ORDERS = 29             # runs of producers have 2**0 to 2**28 units
    ARENA_UNIT_BYTES = 1024
    PRODUCER_OWNERS = 1 << 17
    LANES = 88                    # threads of a process that may hold a slot's mutex: 23 of `Lane`, and 64 replica fetchers
    BROKER_TEXT_BYTES = 952       # of the rack and the endpoints of a broker
    QUOTA_WINDOWS = 64            # more than the windows over which a rate is measured

cpdef enum ProcessKind:
    SUPERVISOR = 0
    WORKER = 1
    COORDINATOR = 2
    CLEANER = 3
    REPLICATOR = 4
    LOADER = 5
    REPORTER = 6

cpdef enum ProcessState:
    ABSENT = 0
    STARTING = 1
    SERVING = 2
    STOPPING = 3
    DEAD = 4

cpdef enum SlotState:
    SLOT_FREE = 0
    SLOT_LOADING = 1
    SLOT_ONLINE = 2
    SLOT_OFFLINE = 3              # its log directory or its log failed: KAFKA_STORAGE_ERROR
    SLOT_DELETED = 4              # reusable when every living worker has confirmed a newer metadata version [R 8.2]
    SLOT_REMOTE = 5               # leader and replicas are other brokers: only metadata

cpdef enum LeaveState:            # of a broker that is to stop: whether it has moved its leaderships to other brokers
    LEAVE_NONE = 0
    LEAVE_REQUESTED = 1           # by the supervisor
    LEAVE_DONE = 2                # by the coordinator, also if it did not succeed

cpdef enum DiskState:             # of the file system under a log directory
    DISK_ROOMY = 0
    DISK_LOW = 1                  # below the soft limit: retention is accelerated
    DISK_FULL = 2                 # below the hard limit, or a write failed for lack of space: produce requests are refused

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


cpdef enum ProducerEvent:         # what happened to producers because of a lack of memory; counted in the header [R 2]
    EVICTED_FOR_CLIENT = 0        # its client is at its limit and added another producer
    EVICTED_SILENT = 1            # the partition or the arena is full, and the producer was silent for a long time
    FORGOTTEN_EARLY = 2           # the arena is nearly full: expired before producer.id.expiration.ms
    DROPPED_AT_START = 3          # not restored at a start because the memory is too small
    REFUSED_CLIENT = 4            # batches refused because the client is at its limit
    REFUSED_PARTITION = 5         # the partition is full of other clients' producers
    REFUSED_ARENA = 6             # the arena is full
    PRODUCER_EVENTS = 7


cdef struct Process:              # one for each process of the broker; written by that process, except where noted
    uint64_t pid                  # written by the supervisor
    uint32_t kind                 # ProcessKind; written by the supervisor
    uint32_t state                # ProcessState
    uint64_t incarnation          # number of starts in this place; written by the supervisor
    int32_t event_fd              # inherited by every child
    uint32_t event_pending        # 1 while a wake-up is pending; saves writes to event_fd
    uint64_t confirmed_version    # newest metadata version that this process has applied [R 8]
    uint64_t started_ms
    uint64_t progress             # changes at least once a second while the loop runs; the supervisor watches it
    uint64_t[LANES] locked_slot   # by lane: slot + 1 while that thread holds a slot's mutex [R 5]
    int64_t[LANES] locked_since_ms
    int64_t connections           # open data connections; the acceptor reads it
    uint64_t connections_accepted
    int64_t kept_bytes            # memory that a worker keeps for idle connections
    # the request that is being executed: after a crash the log names it [R 7]
    int16_t request_key
    int16_t request_version
    int32_t request_correlation
    uint64_t request_sequence     # 0 when no request is being executed
    uint8_t request_client[64]
    uint8_t request_peer[64]
    uint64_t full_look            # set by the supervisor after a death: look at every slot that this process waits for [R 6]


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
    int32_t broker_id             # -1: free
    int32_t candidate             # 1: at its last fetch it could join the in-sync set, and it was not proposed since
    int64_t broker_epoch
    int64_t candidate_epoch       # broker epoch of the fetch that set `candidate`; -1: the request had none. AlterPartition sends it
    int64_t log_end_offset
    int64_t log_start_offset
    int64_t last_fetch_ms         # monotonic; 0: it has not fetched in this leader epoch
    int64_t caught_up_ms          # monotonic time at which it last had every record of the leader; 0: not in this leader epoch
    int64_t leader_end_at_fetch   # log end offset of the leader at its last fetch


cdef struct EpochStart:
    int32_t epoch
    int32_t spare
    int64_t start_offset


cdef struct PartitionView:        # what the controller published about a partition: clients are answered from it [R 10]
    uint32_t offline              # bit i: the replica replicas[i] is offline
    int32_t leader_id             # -1: no leader; -2: the topic is being deleted
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t replica_count
    int32_t in_sync_count
    int32_t[MAX_IN_SYNC] replicas
    int32_t[MAX_IN_SYNC] in_sync


cdef struct RecentBatch:          # answers reads at the tail without a system call
    int64_t base_offset
    int64_t last_offset
    int64_t position
    int64_t segment_base
    int64_t max_timestamp


cdef struct Slot:
    pthread_mutex_t mutex         # process-shared, robust; initialised once in the life of the mapping [R 5, R 8]
    uint32_t mutex_ready
    uint32_t state                # SlotState
    uint32_t incarnation          # changes whenever the slot is given to another partition
    uint32_t role                 # Role
    uint64_t generation           # changes with every roll, truncation, deletion, swap, log start change; may contain SWAP_UNDER_WAY [R 4]
    uint64_t sequence             # low bit: which commit block is valid [R 1]
    Commit[2] commits
    # what was applied to the state by redo of the log [R 1]
    int64_t applied_base
    int64_t applied_position
    int64_t first_unstable_offset  # first offset of the oldest open transaction, -1 if none; see `unstable_sequence`
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t flushed_offset        # every record before it is on the device
    int64_t recovery_point        # the value last written to the checkpoint
    int64_t flushed_ms            # CLOCK_MONOTONIC time at which `flushed_offset` was last advanced
    uint64_t flusher              # serial << 8 | process index + 2 of the only flusher, 0 if none; a truncation clears it
    int64_t synced_base           # active segment when all files and directory entries were last synced, -1: unknown
    int64_t synced_end            # log end offset at that time; later records are synced only up to `flushed_offset`
    uint64_t flushes              # how often `flushed_offset` was advanced
    # open transactions [R 2.10]
    uint32_t unstable_sequence    # odd during a change of `first_unstable_offset` and of the two fields below
    uint32_t spare_unstable
    int64_t unstable_base         # segment with the batch that begins at `first_unstable_offset`, -1 if not known
    int64_t unstable_position     # of that batch in the segment's file
    int64_t newest_abort_offset   # not below the largest last offset in any transaction index of the log, -1 if there is no entry
    # Transactions whose markers the high watermark has not passed: the smallest first offset (-1: none), and the largest offset of
    # a marker. [0] holds the last stable offset until the high watermark has passed its last marker; later ones wait in [1].
    int64_t[2] unreplicated_first
    int64_t[2] unreplicated_last
    # leadership [R 3]
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t leader_id
    int32_t partition
    int32_t in_sync_count
    int32_t replica_count
    int32_t max_in_sync_count
    int32_t epoch_count
    int32_t[MAX_IN_SYNC] in_sync
    int32_t[MAX_IN_SYNC] max_in_sync
    int32_t[MAX_IN_SYNC] replicas
    uint32_t adding               # bit i: a reassignment adds replicas[i]
    uint32_t removing             # bit i: a reassignment removes replicas[i]
    int32_t controller_epoch      # of the controller that assigned the role
    uint32_t recovering           # 1: the leader was elected uncleanly and has not reported its recovery (LeaderRecoveryState)
    int64_t leader_epoch_start    # log end offset when this broker became the leader in `leader_epoch`; -1: it is not the leader
    uint32_t in_sync_state        # InSyncState
    uint32_t in_sync_wanted       # 1: a follower may join the in-sync set; the coordinator clears it before it looks
    uint64_t in_sync_serial       # number of proposals; the response to an older proposal is ignored
    int64_t in_sync_since_ms      # monotonic time of the proposal that is under way
    int32_t[MAX_IN_SYNC] proposed  # the in-sync set that is proposed, for the successor of a coordinator
    int32_t proposed_count
    uint32_t epochs_sequence      # odd during a change of `epochs` [R 3]
    int64_t fetch_error           # of a follower: Kafka's error code for which its fetcher does not fetch it, or -errno; 0: none
    int64_t fetch_lag             # of a follower: committed records of the leader that the log lacked at the last response; -1: none yet
    int32_t role_epoch            # leader epoch of the role; -1: none was assigned since the start, or an assignment is under way
    int32_t led_since             # leader epoch in which this broker began to lead, without interruption since, if it leads [R 10.6]
    uint64_t view_sequence        # low bit: which view is valid
    PartitionView[2] views        # only in a cluster
    Follower[MAX_FOLLOWERS] followers
    EpochStart[EPOCHS_KEPT] epochs
    TopicSettings settings
    # waiting processes [R 6]
    uint64_t waiters_log_end
    uint64_t waiters_committed
    uint64_t waiters_flushed
    # producers [R 2]
    uint64_t producer_run         # first unit of the run << 8 | log2(units) + 1; 0: none
    uint32_t producer_count       # live entries of the run
    uint32_t producers_changed    # since the last snapshot
    int64_t pending_snapshot      # offset + 1 of the newest snapshot that is written but not synced and renamed; 0: none
    uint64_t snapshot_writes      # how many were written: a snapshot is renamed only if it is the one that was synced
    # intent of a structural change that is in progress [R 4]
    uint64_t intent
    int64_t[4] intent_arguments
    # recent batches
    uint32_t recent_sequence      # odd during a change
    uint32_t recent_next
    RecentBatch[RECENT_KEPT] recent
    uint64_t lock_recoveries
    uint64_t lock_busy
    uint64_t created_version      # metadata version that announced this incarnation
    uint64_t truncations          # since load: a compaction that sees another number than at its start has read another log
    int64_t lost_tail_bytes       # that recovery cut off the log when it was loaded; 0: not known how many [R 13]
    int64_t lost_tail_end         # log end offset after that recovery
    int64_t gap_limit             # below it offsets may be missing, from it on none is [R 4]; INT64_MAX: not known yet
    uint8_t log_dir
    uint8_t internal
    uint16_t topic_bytes
    uint8_t uncut                 # a failed write may have left bytes after the commit: cut them before anything else [R 4]
    uint8_t begun_epoch           # BegunEpoch: whether `leader_epoch` began with this start [R 3]
    uint8_t lost_tail             # LostTail, in a cluster [R 13]
    uint8_t spare
    uint8_t[16] topic_id
    uint8_t[256] topic            # name of topic_bytes bytes, not terminated


cdef struct BrokerEntry:          # another broker, or this one, as the controller published it [R 10]
    int32_t broker_id
    uint32_t alive                # 0: free
    int64_t broker_epoch          # -1: not known
    uint16_t rack_bytes           # 0: no rack
    uint16_t endpoint_bytes
    uint8_t[2] spare
    uint16_t spare_bytes
    uint8_t[BROKER_TEXT_BYTES] text   # rack, then "NAME://host:port,..." in UTF-8


cdef struct BrokerTable:
    uint64_t count
    BrokerEntry[MAX_BROKERS] entries


cdef struct ReplicationQuota:     # what was sent to, or fetched by, throttled replicas that were not in sync [R 11]
    uint64_t total_bytes          # since the broker started
    uint64_t began_ms             # monotonic time of the first bytes after all windows had been empty
    uint64_t[QUOTA_WINDOWS] windows   # the window of number n is at n % QUOTA_WINDOWS: n modulo 2**24, then 40 bits of bytes
    uint64_t reassigned_bytes     # since the broker started, to or by replicas that a reassignment adds, whether throttled or not
    uint64_t[5] spare             # the quotas do not share cache lines with other fields


cdef struct LoadingDir:           # progress of opening the logs of one log directory; written by the loaders
    uint64_t next_measured        # slots before it are measured, or another loader is measuring them
    uint64_t next_opened
    uint64_t logs                 # logs that have a slot
    uint64_t logs_done
    uint64_t bytes_to_recover     # after the recovery points; final when all logs are measured
    uint64_t bytes_recovered      # read, or cut off
    uint64_t truncated_bytes
    uint64_t truncated_logs
    int64_t began_ms              # monotonic; 0: not begun
    int64_t ended_ms


cdef struct Header:
    uint64_t magic
    uint64_t total_bytes
    uint64_t boot_id
    uint64_t max_slots
    uint64_t slots_used           # high-water mark of the slots ever assigned
    uint64_t metadata_version     # [R 8]
    uint64_t[CHANGE_RING] changes  # slot + 1 of the change that made version v, at v % CHANGE_RING
    uint64_t brokers_version
    uint64_t leaving              # LeaveState
    uint64_t stopping
    uint64_t[3] fault             # armed fault point, countdown, signal (debug build)
    int32_t broker_id
    int32_t process_count
    int32_t log_dir_count
    int32_t spare
    int32_t[MAX_LOG_DIRS] log_dir_fds
    uint32_t[MAX_LOG_DIRS] log_dir_offline  # 1 once its device failed; never reset while the broker runs
    uint32_t[MAX_LOG_DIRS] disk_state  # DiskState; any process sets FULL, only the cleaner sets other values
    uint64_t disk_full_noted      # one bit for each log directory in which a write found no space since the cleaner last took them
    int64_t[MAX_LOG_DIRS] disk_free_bytes   # as last measured by the cleaner; -1: not measured yet
    int64_t[MAX_LOG_DIRS] disk_total_bytes
    uint64_t[MAX_LOG_DIRS] disk_full_times  # how often the directory became FULL
    uint64_t files_removed        # how often files of logs were unlinked or renamed for removal [R 4.9]
    uint64_t[5] file_fault        # armed file fault: errno, calls until then, times, kinds; calls counted (debug build)
    # producers [R 2]
    pthread_mutex_t arena_mutex
    uint64_t arena_units
    uint64_t arena_used           # units of the taken runs
    uint64_t[ARENA_ORDERS] arena_free   # unit + 1 of the first free run of each order; 0: none
    uint64_t[2] hash_key          # random key, drawn when the mapping is created: for SipHash, in tables whose keys clients choose
    uint64_t producer_limit_of_client   # most entries of one owner
    uint32_t producer_limit_of_partition
    uint32_t producer_limit_of_client_in_partition
    int64_t producer_silent_ms    # a producer that was silent for this long may be evicted for another client's producer
    uint64_t[PRODUCER_EVENTS] producer_events
    uint64_t owners_stale         # 1 if the counts by owner may be wrong
    uint64_t next_producer_id     # allocated block of producer ids; the controller allocates it
    uint64_t last_producer_id
    uint64_t loading_begun       # every partition has its slot: loaders may take slots
    uint64_t loading_total
    LoadingDir[MAX_LOG_DIRS] loading
    # cluster [R 10]
    uint64_t clustered            # 1: the metadata store is ZooKeeper, and other brokers may exist
    uint64_t controller_epoch     # the largest that a request of a controller had
    int64_t controller_id         # -1: not known
    int64_t broker_epoch          # of the registration of this broker; -1: not registered
    uint64_t published            # 1: the controller has sent the brokers and all partitions since the start
    int64_t lag_limit_ms          # replica.lag.time.max.ms
    # pauses of all processes, and of the coordinator alone [R 12]; times of CLOCK_BOOTTIME
    int64_t pause_limit_ms        # a longer time without a beat is a pause; 0: nobody looks for pauses
    int64_t beat_ms               # when the supervisor ran last
    int64_t paused_ms             # when the supervisor found the last pause, which had ended; 0: there was none
    int64_t confirmed_ms          # after this time the broker was registered, or led nothing
    int64_t session_id            # of the metadata store, for the successor of a coordinator; 0: none
    int64_t session_zxid          # the last transaction that the coordinator has seen
    uint64_t session_password_bytes
    uint8_t[64] session_password
    int64_t session_beat_ms       # when the coordinator's thread that keeps the session ran last
    int64_t session_paused_ms     # when that thread found that it had stood still, or that its predecessor had ended; 0: never
    uint64_t[6] spare_before_quotas
    ReplicationQuota[2] quotas    # of this broker as the leader, as a follower [R 11]
    BrokerTable[2] brokers        # brokers[brokers_version & 1] is valid
    uint8_t[64] cluster_id
    # offsets of the parts of the mapping
    uint64_t processes_at
    uint64_t bitmaps_at
    uint64_t bitmap_bytes         # of one process
    uint64_t slots_at
    uint64_t arena_blocks_at
    uint64_t owners_at
    uint64_t arena_at
    uint64_t meters_at            # one MeterPage for each place of the process table [R 9]


cdef struct QuotaLimit:           # the limit of a rate, as this process has taken it over
    bint limited
    int64_t rate                  # bytes per second
    int64_t window_ms             # length of a window
    int64_t windows               # number of windows, less than QUOTA_WINDOWS
    int64_t since_ms              # monotonic time of the last change of the rate
    int64_t sharers               # number of processes or threads that may find the same room


cdef struct Region:               # this process's view; not shared
    char* base
    Header* header
    Process* processes
    char* slots
    uint64_t* arena_blocks        # one word for each unit: owner and order of the run that begins there
    int32_t* owner_counts         # number of producers of each owner
    char* arena
    void* meter                   # MeterPage of this process; NULL before `enter`
    int self                      # place of this process in the process table
    int memfd
    bint foreign                  # another broker's memory, mapped read-only
    bint self_wake                # a slot that this process itself waits for has moved [R 6]
    unsigned long loop_thread     # thread that called `enter`; it looks at `self_wake`
    QuotaLimit[2] quota_limits    # of `Header.quotas`


cdef Region* region() noexcept nogil
cdef Slot* slot_at(uint32_t index) noexcept nogil

# The slot's state; OFFLINE if its log directory is offline.
cdef uint32_t state_now(Slot* slot) noexcept nogil

# [R 1] Copy the current commit block, consistently.
cdef void read_commit(Slot* slot, Commit* out) noexcept nogil

# Time
cdef int64_t now_ms() noexcept nogil
cdef int64_t monotonic_ms() noexcept nogil

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    static inline int64_t coarse_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    """
    int64_t coarse_ms() noexcept nogil      # like monotonic_ms, up to a few ms late, for a tenth of the cost
