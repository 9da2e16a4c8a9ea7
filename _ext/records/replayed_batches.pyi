from collections.abc import Sequence
from typing import TypedDict


class Record(TypedDict):
    offset: int
    key: int
    value: int
    key_bytes: int
    value_bytes: int

def read_batches(data: bytes, at: int, start: int, end: int) -> tuple[int, int, list[tuple[list[tuple[bytes, bytes | None]], int, Sequence[int], bool | None]]]: ...
