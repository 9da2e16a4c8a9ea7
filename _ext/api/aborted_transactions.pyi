from typing import Final


class AbortedTransactions:
    look_ups: Final[int]

    def __init__(self): ...
    def __dealloc__(self): ...
