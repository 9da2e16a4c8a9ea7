# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 8
SCHEMA: Final[ApiSchema]

class Request(Message):
    class OffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        commit_timestamp: int
        committed_metadata: str | None
        def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., commit_timestamp: int = ..., committed_metadata: str | None = ...) -> None: ...
    class OffsetCommitRequestTopic(Message):
        name: str
        topic_id: bytes
        partitions: list[Request.OffsetCommitRequestPartition]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[Request.OffsetCommitRequestPartition] = ...) -> None: ...
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[Request.OffsetCommitRequestTopic]
    def __init__(self, *, group_id: str = ..., generation_id_or_member_epoch: int = ..., member_id: str = ..., group_instance_id: str | None = ..., retention_time_ms: int = ..., topics: list[Request.OffsetCommitRequestTopic] = ...) -> None: ...
class Response(Message):
    class OffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
    class OffsetCommitResponseTopic(Message):
        name: str
        topic_id: bytes
        partitions: list[Response.OffsetCommitResponsePartition]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[Response.OffsetCommitResponsePartition] = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.OffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.OffsetCommitResponseTopic] = ...) -> None: ...
