from enum import IntEnum
from typing import Any, TypedDict


class QuotaKind(IntEnum):
    QUOTA_PRODUCE = ...
    QUOTA_FETCH = ...
    QUOTA_REQUEST = ...

class QuotaCell(TypedDict):
    word: int
    last_ms: int

class QuotaBucket(TypedDict):
    key: int
    named: int
    used_ms: int
    limit_bits: int
    throttled_ms: int
    throttled_until_ms: int
    throttles: int
    total: int
    kind: int
    owner: int
    user_bytes: int
    client_bytes: int
    spare: int
    user: list[int]
    client: list[int]

class QuotaTable(TypedDict):
    windows: int
    window_ms: int
    stride: int
    overflows: int
    evicted: int
    expired: int
    overflow_logged: int
    throttles: list[int]
    used_groups: list[int]

class QuotaUse(TypedDict):
    key: int
    limit: float
    bucket: int
    owner: int

class QuotaRate(TypedDict):
    total: float
    elapsed_ms: float

def set_windows(windows, window_seconds) -> None: ...
def free_unused(unused_ms: int, now_ms=None) -> int: ...
def counters() -> dict[str, Any]: ...
def first_overflow() -> bool: ...
def count_throttled_connection() -> None: ...
def buckets(now_ms=None) -> list[tuple[int, bytes | None, bytes | None, float, float, int, int, int, int]]: ...
