# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 85
SCHEMA: Final[ApiSchema]

class Request(Message):
    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        def __init__(self, *, first_offset: int = ..., last_offset: int = ..., delivery_state: int = ..., delivery_count: int = ...) -> None: ...
    class PartitionData(Message):
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        state_batches: list[Request.StateBatch]
        def __init__(self, *, partition: int = ..., state_epoch: int = ..., leader_epoch: int = ..., start_offset: int = ..., delivery_complete_count: int = ..., state_batches: list[Request.StateBatch] = ...) -> None: ...
    class WriteStateData(Message):
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    group_id: str
    topics: list[Request.WriteStateData]
    def __init__(self, *, group_id: str = ..., topics: list[Request.WriteStateData] = ...) -> None: ...
class Response(Message):
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class WriteStateResult(Message):
        topic_id: bytes
        partitions: list[Response.PartitionResult]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionResult] = ...) -> None: ...
    results: list[Response.WriteStateResult]
    def __init__(self, *, results: list[Response.WriteStateResult] = ...) -> None: ...
