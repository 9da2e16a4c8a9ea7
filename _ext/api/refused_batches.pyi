from typing import TypedDict


class RefusedBatches:
    def __init__(self): ...

class Producer(TypedDict):
    id: int
    epoch: int
    base_sequence: int
