from typing import Any
from typing import Final

from odradek._ext.api.access import AccessControl
from odradek._ext.api.produce_responses import ProduceResponses
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.shm.topics import TopicDirectory


class ProduceHandler:
    responses: Final[ProduceResponses]
    verify_transactions: bool

    def __init__(self, topics: TopicDirectory, purgatory: Purgatory, offload, retry, ask, prepare, *, max_opened_bytes: int, max_partitions: int, replicas=None) -> None: ...
    ...
    def authorize(self, control: AccessControl) -> None: ...
