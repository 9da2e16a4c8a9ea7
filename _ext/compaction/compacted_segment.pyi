from typing import TypedDict

from odradek._ext.storage.log_state import Array


class Output(TypedDict):
    descriptor: int
    source: int
    base_offset: int
    position: int
    buffer: int
    filled: int
    room: int
    started_writeback: int
    interval: int
    indexed_position: int
    max_timestamp: int
    max_timestamp_offset: int
    timeindexed_timestamp: int
    index: Array
    times: Array
    transactions: Array
