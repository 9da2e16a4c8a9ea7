from typing import Final, TypedDict


class TxnIndexSummary:
    entries: Final[int]

    def __dealloc__(self): ...
    @property
    def bytes(self): ...

class AbortedRange(TypedDict):
    first_offset: int
    last_offset: int
    stable_offset: int
