from typing import NamedTuple

from odradek._ext.shm.slot import LostTail


class LostRecords(NamedTuple):
    state: LostTail
    lost_bytes: int
    log_end_offset: int

def lost_tail(index: int) -> LostRecords: ...
