from typing import TypedDict


class CorruptLogError(Exception): ...

class FoundBatch(TypedDict):
    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int
    partition_leader_epoch: int

class FoundRecord(TypedDict):
    offset: int
    timestamp: int
    partition_leader_epoch: int

def find_in_records(batch, records, target_timestamp: int, from_offset: int) -> tuple[int, int] | None: ...
def time_of(log_fd: int, index_fd: int, index_entries: int, time_fd: int, time_entries: int, segment_base: int, size_limit: int, target_timestamp: int, from_offset: int, find_compressed) -> tuple[int, int, int] | None: ...
