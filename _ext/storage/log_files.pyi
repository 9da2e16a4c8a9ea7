from typing import TypedDict


class SegmentFile(TypedDict):
    base_offset: int
    kind: int
    state: int
