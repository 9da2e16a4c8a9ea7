from typing import Any
from typing import Final, TypedDict


class BufferPool:
    retained_limit: Final[int]
    retained_bytes: Final[int]
    lent_bytes: Final[int]

    def __init__(self, retained_limit: int) -> None: ...
    ...
    def trim(self, limit: int=0) -> None: ...

class Buffer(TypedDict):
    data: int
    capacity: int
    start: int
    end: int
