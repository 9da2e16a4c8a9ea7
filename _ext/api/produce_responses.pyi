from typing import Any
from typing import Final

from odradek._ext.partition.flusher import Flusher


class ProduceResponses:
    flusher: Final[Flusher]

    def __init__(self, replicas=None) -> None: ...
    ...
    def take_refusals(self) -> tuple[int, str, int, str] | None: ...
