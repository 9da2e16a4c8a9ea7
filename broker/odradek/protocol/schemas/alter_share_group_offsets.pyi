# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 91
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AlterShareGroupOffsetsRequestPartition(Message):
        partition_index: int
        start_offset: int
        def __init__(self, *, partition_index: int = ..., start_offset: int = ...) -> None: ...
    class AlterShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: list[Request.AlterShareGroupOffsetsRequestPartition]
        def __init__(self, *, topic_name: str = ..., partitions: list[Request.AlterShareGroupOffsetsRequestPartition] = ...) -> None: ...
    group_id: str
    topics: list[Request.AlterShareGroupOffsetsRequestTopic]
    def __init__(self, *, group_id: str = ..., topics: list[Request.AlterShareGroupOffsetsRequestTopic] = ...) -> None: ...
class Response(Message):
    class AlterShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class AlterShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: bytes
        partitions: list[Response.AlterShareGroupOffsetsResponsePartition]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partitions: list[Response.AlterShareGroupOffsetsResponsePartition] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[Response.AlterShareGroupOffsetsResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., responses: list[Response.AlterShareGroupOffsetsResponseTopic] = ...) -> None: ...
