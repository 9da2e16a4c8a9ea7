# Made by `make tables` from the schema; do not edit.
from typing import Any, Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 0
SCHEMA: Final[ApiSchema]

class Request(Message):
    class PartitionProduceData(Message):
        index: int
        records: Any
        def __init__(self, *, index: int = ..., records: Any = ...) -> None: ...
    class TopicProduceData(Message):
        name: str
        topic_id: bytes
        partition_data: list[Request.PartitionProduceData]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_data: list[Request.PartitionProduceData] = ...) -> None: ...
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[Request.TopicProduceData]
    def __init__(self, *, transactional_id: str | None = ..., acks: int = ..., timeout_ms: int = ..., topic_data: list[Request.TopicProduceData] = ...) -> None: ...
class Response(Message):
    class BatchIndexAndErrorMessage(Message):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(self, *, batch_index: int = ..., batch_index_error_message: str | None = ...) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class PartitionProduceResponse(Message):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[Response.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: Response.LeaderIdAndEpoch
        def __init__(self, *, index: int = ..., error_code: int = ..., base_offset: int = ..., log_append_time_ms: int = ..., log_start_offset: int = ..., record_errors: list[Response.BatchIndexAndErrorMessage] = ..., error_message: str | None = ..., current_leader: Response.LeaderIdAndEpoch = ...) -> None: ...
    class TopicProduceResponse(Message):
        name: str
        topic_id: bytes
        partition_responses: list[Response.PartitionProduceResponse]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_responses: list[Response.PartitionProduceResponse] = ...) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    responses: list[Response.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[Response.NodeEndpoint]
    def __init__(self, *, responses: list[Response.TopicProduceResponse] = ..., throttle_time_ms: int = ..., node_endpoints: list[Response.NodeEndpoint] = ...) -> None: ...
