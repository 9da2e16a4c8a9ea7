from typing import Any
from collections import namedtuple
from typing import TypedDict

from odradek._ext.shm.faults import *

PassResult = namedtuple('PassResult', 'end_offset segments_before segments_after bytes_read bytes_written map_bytes_read records_read records_kept keyless keys map_full')

class MapTooSmallError(Exception): ...

class Compactor:
    def __init__(self, map_bytes: int, load_factor: float, buffer_bytes: int, decompress, compress, open_old, reduce_old, pace, swap_lock) -> None: ...
    ...
    def abort(self) -> None: ...
    def run(self, slot: int, *, incarnation: int, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int) -> PassResult: ...

class ReplacedSegment(TypedDict):
    base_offset: int
    size: int
    inode: int
