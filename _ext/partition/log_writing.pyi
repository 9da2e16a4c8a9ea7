from typing import TypedDict

from typing_extensions import TypeAlias

from odradek._ext.records.record_batch import BatchInfo
from odradek._ext.shm.faults import *

Unverified: TypeAlias = int

class AppendItem(TypedDict):
    data: int
    info: BatchInfo
    owner: int
    after_refused: int
    transaction_version: int
    trusted: int
    by_coordinator: int
    id_hash: int
    error: int
    duplicate: int
    appended: int
    room: int
    unverified: int
    place: int
    base_offset: int
    append_time: int
    log_start_offset: int

class AppendOutcome(TypedDict):
    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    error_number: int
    restart_at: int
