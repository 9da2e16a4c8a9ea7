# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 2
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ListOffsetsPartition(Message):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        max_num_offsets: int
        def __init__(self, *, partition_index: int = ..., current_leader_epoch: int = ..., timestamp: int = ..., max_num_offsets: int = ...) -> None: ...
    class ListOffsetsTopic(Message):
        name: str
        partitions: list[Request.ListOffsetsPartition]
        def __init__(self, *, name: str = ..., partitions: list[Request.ListOffsetsPartition] = ...) -> None: ...
    replica_id: int
    isolation_level: int
    topics: list[Request.ListOffsetsTopic]
    timeout_ms: int
    def __init__(self, *, replica_id: int = ..., isolation_level: int = ..., topics: list[Request.ListOffsetsTopic] = ..., timeout_ms: int = ...) -> None: ...
class Response(Message):
    class ListOffsetsPartitionResponse(Message):
        partition_index: int
        error_code: int
        old_style_offsets: list[int]
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., old_style_offsets: list[int] = ..., timestamp: int = ..., offset: int = ..., leader_epoch: int = ...) -> None: ...
    class ListOffsetsTopicResponse(Message):
        name: str
        partitions: list[Response.ListOffsetsPartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[Response.ListOffsetsPartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.ListOffsetsTopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.ListOffsetsTopicResponse] = ...) -> None: ...
