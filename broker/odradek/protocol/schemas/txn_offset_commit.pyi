# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 28
SCHEMA: Final[ApiSchema]

class Request(Message):
    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., committed_metadata: str | None = ...) -> None: ...
    class TxnOffsetCommitRequestTopic(Message):
        name: str
        partitions: list[Request.TxnOffsetCommitRequestPartition]
        def __init__(self, *, name: str = ..., partitions: list[Request.TxnOffsetCommitRequestPartition] = ...) -> None: ...
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[Request.TxnOffsetCommitRequestTopic]
    def __init__(self, *, transactional_id: str = ..., group_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., generation_id: int = ..., member_id: str = ..., group_instance_id: str | None = ..., topics: list[Request.TxnOffsetCommitRequestTopic] = ...) -> None: ...
class Response(Message):
    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
    class TxnOffsetCommitResponseTopic(Message):
        name: str
        partitions: list[Response.TxnOffsetCommitResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[Response.TxnOffsetCommitResponsePartition] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.TxnOffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.TxnOffsetCommitResponseTopic] = ...) -> None: ...
