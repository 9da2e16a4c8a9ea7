# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 45
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ReassignablePartition(Message):
        partition_index: int
        replicas: list[int] | None
        def __init__(self, *, partition_index: int = ..., replicas: list[int] | None = ...) -> None: ...
    class ReassignableTopic(Message):
        name: str
        partitions: list[Request.ReassignablePartition]
        def __init__(self, *, name: str = ..., partitions: list[Request.ReassignablePartition] = ...) -> None: ...
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[Request.ReassignableTopic]
    def __init__(self, *, timeout_ms: int = ..., allow_replication_factor_change: bool = ..., topics: list[Request.ReassignableTopic] = ...) -> None: ...
class Response(Message):
    class ReassignablePartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class ReassignableTopicResponse(Message):
        name: str
        partitions: list[Response.ReassignablePartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[Response.ReassignablePartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[Response.ReassignableTopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., allow_replication_factor_change: bool = ..., error_code: int = ..., error_message: str | None = ..., responses: list[Response.ReassignableTopicResponse] = ...) -> None: ...
