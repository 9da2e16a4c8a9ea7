from typing import Any
from typing import Final, TypedDict


class TxnIndexSummary:
    entries: Final[int]

    ...
    @property
    def bytes(self) -> int: ...

class AbortedRange(TypedDict):
    first_offset: int
    last_offset: int
    stable_offset: int
