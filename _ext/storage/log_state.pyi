from typing import Any, TypedDict


class Event(TypedDict):
    code: int
    kind: int
    base_offset: int
    offset: int
    position: int
    lost_bytes: int

class Segment(TypedDict):
    base_offset: int
    size: int
    files: int

class EpochEntry(TypedDict):
    epoch: int
    start_offset: int

class LoadedBatch(TypedDict):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int

class LoadedProducer(TypedDict):
    producer_id: int
    last_timestamp: int
    current_txn_first_offset: int
    coordinator_epoch: int
    producer_epoch: int
    batch_count: int
    last_offset: int
    replayed: bool
    batches: list[LoadedBatch]

class Array(TypedDict):
    items: Any
    count: int
    room: int
    item_bytes: int

class LogState(TypedDict):
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    base_offset: int
    size: int
    index_entries: int
    timeindex_entries: int
    txnindex_entries: int
    last_index_offset: int
    last_index_position: int
    last_timeindex_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    total_bytes: int
    first_open_txn_offset: int
    newest_abort_offset: int
    newest_end_offset: int
    scanned_bytes: int
    lost_bytes: int
    progress: int
    epochs_changed: bool
    snapshot_corrupt: bool
    snapshot_current: bool
    snapshots: int
    snapshot_wanted: bool
    producer_limit: int
    pruned_producers: int
    hash_key: list[int]
    has_gap_limit: bool
    shortened: bool
    gap_limit: int
    created_ms: int
    segments: Array
    epochs: Array
    producers: Array
    events: Array
    slots: Array
    changes_left: int
