from typing import Final


class Charges:
    version: Final[int]

    def __init__(self, resolve): ...
    def changed(self): ...
