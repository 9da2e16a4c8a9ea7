from typing import TypedDict

from odradek._ext.shm.slot import EpochStart


class EpochRing(TypedDict):
    count: int
    complete: bool
    log_end_offset: int
    log_start_offset: int
    high_watermark: int
    entries: list[EpochStart]

def find_end_offset(index: int, epoch: int): ...
def epochs_with_ends(index: int): ...
def epoch_changes(index: int): ...
