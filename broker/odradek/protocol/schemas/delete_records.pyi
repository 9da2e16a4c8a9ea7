# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 21
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DeleteRecordsPartition(Message):
        partition_index: int
        offset: int
        def __init__(self, *, partition_index: int = ..., offset: int = ...) -> None: ...
    class DeleteRecordsTopic(Message):
        name: str
        partitions: list[Request.DeleteRecordsPartition]
        def __init__(self, *, name: str = ..., partitions: list[Request.DeleteRecordsPartition] = ...) -> None: ...
    topics: list[Request.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(self, *, topics: list[Request.DeleteRecordsTopic] = ..., timeout_ms: int = ...) -> None: ...
class Response(Message):
    class DeleteRecordsPartitionResult(Message):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., low_watermark: int = ..., error_code: int = ...) -> None: ...
    class DeleteRecordsTopicResult(Message):
        name: str
        partitions: list[Response.DeleteRecordsPartitionResult]
        def __init__(self, *, name: str = ..., partitions: list[Response.DeleteRecordsPartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.DeleteRecordsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.DeleteRecordsTopicResult] = ...) -> None: ...
