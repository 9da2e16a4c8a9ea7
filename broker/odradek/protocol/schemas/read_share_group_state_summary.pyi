# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 87
SCHEMA: Final[ApiSchema]

class Request(Message):
    class PartitionData(Message):
        partition: int
        leader_epoch: int
        def __init__(self, *, partition: int = ..., leader_epoch: int = ...) -> None: ...
    class ReadStateSummaryData(Message):
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    group_id: str
    topics: list[Request.ReadStateSummaryData]
    def __init__(self, *, group_id: str = ..., topics: list[Request.ReadStateSummaryData] = ...) -> None: ...
class Response(Message):
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        def __init__(self, *, partition: int = ..., error_code: int = ..., error_message: str | None = ..., state_epoch: int = ..., leader_epoch: int = ..., start_offset: int = ..., delivery_complete_count: int = ...) -> None: ...
    class ReadStateSummaryResult(Message):
        topic_id: bytes
        partitions: list[Response.PartitionResult]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionResult] = ...) -> None: ...
    results: list[Response.ReadStateSummaryResult]
    def __init__(self, *, results: list[Response.ReadStateSummaryResult] = ...) -> None: ...
