# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 9
SCHEMA: Final[ApiSchema]

class Request(Message):
    class OffsetFetchRequestTopic(Message):
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    class OffsetFetchRequestTopics(Message):
        name: str
        topic_id: bytes
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_indexes: list[int] = ...) -> None: ...
    class OffsetFetchRequestGroup(Message):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[Request.OffsetFetchRequestTopics] | None
        def __init__(self, *, group_id: str = ..., member_id: str | None = ..., member_epoch: int = ..., topics: list[Request.OffsetFetchRequestTopics] | None = ...) -> None: ...
    group_id: str
    topics: list[Request.OffsetFetchRequestTopic] | None
    groups: list[Request.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(self, *, group_id: str = ..., topics: list[Request.OffsetFetchRequestTopic] | None = ..., groups: list[Request.OffsetFetchRequestGroup] = ..., require_stable: bool = ...) -> None: ...
class Response(Message):
    class OffsetFetchResponsePartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
    class OffsetFetchResponseTopic(Message):
        name: str
        partitions: list[Response.OffsetFetchResponsePartition]
        def __init__(self, *, name: str = ..., partitions: list[Response.OffsetFetchResponsePartition] = ...) -> None: ...
    class OffsetFetchResponsePartitions(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(self, *, partition_index: int = ..., committed_offset: int = ..., committed_leader_epoch: int = ..., metadata: str | None = ..., error_code: int = ...) -> None: ...
    class OffsetFetchResponseTopics(Message):
        name: str
        topic_id: bytes
        partitions: list[Response.OffsetFetchResponsePartitions]
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., partitions: list[Response.OffsetFetchResponsePartitions] = ...) -> None: ...
    class OffsetFetchResponseGroup(Message):
        group_id: str
        topics: list[Response.OffsetFetchResponseTopics]
        error_code: int
        def __init__(self, *, group_id: str = ..., topics: list[Response.OffsetFetchResponseTopics] = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.OffsetFetchResponseTopic]
    error_code: int
    groups: list[Response.OffsetFetchResponseGroup]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.OffsetFetchResponseTopic] = ..., error_code: int = ..., groups: list[Response.OffsetFetchResponseGroup] = ...) -> None: ...
