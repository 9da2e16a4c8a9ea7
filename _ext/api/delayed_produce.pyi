from typing import Any
from typing import Final

from odradek._ext.api.produce_responses import ProduceResponses
from odradek._ext.api.purgatory import Purgatory, Waiter
from odradek._ext.api.refused_batches import RefusedBatches
from odradek._ext.net.connection import Pending
from odradek._ext.shm.topics import TopicDirectory


class ProduceDelays:
    def __init__(self, topics: TopicDirectory, purgatory: Purgatory, offload, retry, ask, prepare, max_opened_bytes: int, responses: ProduceResponses, refused: RefusedBatches) -> None: ...

class DelayedProduce(Pending):
    large_next: Final[bool]
    executed: Final[bool]
    tries: Final[int]
    questions: Final[int]
    deadline_ms: Final[int]
    patience_ms: Final[int]

    ...
    def step(self) -> bool: ...
    def open_large(self) -> bool: ...
    def worked(self) -> None: ...
    def again(self) -> None: ...
    def verified(self, number: int, codes) -> None: ...

class QuestionWaiter(Waiter): ...

class DelayedProduceWaiter(Waiter): ...
