from typing import Any
from typing import Final, NamedTuple, TypedDict


class Followed(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    leader_id: int
    leader_epoch: int

class LogPosition(NamedTuple):
    log_start: int
    log_end: int
    high_watermark: int
    last_epoch: int

class FollowedSlots:
    version: Final[int]

    ...
    def look(self, at_all: bool=False) -> list[tuple[int, Followed | None]]: ...

class Seen(TypedDict):
    incarnation: int
    leader_id: int
    leader_epoch: int
    followed: int

def position_of(index: int, incarnation: int, leader_epoch: int) -> LogPosition | None: ...
def note_fetch_error(index: int, incarnation: int, leader_epoch: int, error: int) -> None: ...
