from typing import Any
from typing import TypedDict


class RecordPrinter:
    def __init__(self, steps=(), when=str) -> None: ...
    ...
    @property
    def size(self) -> int: ...
    def set_partition(self, topic: str, partition: int) -> Any: ...
    def add(self, offset: int, timestamp: int, key, value, headers) -> None: ...
    def take(self) -> bytes: ...

class RecordView(TypedDict):
    offset: int
    timestamp: int
    key: int
    value: int
    headers: int
    headers_end: int
    key_bytes: int
    value_bytes: int
    header_count: int
    timestamp_type: int
