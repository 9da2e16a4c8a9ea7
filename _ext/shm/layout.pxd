"""The one mapping that all processes of a broker share: header, process table, ready bitmaps, partition slots, producer
arena, meter pages.

Offsets only, no pointers: every process maps the memfd where it likes. The rules of who may write what, and under which
lock, are numbered in ``broker/odradek/shm/README.md``; comments here name them as [R n].
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass


cdef enum:
    MAX_PROCESSES = 60            # one bit each in a slot's waiter masks
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
    LANES = 24                    # threads of a process that take slots' mutexes: those of `Lane`, one for each log directory and four

cpdef enum ProcessKind:
    SUPERVISOR = 0
    WORKER = 1
    COORDINATOR = 2
    CLEANER = 3
    REPLICATOR = 4
    LOADER = 5
    METRICS = 6                   # the reporter

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
    SLOT_DELETED = 4              # waits until every process has confirmed a newer metadata version [R 8]
    SLOT_REMOTE = 5               # led and kept elsewhere: metadata only

cpdef enum DiskState:             # of the file system under a log directory
    DISK_ROOMY = 0
    DISK_LOW = 1                  # below the soft mark: retention is hastened
    DISK_FULL = 2                 # below the hard mark, or a write found no room: producers are refused

cpdef enum BegunEpoch:
    EPOCH_KEPT = 0                # the leader epoch is that of before the start
    EPOCH_UNSTORED = 1            # a new one, which the metadata store may not have yet
    EPOCH_STORED = 2

cpdef enum Role:
    ROLE_NONE = 0
    ROLE_LEADER = 1
    ROLE_FOLLOWER = 2


cpdef enum ProducerEvent:         # what happened to producers that found no room; counted in the header [R 2]
    EVICTED_FOR_CLIENT = 0        # its client is at its limit, and brought another
    EVICTED_SILENT = 1            # the partition or the arena is full, and nobody had used it for long
    FORGOTTEN_EARLY = 2           # the arena is nearly full: forgotten before producer.id.expiration.ms
    DROPPED_AT_START = 3          # the state that a start restored was too much
    REFUSED_CLIENT = 4            # batches refused because the client is at its limit
    REFUSED_PARTITION = 5         # the partition is full of producers of others
    REFUSED_ARENA = 6             # the arena is full
    PRODUCER_EVENTS = 7


cdef struct Process:              # one a process of the broker; written by its owner, except where said
    uint64_t pid                  # written by the supervisor
    uint32_t kind                 # ProcessKind; written by the supervisor
    uint32_t state                # ProcessState
    uint64_t incarnation          # counts the starts in this place; written by the supervisor
    int32_t event_fd              # inherited by every child
    uint32_t event_pending        # 1 while a wake-up is on its way; spares event_fd writes
    uint64_t confirmed_version    # newest metadata version that this process has taken over [R 8]
    uint64_t started_ms
    uint64_t progress             # moves at least once a second while the loop turns; the supervisor watches it
    uint64_t[LANES] locked_slot   # slot + 1 while that thread of it holds a slot's mutex [R 5]
    int64_t[LANES] locked_since_ms
    int64_t connections           # open data connections; the acceptor reads it
    uint64_t connections_accepted
    int64_t kept_bytes            # memory kept for idle connections, of a worker
    # the request at hand, so that a poisonous one is named after a crash [R 7]
    int16_t request_key
    int16_t request_version
    int32_t request_correlation
    uint64_t request_sequence     # 0 when idle
    uint8_t request_client[64]
    uint8_t request_peer[64]
    uint64_t full_look            # set by the supervisor after a death: look at everything you wait for [R 6]


cdef struct Commit:               # what one release-store of `Slot.sequence` publishes together [R 1]
    int64_t segment_base          # base offset of the active segment
    int64_t size                  # bytes of the active segment
    int64_t log_end_offset
    int32_t index_entries
    int32_t timeindex_entries
    int32_t txnindex_entries
    int32_t rolls                 # rolls since load: positions of different values are in different files
    int64_t high_watermark
    int64_t high_watermark_base   # segment that holds the high watermark, -1 if not known
    int64_t high_watermark_position
    int64_t first_timestamp       # of the active segment's first batch, -1 if empty
    int64_t max_timestamp         # of the active segment, -1 if none
    int64_t max_timestamp_offset
    int64_t indexed_position      # end of what the last entry of the offset index covers
    int64_t timeindexed_timestamp  # timestamp of the last entry of the time index, -1 if none
    int64_t timeindexed_offset
    int64_t created_ms            # wall clock when the segment was made


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
    int32_t compression_level     # of that codec
    uint8_t log_append_time       # message.timestamp.type
    uint8_t compact
    uint8_t delete_
    uint8_t compression           # 255: as the producer sent it
    uint8_t unclean_election
    uint8_t no_down_conversion    # message.downconversion.enable=false
    uint8_t exact_retention       # odradek.retention.exact
    uint8_t[1] spare


cdef struct Follower:
    int32_t broker_id             # -1: free
    int32_t spare
    int64_t broker_epoch
    int64_t log_end_offset
    int64_t log_start_offset
    int64_t last_fetch_ms
    int64_t caught_up_ms


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
    uint32_t mutex_ready
    uint32_t state                # SlotState
    uint32_t incarnation          # changes whenever the slot is given to another partition
    uint32_t role                 # Role
    uint64_t generation           # changes with every roll, truncation, deletion, swap, start offset; SWAP_UNDER_WAY [R 4]
    uint64_t sequence             # low bit: which commit block is valid [R 1]
    Commit[2] commits
    # applied from the log's redo [R 1]
    int64_t applied_base
    int64_t applied_position
    int64_t first_unstable_offset  # first offset of the oldest open transaction, -1 if none
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t flushed_offset        # everything before is on the device
    int64_t recovery_point        # as last written to the checkpoint
    int64_t flushed_ms            # when `flushed_offset` was advanced last, CLOCK_MONOTONIC
    uint64_t flusher              # serial << 8 | process index + 2 of the one flusher, 0 if none; a truncation clears it
    int64_t synced_base           # segment that was active when all files and names were synced last, -1: not known
    int64_t synced_end            # log end offset then; what came since is only synced as far as `flushed_offset` says
    uint64_t flushes              # how often `flushed_offset` was advanced
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
    Follower[MAX_FOLLOWERS] followers
    EpochStart[EPOCHS_KEPT] epochs
    TopicSettings settings
    # who waits [R 6]
    uint64_t waiters_log_end
    uint64_t waiters_committed
    uint64_t waiters_flushed
    # producers [R 2]
    uint64_t producer_run         # first unit of the run << 8 | log2(units) + 1; 0: none
    uint32_t producer_count       # living entries of the run
    uint32_t producers_changed    # since the last snapshot
    int64_t pending_snapshot      # offset + 1 of the newest snapshot that is written but not synced and renamed; 0: none
    uint64_t snapshot_writes      # how often one was written: what was synced before is what is renamed
    # intent of a structural change under way [R 4]
    uint64_t intent
    int64_t[4] intent_arguments
    # recent batches
    uint32_t recent_sequence      # odd while it changes
    uint32_t recent_next
    RecentBatch[RECENT_KEPT] recent
    uint64_t lock_recoveries
    uint64_t lock_busy
    uint64_t created_version      # metadata version that announced this incarnation
    uint64_t truncations          # since load: a compaction that saw another number worked on another log
    int64_t gap_limit             # offsets below it may be missing, at or above it none is [R 4]; INT64_MAX: not known yet
    uint8_t log_dir
    uint8_t internal
    uint16_t topic_bytes
    uint8_t uncut                 # a failed write may have left bytes behind the commit: cut before anything else [R 4]
    uint8_t begun_epoch           # BegunEpoch: whether `leader_epoch` began with this start [R 3]
    uint8_t[2] spare
    uint8_t[16] topic_id
    uint8_t[256] topic            # name, not terminated beyond topic_bytes


cdef struct LoadingDir:           # how far the opening of one log directory's logs is; written by the loaders
    uint64_t next_measured        # slots before it were measured, or another loader is at it
    uint64_t next_opened
    uint64_t logs                 # that have a slot
    uint64_t logs_done
    uint64_t bytes_to_recover     # behind the recovery points; known when all were measured
    uint64_t bytes_recovered      # read, or cut off
    uint64_t truncated_bytes
    uint64_t truncated_logs
    int64_t began_ms              # monotonic; 0 before
    int64_t ended_ms


cdef struct Header:
    uint64_t magic
    uint64_t total_bytes
    uint64_t boot_id
    uint64_t max_slots
    uint64_t slots_used           # high-water mark of slots ever given
    uint64_t metadata_version     # [R 8]
    uint64_t[CHANGE_RING] changes  # slot + 1 of the change that made version v, at v % CHANGE_RING
    uint64_t brokers_version
    uint64_t stopping
    uint64_t[3] fault             # armed fault point, countdown, signal (debug build)
    int32_t broker_id
    int32_t process_count
    int32_t log_dir_count
    int32_t spare
    int32_t[MAX_LOG_DIRS] log_dir_fds
    uint32_t[MAX_LOG_DIRS] log_dir_offline  # 1 once its device failed; never taken back while the broker runs
    uint32_t[MAX_LOG_DIRS] disk_state  # DiskState; set FULL by any process, everything else by the cleaner
    uint64_t disk_full_noted      # a bit a log directory in which a write found no room since the cleaner last looked
    int64_t[MAX_LOG_DIRS] disk_free_bytes   # as last seen by the cleaner; -1: not yet
    int64_t[MAX_LOG_DIRS] disk_total_bytes
    uint64_t[MAX_LOG_DIRS] disk_full_times  # how often the directory became FULL
    uint64_t files_removed        # how often files of logs were renamed to be removed, or unlinked [R 4.9]
    uint64_t[5] file_fault        # armed file fault: errno, calls yet, times, kinds; calls met (debug build)
    # producers [R 2]
    pthread_mutex_t arena_mutex
    uint64_t arena_units
    uint64_t arena_used           # units of the runs that are taken
    uint64_t[ARENA_ORDERS] arena_free   # unit + 1 of the first free run of each order; 0: none
    uint64_t[2] hash_key          # drawn when the mapping is made: of SipHash, for tables whose keys clients choose
    uint64_t producer_limit_of_client   # entries that one owner may have
    uint32_t producer_limit_of_partition
    uint32_t producer_limit_of_client_in_partition
    int64_t producer_silent_ms    # who was not heard of for so long may be evicted for another client's producer
    uint64_t[PRODUCER_EVENTS] producer_events
    uint64_t owners_stale         # 1 when the counts by owner may be off
    uint64_t next_producer_id     # allocated block, see controller
    uint64_t last_producer_id
    uint64_t loading_begun       # every partition has its slot: loaders may take them
    uint64_t loading_total
    LoadingDir[MAX_LOG_DIRS] loading
    uint64_t controller_epoch
    uint8_t[64] cluster_id
    # offsets of the parts
    uint64_t processes_at
    uint64_t bitmaps_at
    uint64_t bitmap_bytes         # of one process
    uint64_t slots_at
    uint64_t arena_blocks_at
    uint64_t owners_at
    uint64_t arena_at
    uint64_t meters_at            # a MeterPage for each place of the process table [R 9]


cdef struct Region:               # this process's view; not shared
    char* base
    Header* header
    Process* processes
    char* slots
    uint64_t* arena_blocks        # a word for each unit: whose run begins there, how large it is
    int32_t* owner_counts         # producers of each owner
    char* arena
    void* meter                   # own MeterPage; NULL before `enter`
    int self                      # own place in the process table
    int memfd
    bint foreign                  # another broker's, mapped to be read
    bint self_wake                # a slot that this very process waits for has moved [R 6]
    unsigned long loop_thread     # that called `enter`: the one that looks at `self_wake`


cdef Region* region() noexcept nogil
cdef Slot* slot_at(uint32_t index) noexcept nogil

# The slot's state, OFFLINE also where its log directory is.
cdef uint32_t state_now(Slot* slot) noexcept nogil

# [R 1] a consistent copy of the current commit block
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
    int64_t coarse_ms() noexcept nogil      # as monotonic_ms, up to a few ms behind it, for a tenth of its price
