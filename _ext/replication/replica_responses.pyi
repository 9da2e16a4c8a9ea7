from typing import TypedDict


class FetchTotals(TypedDict):
    responses: int
    records_bytes: int
    unknown: int

class FetchResponse(TypedDict):
    correlation_id: int
    error: int
    session_id: int
    busy: bool

class PartitionPart(TypedDict):
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging_epoch: int
    diverging_end: int
    size: int
    records: int
