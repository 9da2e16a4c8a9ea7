from typing import Any
from typing import Final, TypedDict

FRAMING = 1
CRC = 2
OFFSET_BACK = 3
GAP = 4
EPOCH_BACK = 5
RECORDS = 6
HEADER = 7
RANGE = 8
INDEX_POSITION = 9
INDEX_OFFSET = 10
TIME_OFFSET = 11
TIME_STAMP = 12
EPOCH = 100

class SegmentCheck:
    position: Final[int]
    next_offset: Final[int]
    first_offset: Final[int]
    batches: Final[int]
    records: Final[int]
    max_timestamp: Final[int]
    formats: Final[int]
    codecs: Final[int]
    gaps_end: Final[int]
    finished: Final[bool]

    def __init__(self, descriptor: int, size: int, base_offset: int, gap_limit: int, index, times, buffer_bytes: int=1048576) -> None: ...
    ...
    def step(self, bytes_to_read: int) -> list[tuple[int, int, int, int]]: ...

class Note(TypedDict):
    kind: int
    position: int
    offset: int
    value: int
