from typing import Final


class FetchSessions:
    partitions: Final[int]
    max_sessions: Final[int]
    max_partitions: Final[int]
    evictions: Final[int]

    def __init__(self, ordinal: int, workers: int, max_sessions: int, max_partitions: int): ...
    def __len__(self): ...
    def grow_older(self, ms: int): ...
