from typing import TypedDict

from odradek._ext.shm.slot import EpochStart


class EpochRing(TypedDict):
    count: int
    complete: bool
    log_end_offset: int
    log_start_offset: int
    high_watermark: int
    entries: list[EpochStart]

def find_end_offset(index: int, epoch: int) -> tuple[int, int] | None: ...
def epochs_with_ends(index: int) -> tuple[list[tuple[int, int]], int, int, int] | None: ...
def epoch_changes(index: int) -> int: ...
