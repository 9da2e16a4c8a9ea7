from typing import Any
from typing import Final

from odradek._ext.api.delayed_fetch import DelayedFetch


class FetchSessions:
    partitions: Final[int]
    max_sessions: Final[int]
    max_partitions: Final[int]
    evictions: Final[int]

    def __init__(self, ordinal: int, workers: int, max_sessions: int, max_partitions: int) -> None: ...
    def __len__(self) -> int: ...
    def grow_older(self, ms: int) -> None: ...
    def end_refused(self, fetch: DelayedFetch) -> None: ...
