from typing import TypedDict


class FetchSettings(TypedDict):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    throttled_max_bytes: int

class FetchSession(TypedDict):
    session_id: int
    epoch: int
