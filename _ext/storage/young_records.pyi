from typing import TypedDict

from odradek._ext.storage.lookup import FoundBatch


class Walk(TypedDict):
    position: int
    limit_timestamp: int
    from_offset: int
    next_offset: int
    start_offset: int
    by_index: bool
    undated: int

def first_in(log_fd: int, batch: FoundBatch, limit_timestamp: int, from_offset: int, find_compressed) -> tuple[int, bool] | None: ...
def first_young(log_fd: int, index_fd: int, index_entries: int, time_fd: int, time_entries: int, segment_base: int, size_limit: int, limit_timestamp: int, from_offset: int, find_compressed, beat) -> int | None: ...
