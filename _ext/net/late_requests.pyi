from typing import TypedDict


class Standstill(TypedDict):
    beat_ms: int
    resumed_ms: int

def unawaited(request: bytes) -> bool: ...
