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

def flush(index: int, whole: bool=False, *, turn=None): ...
def flush_many(indexes, *, whole: bool=False, all_from: int=..., beat=None): ...
def run_jobs(lane: int, jobs, whole: bool, failed: list[Any], errors: list[Any]): ...
def flush_due(): ...
def rolled_since_flush(): ...
def to_close(): ...
def settle_many(indexes, beat=None): ...
