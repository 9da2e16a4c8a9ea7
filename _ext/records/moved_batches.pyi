from typing import Any, Final

from _typeshed import Incomplete

MOVE: Incomplete = ...
OPEN: Incomplete = ...
OPEN_OLD: Incomplete = ...

class FetchedBatch:
    kind: Final[int]
    records: Final[int]
    leader_epoch: Final[int]
    codec: Final[int]
    start: Final[int]
    size: Final[int]
    first_offset: Final[int]
    last_offset: Final[int]
    max_timestamp: Final[int]

class Walk:
    batches: Final[list[Any]]
    position: Final[int]
    consumed: Final[int]
    problem: Final[Any]
    leader_epoch: Final[int]

    def __init__(self, position: int) -> None: ...

class Renumbered:
    payload: Final[bytes]
    records: Final[int]
    first_offset: Final[int]
    base_timestamp: Final[int]
    max_timestamp: Final[int]

def stamp(data, start: int, size: int, producer_id: int, epoch: int, sequence: int, transactional: bool) -> None: ...
def walk(data, position: int, aborted=(), open_append_time: bool=False) -> Walk: ...
def checksum_matches(batch) -> bool: ...
def renumber(payload, count: int, base_offset: int, base_timestamp: int, position: int, append_time=None, last_offset_delta: int=...) -> Renumbered: ...
