from typing import NamedTuple


class FollowerFacts(NamedTuple):
    broker_id: int
    broker_epoch: int
    log_end_offset: int
    log_start_offset: int
    fetched_before_ms: int
    caught_up_before_ms: int

def low_watermark(index: int, incarnation: int, leader_epoch: int) -> int | None: ...
def followers_of(index: int) -> list[FollowerFacts]: ...
