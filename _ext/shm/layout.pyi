from enum import IntEnum
from typing import Any, TypedDict

from odradek._ext.shm.c_library import pthread_mutex_t


class ProcessKind(IntEnum):
    SUPERVISOR = ...
    WORKER = ...
    COORDINATOR = ...
    CLEANER = ...
    REPLICATOR = ...
    LOADER = ...
    REPORTER = ...

class ProcessState(IntEnum):
    ABSENT = ...
    STARTING = ...
    SERVING = ...
    STOPPING = ...
    DEAD = ...

class LeaveState(IntEnum):
    LEAVE_NONE = ...
    LEAVE_REQUESTED = ...
    LEAVE_DONE = ...

class DiskState(IntEnum):
    DISK_ROOMY = ...
    DISK_LOW = ...
    DISK_FULL = ...

class ProducerEvent(IntEnum):
    EVICTED_FOR_CLIENT = ...
    EVICTED_SILENT = ...
    FORGOTTEN_EARLY = ...
    DROPPED_AT_START = ...
    REFUSED_CLIENT = ...
    REFUSED_PARTITION = ...
    REFUSED_ARENA = ...
    PRODUCER_EVENTS = ...

class Process(TypedDict):
    pid: int
    kind: int
    state: int
    incarnation: int
    event_fd: int
    event_pending: int
    confirmed_version: int
    started_ms: int
    progress: int
    locked_slot: list[int]
    locked_since_ms: list[int]
    connections: int
    connections_accepted: int
    kept_bytes: int
    request_key: int
    request_version: int
    request_correlation: int
    request_sequence: int
    request_client: list[int]
    request_peer: list[int]
    full_look: int
    news: int

class BrokerEntry(TypedDict):
    broker_id: int
    alive: int
    broker_epoch: int
    rack_bytes: int
    endpoint_bytes: int
    spare: list[int]
    spare_bytes: int
    text: list[int]

class BrokerTable(TypedDict):
    count: int
    entries: list[BrokerEntry]

class ReplicationQuota(TypedDict):
    total_bytes: int
    began_ms: int
    windows: list[int]
    reassigned_bytes: int
    spare: list[int]

class LoadingDir(TypedDict):
    next_measured: int
    next_opened: int
    logs: int
    logs_done: int
    bytes_to_recover: int
    bytes_recovered: int
    truncated_bytes: int
    truncated_logs: int
    began_ms: int
    ended_ms: int

class Header(TypedDict):
    magic: int
    total_bytes: int
    boot_id: int
    max_slots: int
    slots_used: int
    metadata_version: int
    changes: list[int]
    brokers_version: int
    leaving: int
    stopping: int
    fault: list[int]
    broker_id: int
    process_count: int
    log_dir_count: int
    spare: int
    log_dir_fds: list[int]
    log_dir_offline: list[int]
    disk_state: list[int]
    disk_full_noted: int
    disk_free_bytes: list[int]
    disk_total_bytes: list[int]
    disk_full_times: list[int]
    files_removed: int
    file_fault: list[int]
    arena_mutex: pthread_mutex_t
    arena_units: int
    arena_used: int
    arena_free: list[int]
    hash_key: list[int]
    producer_limit_of_client: int
    producer_limit_of_partition: int
    producer_limit_of_client_in_partition: int
    producer_silent_ms: int
    producer_events: list[int]
    owners_stale: int
    next_producer_id: int
    last_producer_id: int
    loading_begun: int
    loading_total: int
    loading: list[LoadingDir]
    clustered: int
    controller_epoch: int
    controller_id: int
    broker_epoch: int
    published: int
    lag_limit_ms: int
    pause_limit_ms: int
    beat_ms: int
    paused_ms: int
    confirmed_ms: int
    session_id: int
    session_zxid: int
    session_password_bytes: int
    session_password: list[int]
    session_beat_ms: int
    session_paused_ms: int
    spare_before_quotas: list[int]
    quotas: list[ReplicationQuota]
    brokers: list[BrokerTable]
    cluster_id: list[int]
    processes_at: int
    bitmaps_at: int
    bitmap_bytes: int
    slots_at: int
    views_at: int
    followers_at: int
    arena_blocks_at: int
    owners_at: int
    arena_at: int
    meters_at: int

class QuotaLimit(TypedDict):
    limited: bool
    rate: int
    window_ms: int
    windows: int
    since_ms: int
    sharers: int

class Region(TypedDict):
    base: bytes
    header: Header
    processes: Process
    slots: bytes
    views: bytes
    followers: bytes
    arena_blocks: int
    owner_counts: int
    arena: bytes
    meter: Any
    self: int
    memfd: int
    foreign: bool
    self_wake: bool
    loop_thread: int
    quota_limits: list[QuotaLimit]
