# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 5
SCHEMA: Final[ApiSchema]

class Request(Message):
    class StopReplicaPartitionV0(Message):
        topic_name: str
        partition_index: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
    class StopReplicaTopicV1(Message):
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    class StopReplicaPartitionState(Message):
        partition_index: int
        leader_epoch: int
        delete_partition: bool
        def __init__(self, *, partition_index: int = ..., leader_epoch: int = ..., delete_partition: bool = ...) -> None: ...
    class StopReplicaTopicState(Message):
        topic_name: str
        partition_states: list[Request.StopReplicaPartitionState]
        def __init__(self, *, topic_name: str = ..., partition_states: list[Request.StopReplicaPartitionState] = ...) -> None: ...
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    ungrouped_partitions: list[Request.StopReplicaPartitionV0]
    topics: list[Request.StopReplicaTopicV1]
    topic_states: list[Request.StopReplicaTopicState]
    def __init__(self, *, controller_id: int = ..., is_kraft_controller: bool = ..., controller_epoch: int = ..., broker_epoch: int = ..., delete_partitions: bool = ..., ungrouped_partitions: list[Request.StopReplicaPartitionV0] = ..., topics: list[Request.StopReplicaTopicV1] = ..., topic_states: list[Request.StopReplicaTopicState] = ...) -> None: ...
class Response(Message):
    class StopReplicaPartitionError(Message):
        topic_name: str
        partition_index: int
        error_code: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ..., error_code: int = ...) -> None: ...
    error_code: int
    partition_errors: list[Response.StopReplicaPartitionError]
    def __init__(self, *, error_code: int = ..., partition_errors: list[Response.StopReplicaPartitionError] = ...) -> None: ...
