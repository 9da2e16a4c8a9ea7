# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 86
SCHEMA: Final[ApiSchema]

class Request(Message):
    class PartitionData(Message):
        partition: int
        def __init__(self, *, partition: int = ...) -> None: ...
    class DeleteStateData(Message):
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    group_id: str
    topics: list[Request.DeleteStateData]
    def __init__(self, *, group_id: str = ..., topics: list[Request.DeleteStateData] = ...) -> None: ...
class Response(Message):
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class DeleteStateResult(Message):
        topic_id: bytes
        partitions: list[Response.PartitionResult]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionResult] = ...) -> None: ...
    results: list[Response.DeleteStateResult]
    def __init__(self, *, results: list[Response.DeleteStateResult] = ...) -> None: ...
