# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 35
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DescribableLogDirTopic(Message):
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    topics: list[Request.DescribableLogDirTopic] | None
    def __init__(self, *, topics: list[Request.DescribableLogDirTopic] | None = ...) -> None: ...
class Response(Message):
    class DescribeLogDirsPartition(Message):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(self, *, partition_index: int = ..., partition_size: int = ..., offset_lag: int = ..., is_future_key: bool = ...) -> None: ...
    class DescribeLogDirsTopic(Message):
        name: str
        partitions: list[Response.DescribeLogDirsPartition]
        def __init__(self, *, name: str = ..., partitions: list[Response.DescribeLogDirsPartition] = ...) -> None: ...
    class DescribeLogDirsResult(Message):
        error_code: int
        log_dir: str
        topics: list[Response.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(self, *, error_code: int = ..., log_dir: str = ..., topics: list[Response.DescribeLogDirsTopic] = ..., total_bytes: int = ..., usable_bytes: int = ..., is_cordoned: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results: list[Response.DescribeLogDirsResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., results: list[Response.DescribeLogDirsResult] = ...) -> None: ...
