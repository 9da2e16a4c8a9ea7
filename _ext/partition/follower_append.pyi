from typing import TypedDict

from odradek._ext.partition.log_writing import AppendItem
from odradek._ext.partition.slot_access import AppendResult


class Replicated(TypedDict):
    items: list[AppendItem]
    ready: list[AppendItem]
    count: int
    gap: int
    roll: bool
    checked: AppendResult
