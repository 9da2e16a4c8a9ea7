from typing import TypedDict

from _typeshed import Incomplete

CRC_AT: Incomplete = ...
ATTRIBUTES_AT: Incomplete = ...
RECORDS_AT: Incomplete = ...

class BatchInfo(TypedDict):
    base_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    size: int
    partition_leader_epoch: int
    last_offset_delta: int
    base_sequence: int
    record_count: int
    crc: int
    attributes: int
    producer_epoch: int
    magic: int
    codec: int
    transactional: int
    control: int
    log_append_time: int
    framed: int
    keyless: int
    offset_delta_of_max_timestamp: int
    found_max_timestamp: int
    found_min_timestamp: int

def check(data, from_client: bool=True) -> tuple[int, BatchInfo | None]: ...
def check_decompressed(batch, payload) -> tuple[int, BatchInfo | None]: ...
