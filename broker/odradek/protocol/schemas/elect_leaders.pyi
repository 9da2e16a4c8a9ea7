# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 43
SCHEMA: Final[ApiSchema]

class Request(Message):
    class TopicPartitions(Message):
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    election_type: int
    topic_partitions: list[Request.TopicPartitions] | None
    timeout_ms: int
    def __init__(self, *, election_type: int = ..., topic_partitions: list[Request.TopicPartitions] | None = ..., timeout_ms: int = ...) -> None: ...
class Response(Message):
    class PartitionResult(Message):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(self, *, partition_id: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    class ReplicaElectionResult(Message):
        topic: str
        partition_result: list[Response.PartitionResult]
        def __init__(self, *, topic: str = ..., partition_result: list[Response.PartitionResult] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[Response.ReplicaElectionResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., replica_election_results: list[Response.ReplicaElectionResult] = ...) -> None: ...
