# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 84
SCHEMA: Final[ApiSchema]

class Request(Message):
    class PartitionData(Message):
        partition: int
        leader_epoch: int
        def __init__(self, *, partition: int = ..., leader_epoch: int = ...) -> None: ...
    class ReadStateData(Message):
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    group_id: str
    topics: list[Request.ReadStateData]
    def __init__(self, *, group_id: str = ..., topics: list[Request.ReadStateData] = ...) -> None: ...
class Response(Message):
    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        def __init__(self, *, first_offset: int = ..., last_offset: int = ..., delivery_state: int = ..., delivery_count: int = ...) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: list[Response.StateBatch]
        def __init__(self, *, partition: int = ..., error_code: int = ..., error_message: str | None = ..., state_epoch: int = ..., start_offset: int = ..., state_batches: list[Response.StateBatch] = ...) -> None: ...
    class ReadStateResult(Message):
        topic_id: bytes
        partitions: list[Response.PartitionResult]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionResult] = ...) -> None: ...
    results: list[Response.ReadStateResult]
    def __init__(self, *, results: list[Response.ReadStateResult] = ...) -> None: ...
