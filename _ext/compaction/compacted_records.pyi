from typing import TypedDict


class RecordKey(TypedDict):
    key: int
    key_bytes: int
    offset_delta: int
    timestamp_delta: int
    tombstone: bool
