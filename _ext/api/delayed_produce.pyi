from typing import Final

from odradek._ext.api.produce_responses import ProduceResponses
from odradek._ext.api.purgatory import Purgatory, Waiter
from odradek._ext.api.refused_batches import RefusedBatches
from odradek._ext.net.connection import Pending


class ProduceDelays:
    def __init__(self, purgatory: Purgatory, retry, prepare, max_opened_bytes: int, responses: ProduceResponses, refused: RefusedBatches): ...

class DelayedProduce(Pending):
    large_next: Final[bool]
    executed: Final[bool]
    tries: Final[int]
    deadline_ms: Final[int]
    patience_ms: Final[int]

    def __dealloc__(self): ...
    def step(self): ...
    def open_large(self): ...
    def worked(self): ...
    def again(self): ...

class DelayedProduceWaiter(Waiter): ...
