from typing import Any
from typing import Final


class AbortedTransactions:
    look_ups: Final[int]

    def __init__(self) -> None: ...
    ...
