from typing import TypedDict

from odradek._ext.storage.log_state import Array


class Walk(TypedDict):
    check_crc: bool
    replay: bool
    index_interval: int
    valid_bytes: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    last_index_offset: int
    last_index_position: int
    last_time: int
    index: Array
    times: Array
    txns: Array
