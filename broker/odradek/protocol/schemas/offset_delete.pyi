# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 47
SCHEMA: Final[ApiSchema]

class Request(Message):
    class OffsetDeleteRequestPartition(Message):
        partition_index: int
        def __init__(self, *, partition_index: int = ...) -> None: ...
    class OffsetDeleteRequestTopic(Message):
        name: str
        partitions: list[Request.OffsetDeleteRequestPartition]
        def __init__(self, *, name: str = ..., partitions: list[Request.OffsetDeleteRequestPartition] = ...) -> None: ...
    group_id: str
    topics: list[Request.OffsetDeleteRequestTopic]
    def __init__(self, *, group_id: str = ..., topics: list[Request.OffsetDeleteRequestTopic] = ...) -> None: ...
class Response(Message):
    class OffsetDeleteResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
    class OffsetDeleteResponseTopic(Message):
        name: str
        partitions: list[Response.OffsetDeleteResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[Response.OffsetDeleteResponsePartition] = ...) -> None: ...
    error_code: int
    throttle_time_ms: int
    topics: list[Response.OffsetDeleteResponseTopic]
    def __init__(self, *, error_code: int = ..., throttle_time_ms: int = ..., topics: list[Response.OffsetDeleteResponseTopic] = ...) -> None: ...
