from enum import IntEnum
from typing import TypedDict

from odradek._ext.shm.c_library import pthread_mutex_t
from odradek._ext.shm.partition_view import PartitionView


class SlotState(IntEnum):
    SLOT_FREE = ...
    SLOT_LOADING = ...
    SLOT_ONLINE = ...
    SLOT_OFFLINE = ...
    SLOT_DELETED = ...
    SLOT_REMOTE = ...

class BegunEpoch(IntEnum):
    EPOCH_KEPT = ...
    EPOCH_UNSTORED = ...
    EPOCH_STORED = ...

class LostTail(IntEnum):
    TAIL_COMPLETE = ...
    TAIL_LOST = ...
    TAIL_LOST_LED = ...

class Role(IntEnum):
    ROLE_NONE = ...
    ROLE_LEADER = ...
    ROLE_FOLLOWER = ...

class ThrottledSide(IntEnum):
    THROTTLED_LEADER = ...
    THROTTLED_FOLLOWER = ...

class InSyncState(IntEnum):
    IN_SYNC_COMMITTED = ...
    IN_SYNC_EXPANDING = ...
    IN_SYNC_SHRINKING = ...

class Commit(TypedDict):
    segment_base: int
    size: int
    log_end_offset: int
    index_entries: int
    timeindex_entries: int
    txnindex_entries: int
    rolls: int
    high_watermark: int
    high_watermark_base: int
    high_watermark_position: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    indexed_position: int
    timeindexed_timestamp: int
    timeindexed_offset: int
    created_ms: int

class TopicSettings(TypedDict):
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    retention_ms: int
    retention_bytes: int
    flush_messages: int
    flush_ms: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    file_delete_delay_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_millionths: int
    index_interval_bytes: int
    index_max_bytes: int
    max_message_bytes: int
    min_in_sync_replicas: int
    compression_level: int
    log_append_time: int
    compact: int
    delete_: int
    compression: int
    unclean_election: int
    no_down_conversion: int
    exact_retention: int
    throttled: int

class Follower(TypedDict):
    broker_id: int
    candidate: int
    broker_epoch: int
    candidate_epoch: int
    log_end_offset: int
    log_start_offset: int
    last_fetch_ms: int
    caught_up_ms: int
    leader_end_at_fetch: int

class EpochStart(TypedDict):
    epoch: int
    spare: int
    start_offset: int

class RecentBatch(TypedDict):
    base_offset: int
    last_offset: int
    position: int
    segment_base: int
    max_timestamp: int

class Slot(TypedDict):
    mutex: pthread_mutex_t
    mutex_ready: int
    state: int
    incarnation: int
    role: int
    generation: int
    sequence: int
    commits: list[Commit]
    applied_base: int
    applied_position: int
    first_unstable_offset: int
    last_stable_offset: int
    log_start_offset: int
    flushed_offset: int
    recovery_point: int
    flushed_ms: int
    flusher: int
    synced_base: int
    synced_end: int
    flushes: int
    unstable_sequence: int
    spare_unstable: int
    unstable_base: int
    unstable_position: int
    newest_abort_offset: int
    unreplicated_first: list[int]
    unreplicated_last: list[int]
    leader_epoch: int
    partition_epoch: int
    leader_id: int
    partition: int
    in_sync_count: int
    replica_count: int
    max_in_sync_count: int
    epoch_count: int
    in_sync: list[int]
    max_in_sync: list[int]
    replicas: list[int]
    adding: int
    removing: int
    controller_epoch: int
    recovering: int
    leader_epoch_start: int
    in_sync_state: int
    in_sync_wanted: int
    in_sync_serial: int
    in_sync_since_ms: int
    proposed: list[int]
    proposed_count: int
    epochs_sequence: int
    fetch_error: int
    fetch_lag: int
    role_epoch: int
    led_since: int
    epochs: list[EpochStart]
    settings: TopicSettings
    waiters_log_end: int
    waiters_committed: int
    waiters_flushed: int
    producer_run: int
    producer_count: int
    producers_changed: int
    pending_snapshot: int
    snapshot_writes: int
    intent: int
    intent_arguments: list[int]
    recent_sequence: int
    recent_next: int
    recent: list[RecentBatch]
    lock_recoveries: int
    lock_busy: int
    created_version: int
    truncations: int
    lost_tail_bytes: int
    lost_tail_end: int
    gap_limit: int
    log_dir: int
    internal: int
    topic_bytes: int
    uncut: int
    begun_epoch: int
    lost_tail: int
    has_followers: int
    topic_id: list[int]
    topic: list[int]

class SlotViews(TypedDict):
    view_sequence: int
    views: list[PartitionView]
