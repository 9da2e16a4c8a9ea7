# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 61
SCHEMA: Final[ApiSchema]

class Request(Message):
    class TopicRequest(Message):
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    topics: list[Request.TopicRequest]
    def __init__(self, *, topics: list[Request.TopicRequest] = ...) -> None: ...
class Response(Message):
    class ProducerState(Message):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(self, *, producer_id: int = ..., producer_epoch: int = ..., last_sequence: int = ..., last_timestamp: int = ..., coordinator_epoch: int = ..., current_txn_start_offset: int = ...) -> None: ...
    class PartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[Response.ProducerState]
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., active_producers: list[Response.ProducerState] = ...) -> None: ...
    class TopicResponse(Message):
        name: str
        partitions: list[Response.PartitionResponse]
        def __init__(self, *, name: str = ..., partitions: list[Response.PartitionResponse] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.TopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.TopicResponse] = ...) -> None: ...
