# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 83
SCHEMA: Final[ApiSchema]

class Request(Message):
    class PartitionData(Message):
        partition: int
        state_epoch: int
        start_offset: int
        def __init__(self, *, partition: int = ..., state_epoch: int = ..., start_offset: int = ...) -> None: ...
    class InitializeStateData(Message):
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    group_id: str
    topics: list[Request.InitializeStateData]
    def __init__(self, *, group_id: str = ..., topics: list[Request.InitializeStateData] = ...) -> None: ...
class Response(Message):
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class InitializeStateResult(Message):
        topic_id: bytes
        partitions: list[Response.PartitionResult]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionResult] = ...) -> None: ...
    results: list[Response.InitializeStateResult]
    def __init__(self, *, results: list[Response.InitializeStateResult] = ...) -> None: ...
