from typing import TypedDict

from odradek._ext.partition.log_writing import AppendItem
from odradek._ext.partition.slot_access import AppendResult


class FollowerPosition(TypedDict):
    log_end_offset: int
    log_start_offset: int
    high_watermark: int
    last_epoch: int
    leader_epoch: int
    leader_id: int
    incarnation: int
    role: int
    state: int
    on_device: bool

class Replicated(TypedDict):
    items: list[AppendItem]
    ready: list[AppendItem]
    count: int
    gap: int
    roll: bool
    checked: AppendResult
