# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 4
SCHEMA: Final[ApiSchema]

class Request(Message):
    class LeaderAndIsrPartitionState(Message):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        partition_epoch: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        is_new: bool
        leader_recovery_state: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ..., controller_epoch: int = ..., leader: int = ..., leader_epoch: int = ..., isr: list[int] = ..., partition_epoch: int = ..., replicas: list[int] = ..., adding_replicas: list[int] = ..., removing_replicas: list[int] = ..., is_new: bool = ..., leader_recovery_state: int = ...) -> None: ...
    class LeaderAndIsrTopicState(Message):
        topic_name: str
        topic_id: bytes
        partition_states: list[Request.LeaderAndIsrPartitionState]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partition_states: list[Request.LeaderAndIsrPartitionState] = ...) -> None: ...
    class LeaderAndIsrLiveLeader(Message):
        broker_id: int
        host_name: str
        port: int
        def __init__(self, *, broker_id: int = ..., host_name: str = ..., port: int = ...) -> None: ...
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[Request.LeaderAndIsrPartitionState]
    topic_states: list[Request.LeaderAndIsrTopicState]
    live_leaders: list[Request.LeaderAndIsrLiveLeader]
    def __init__(self, *, controller_id: int = ..., is_kraft_controller: bool = ..., controller_epoch: int = ..., broker_epoch: int = ..., type: int = ..., ungrouped_partition_states: list[Request.LeaderAndIsrPartitionState] = ..., topic_states: list[Request.LeaderAndIsrTopicState] = ..., live_leaders: list[Request.LeaderAndIsrLiveLeader] = ...) -> None: ...
class Response(Message):
    class LeaderAndIsrPartitionError(Message):
        topic_name: str
        partition_index: int
        error_code: int
        def __init__(self, *, topic_name: str = ..., partition_index: int = ..., error_code: int = ...) -> None: ...
    class LeaderAndIsrTopicError(Message):
        topic_id: bytes
        partition_errors: list[Response.LeaderAndIsrPartitionError]
        def __init__(self, *, topic_id: bytes = ..., partition_errors: list[Response.LeaderAndIsrPartitionError] = ...) -> None: ...
    error_code: int
    partition_errors: list[Response.LeaderAndIsrPartitionError]
    topics: list[Response.LeaderAndIsrTopicError]
    def __init__(self, *, error_code: int = ..., partition_errors: list[Response.LeaderAndIsrPartitionError] = ..., topics: list[Response.LeaderAndIsrTopicError] = ...) -> None: ...
