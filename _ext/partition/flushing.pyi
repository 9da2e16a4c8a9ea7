from typing import Any, TypedDict

from odradek._ext.shm.faults import *
from odradek._ext.shm.slot import Commit

BEAT_S = 0.5

class Flush(TypedDict):
    index: int
    incarnation: int
    word: int
    begin: int
    whole: bool
    synced: bool
    device_failed: bool
    vanished: bool
    result: int
    outcome: int
    commit: Commit

def flush(index: int, whole: bool=False, *, turn=None) -> bool: ...
def flush_many(indexes, *, whole: bool=False, all_from: int=..., beat=None) -> list[tuple[int, OSError]]: ...
def run_jobs(lane: int, jobs, whole: bool, failed: list[Any], errors: list[Any]) -> None: ...
def flush_due() -> list[int]: ...
def rolled_since_flush() -> list[int]: ...
def to_close() -> list[int]: ...
def settle_many(indexes, beat=None) -> dict[int, OSError]: ...
