# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 7
SCHEMA: Final[ApiSchema]

class Request(Message):
    broker_id: int
    broker_epoch: int
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...
class Response(Message):
    class RemainingPartition(Message):
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    error_code: int
    remaining_partitions: list[Response.RemainingPartition]
    def __init__(self, *, error_code: int = ..., remaining_partitions: list[Response.RemainingPartition] = ...) -> None: ...
