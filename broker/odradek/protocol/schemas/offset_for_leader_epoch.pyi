# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 23
SCHEMA: Final[ApiSchema]

class Request(Message):
    class OffsetForLeaderPartition(Message):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., leader_epoch: int = ...) -> None: ...
    class OffsetForLeaderTopic(Message):
        topic: str
        partitions: list[Request.OffsetForLeaderPartition]
        def __init__(self, *, topic: str = ..., partitions: list[Request.OffsetForLeaderPartition] = ...) -> None: ...
    replica_id: int
    topics: list[Request.OffsetForLeaderTopic]
    def __init__(self, *, replica_id: int = ..., topics: list[Request.OffsetForLeaderTopic] = ...) -> None: ...
class Response(Message):
    class EpochEndOffset(Message):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(self, *, error_code: int = ..., partition: int = ..., leader_epoch: int = ..., end_offset: int = ...) -> None: ...
    class OffsetForLeaderTopicResult(Message):
        topic: str
        partitions: list[Response.EpochEndOffset]
        def __init__(self, *, topic: str = ..., partitions: list[Response.EpochEndOffset] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.OffsetForLeaderTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.OffsetForLeaderTopicResult] = ...) -> None: ...
