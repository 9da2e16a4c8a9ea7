# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 90
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: list[int]
        def __init__(self, *, topic_name: str = ..., partitions: list[int] = ...) -> None: ...
    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str
        topics: list[Request.DescribeShareGroupOffsetsRequestTopic] | None
        def __init__(self, *, group_id: str = ..., topics: list[Request.DescribeShareGroupOffsetsRequestTopic] | None = ...) -> None: ...
    groups: list[Request.DescribeShareGroupOffsetsRequestGroup]
    def __init__(self, *, groups: list[Request.DescribeShareGroupOffsetsRequestGroup] = ...) -> None: ...
class Response(Message):
    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition_index: int = ..., start_offset: int = ..., leader_epoch: int = ..., lag: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: bytes
        partitions: list[Response.DescribeShareGroupOffsetsResponsePartition]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partitions: list[Response.DescribeShareGroupOffsetsResponsePartition] = ...) -> None: ...
    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str
        topics: list[Response.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        def __init__(self, *, group_id: str = ..., topics: list[Response.DescribeShareGroupOffsetsResponseTopic] = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    groups: list[Response.DescribeShareGroupOffsetsResponseGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[Response.DescribeShareGroupOffsetsResponseGroup] = ...) -> None: ...
