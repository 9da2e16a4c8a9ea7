from typing import Any
from typing import TypedDict

from odradek._ext.shm.metering import ReaderPlace


class FetchPartition:
    ...

class FetchContext:
    def __init__(self) -> None: ...

class PartitionRequest(TypedDict):
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    serial: int

class PartitionState(TypedDict):
    generation: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    ready_bytes: int
    log_end_offset: int
    diverging_end: int
    diverging_epoch: int
    preferred_replica: int
    current_leader: int
    current_leader_epoch: int
    error: int
    included: bool

class PlannedRecords(TypedDict):
    position: int
    length: int
    limit: int
    end: int
    extent: int
    allowed: int

class ExpectedPlace(TypedDict):
    offset: int
    base: int
    position: int
    generation: int

class PassedOffsets(TypedDict):
    asked: int
    next: int
    generation: int

class SentState(TypedDict):
    high_watermark: int
    log_start_offset: int
    valid: bool

class ReadProgress(TypedDict):
    served: bool
    end: int
    limit: int
    uncounted_records: int
    place: ReaderPlace
