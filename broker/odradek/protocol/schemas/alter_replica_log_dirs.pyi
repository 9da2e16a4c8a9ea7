# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 34
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AlterReplicaLogDirTopic(Message):
        name: str
        partitions: list[int]
        def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...
    class AlterReplicaLogDir(Message):
        path: str
        topics: list[Request.AlterReplicaLogDirTopic]
        def __init__(self, *, path: str = ..., topics: list[Request.AlterReplicaLogDirTopic] = ...) -> None: ...
    dirs: list[Request.AlterReplicaLogDir]
    def __init__(self, *, dirs: list[Request.AlterReplicaLogDir] = ...) -> None: ...
class Response(Message):
    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str
        partitions: list[Response.AlterReplicaLogDirPartitionResult]
        def __init__(self, *, topic_name: str = ..., partitions: list[Response.AlterReplicaLogDirPartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.AlterReplicaLogDirTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.AlterReplicaLogDirTopicResult] = ...) -> None: ...
