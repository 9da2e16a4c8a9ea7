"""The memory mapping that all processes of a broker share: header, process table, ready bitmaps, partition slots, producer
arena, meter pages. The header and the process table are here. Parts that have fewer readers have files of their own: a partition's
slot in slot.pxd, a meter page in meter_layout.pxd.

It contains offsets and no pointers, because each process maps the memfd at a different address.
``broker/odradek/shm/README.md`` numbers the rules of which process may write what under which lock; comments refer to these
rules as [R n].
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport shared_i16, shared_i32, shared_i64, shared_u32, shared_u64
from odradek._ext.shm.c_library cimport pthread_mutex_t


cdef enum:
    MAX_PROCESSES = 60            # one bit for each in a slot's waiter masks
    MAX_LOG_DIRS = 16
    MAX_BROKERS = 64
    CHANGE_RING = 8192
    ARENA_ORDERS = 29             # runs of producers have 2**0 to 2**28 units
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

cpdef enum LeaveState:            # of a broker that is to stop: whether it has moved its leaderships to other brokers
    LEAVE_NONE = 0
    LEAVE_REQUESTED = 1           # by the supervisor
    LEAVE_DONE = 2                # by the coordinator, also if it did not succeed

cpdef enum DiskState:             # of the file system under a log directory
    DISK_ROOMY = 0
    DISK_LOW = 1                  # below the soft limit: retention is accelerated
    DISK_FULL = 2                 # below the hard limit, or a write failed for lack of space: produce requests are refused

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
    shared_u64 pid                # written by the supervisor
    uint32_t kind                 # ProcessKind; written by the supervisor
    shared_u32 state              # ProcessState
    shared_u64 incarnation        # number of starts in this place; written by the supervisor
    int32_t event_fd              # inherited by every child
    shared_u32 event_pending      # 1 while a wake-up is pending; saves writes to event_fd
    shared_u64 confirmed_version  # newest metadata version that this process has applied [R 8]
    shared_u64 started_ms
    shared_u64 progress           # changes at least once a second while the loop runs; the supervisor watches it
    shared_u64[LANES] locked_slot  # by lane: slot + 1 while that thread holds a slot's mutex [R 5]
    shared_i64[LANES] locked_since_ms
    shared_i64 connections        # open data connections; the acceptor reads it
    shared_u64 connections_accepted
    shared_i64 kept_bytes         # memory that a worker keeps for idle connections
    # the request that is being executed: after a crash the log names it [R 7]
    shared_i16 request_key
    shared_i16 request_version
    shared_i32 request_correlation
    shared_u64 request_sequence   # 0 when no request is being executed
    uint8_t request_client[64]
    uint8_t request_peer[64]
    shared_u32 full_look          # set by the supervisor after a death: look at every slot that this process waits for [R 6]
    shared_u32 news               # 1: a wake-up had another reason than a slot that moved [R 6]


cdef struct BrokerEntry:          # another broker, or this one, as the controller published it [R 10]
    shared_i32 broker_id
    shared_u32 alive              # 0: free
    shared_i64 broker_epoch       # -1: not known
    uint16_t rack_bytes           # 0: no rack
    uint16_t endpoint_bytes
    uint8_t[2] spare
    uint16_t spare_bytes
    uint8_t[BROKER_TEXT_BYTES] text   # rack, then "NAME://host:port,..." in UTF-8


cdef struct BrokerTable:
    shared_u64 count
    BrokerEntry[MAX_BROKERS] entries


cdef struct ReplicationQuota:     # what was sent to, or fetched by, throttled replicas that were not in sync [R 11]
    shared_u64 total_bytes        # since the broker started
    shared_u64 began_ms           # monotonic time of the first bytes after all windows had been empty
    shared_u64[QUOTA_WINDOWS] windows  # the window of number n is at n % QUOTA_WINDOWS: n modulo 2**24, then 40 bits of bytes
    shared_u64 reassigned_bytes   # since the broker started, to or by replicas that a reassignment adds, whether throttled or not
    uint64_t[5] spare             # the quotas do not share cache lines with other fields


cdef struct LoadingDir:           # progress of opening the logs of one log directory; written by the loaders
    shared_u64 next_measured      # slots before it are measured, or another loader is measuring them
    shared_u64 next_opened
    shared_u64 logs               # logs that have a slot
    shared_u64 logs_done
    shared_u64 bytes_to_recover   # after the recovery points; final when all logs are measured
    shared_u64 bytes_recovered    # read, or cut off
    shared_u64 truncated_bytes
    shared_u64 truncated_logs
    shared_i64 began_ms           # monotonic; 0: not begun
    shared_i64 ended_ms


cdef struct Header:
    uint64_t magic
    uint64_t total_bytes
    uint64_t boot_id
    uint64_t max_slots
    shared_u64 slots_used         # high-water mark of the slots ever assigned
    shared_u64 metadata_version   # [R 8]
    shared_u64[CHANGE_RING] changes  # slot + 1 of the change that made version v, at v % CHANGE_RING
    shared_u64 brokers_version
    shared_u64 leaving            # LeaveState
    shared_u64 stopping
    shared_u64[3] fault           # armed fault point, countdown, signal (debug build)
    int32_t broker_id
    shared_i32 process_count
    shared_i32 log_dir_count
    int32_t spare
    int32_t[MAX_LOG_DIRS] log_dir_fds
    shared_u32[MAX_LOG_DIRS] log_dir_offline  # 1 once its device failed; never reset while the broker runs
    shared_u32[MAX_LOG_DIRS] disk_state  # DiskState; any process sets FULL, only the cleaner sets other values
    shared_u64 disk_full_noted    # one bit for each log directory in which a write found no space since the cleaner last took them
    shared_i64[MAX_LOG_DIRS] disk_free_bytes  # as last measured by the cleaner; -1: not measured yet
    shared_i64[MAX_LOG_DIRS] disk_total_bytes
    shared_u64[MAX_LOG_DIRS] disk_full_times  # how often the directory became FULL
    shared_u64 files_removed      # how often files of logs were unlinked or renamed for removal [R 4.9]
    shared_u64[5] file_fault      # armed file fault: errno, calls until then, times, kinds; calls counted (debug build)
    # producers [R 2]
    pthread_mutex_t arena_mutex
    uint64_t arena_units
    shared_u64 arena_used         # units of the taken runs
    uint64_t[ARENA_ORDERS] arena_free   # unit + 1 of the first free run of each order; 0: none
    uint64_t[2] hash_key          # random key, drawn when the mapping is created: for SipHash, in tables whose keys clients choose
    uint64_t producer_limit_of_client   # most entries of one owner
    uint32_t producer_limit_of_partition
    uint32_t producer_limit_of_client_in_partition
    int64_t producer_silent_ms    # a producer that was silent for this long may be evicted for another client's producer
    shared_u64[PRODUCER_EVENTS] producer_events
    shared_u64 owners_stale       # 1 if the counts by owner may be wrong
    shared_u64 next_producer_id   # allocated block of producer ids; the controller allocates it
    shared_u64 last_producer_id
    shared_u64 loading_begun      # every partition has its slot: loaders may take slots
    shared_u64 loading_total
    LoadingDir[MAX_LOG_DIRS] loading
    # cluster [R 10]
    uint64_t clustered            # 1: the metadata store is ZooKeeper, and other brokers may exist
    shared_u64 controller_epoch   # the largest that a request of a controller had
    shared_i64 controller_id      # -1: not known
    shared_i64 broker_epoch       # of the registration of this broker; -1: not registered
    shared_u64 published          # 1: the controller has sent the brokers and all partitions since the start
    int64_t lag_limit_ms          # replica.lag.time.max.ms
    # pauses of all processes, and of the coordinator alone [R 12]; times of CLOCK_BOOTTIME
    shared_i64 pause_limit_ms     # a longer time without a beat is a pause; 0: nobody looks for pauses
    shared_i64 beat_ms            # when the supervisor ran last
    shared_i64 paused_ms          # when the supervisor found the last pause, which had ended; 0: there was none
    shared_i64 confirmed_ms       # after this time the broker was registered, or led nothing
    shared_i64 session_id         # of the metadata store, for the successor of a coordinator; 0: none
    shared_i64 session_zxid       # the last transaction that the coordinator has seen
    uint64_t session_password_bytes
    uint8_t[64] session_password
    shared_i64 session_beat_ms    # when the coordinator's thread that keeps the session ran last
    shared_i64 session_paused_ms  # when that thread found that it had stood still, or that its predecessor had ended; 0: never
    uint64_t[6] spare_before_quotas
    ReplicationQuota[2] quotas    # of this broker as the leader, as a follower [R 11]
    BrokerTable[2] brokers        # brokers[brokers_version & 1] is valid
    uint8_t[64] cluster_id
    # offsets of the parts of the mapping
    uint64_t processes_at
    uint64_t bitmaps_at
    uint64_t bitmap_bytes         # of one process
    uint64_t slots_at
    uint64_t views_at
    uint64_t followers_at
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
    char* views                   # SlotViews of each slot
    char* followers               # MAX_FOLLOWERS entries of each slot
    shared_u64* arena_blocks      # one word for each unit: owner and order of the run that begins there
    shared_i32* owner_counts      # number of producers of each owner
    char* arena
    void* meter                   # MeterPage of this process; NULL before `enter`
    int self                      # place of this process in the process table
    int memfd
    bint foreign                  # another broker's memory, mapped read-only
    bint self_wake                # a slot that this process itself waits for has moved [R 6]
    uint64_t loop_thread          # thread that called `enter`; it looks at `self_wake`
    QuotaLimit[2] quota_limits    # of `Header.quotas`


cdef Region* region() noexcept nogil
