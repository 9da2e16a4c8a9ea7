from typing import Final, TypedDict


class BufferPool:
    retained_limit: Final[int]
    retained_bytes: Final[int]
    lent_bytes: Final[int]

    def __init__(self, retained_limit: int): ...
    def __dealloc__(self): ...
    def trim(self, limit: int=0): ...

class Buffer(TypedDict):
    data: int
    capacity: int
    start: int
    end: int
