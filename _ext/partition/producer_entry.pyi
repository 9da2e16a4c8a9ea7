from typing import TypedDict


class ProducerBatch(TypedDict):
    base_offset: int
    last_offset: int
    timestamp: int
    base_sequence: int
    last_sequence: int

class ProducerEntry(TypedDict):
    key: int
    ring: int
    last_timestamp: int
    transaction_first_offset: int
    verification: int
    last_marker_offset: int
    heard_ms: int
    owner: int
    open_following: int
    batches: list[ProducerBatch]
    queued_ms: int
    following: int
    preceding: int
    list_count: int
    open_preceding: int
    first_delta: int
    first_position: int
