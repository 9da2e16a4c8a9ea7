# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 75
SCHEMA: Final[ApiSchema]

class Request(Message):
    class TopicRequest(Message):
        name: str
        def __init__(self, *, name: str = ...) -> None: ...
    class Cursor(Message):
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    topics: list[Request.TopicRequest]
    response_partition_limit: int
    cursor: Request.Cursor | None
    def __init__(self, *, topics: list[Request.TopicRequest] = ..., response_partition_limit: int = ..., cursor: Request.Cursor | None = ...) -> None: ...
class Response(Message):
    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        def __init__(self, *, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: list[int] = ..., isr_nodes: list[int] = ..., eligible_leader_replicas: list[int] | None = ..., last_known_elr: list[int] | None = ..., offline_replicas: list[int] = ...) -> None: ...
    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[Response.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        def __init__(self, *, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: list[Response.DescribeTopicPartitionsResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    class Cursor(Message):
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.DescribeTopicPartitionsResponseTopic]
    next_cursor: Response.Cursor | None
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.DescribeTopicPartitionsResponseTopic] = ..., next_cursor: Response.Cursor | None = ...) -> None: ...
