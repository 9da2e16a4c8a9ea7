from typing import Final

from odradek._ext.partition.flusher import Flusher


class ProduceResponses:
    flusher: Final[Flusher]

    def __init__(self, replicas=None): ...
    def __dealloc__(self): ...
    def take_refusals(self): ...
