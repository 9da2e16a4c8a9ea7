# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 56
SCHEMA: Final[ApiSchema]

class Request(Message):
    class BrokerState(Message):
        broker_id: int
        broker_epoch: int
        def __init__(self, *, broker_id: int = ..., broker_epoch: int = ...) -> None: ...
    class PartitionData(Message):
        partition_index: int
        leader_epoch: int
        new_isr: list[int]
        new_isr_with_epochs: list[Request.BrokerState]
        leader_recovery_state: int
        partition_epoch: int
        def __init__(self, *, partition_index: int = ..., leader_epoch: int = ..., new_isr: list[int] = ..., new_isr_with_epochs: list[Request.BrokerState] = ..., leader_recovery_state: int = ..., partition_epoch: int = ...) -> None: ...
    class TopicData(Message):
        topic_name: str
        topic_id: bytes
        partitions: list[Request.PartitionData]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partitions: list[Request.PartitionData] = ...) -> None: ...
    broker_id: int
    broker_epoch: int
    topics: list[Request.TopicData]
    def __init__(self, *, broker_id: int = ..., broker_epoch: int = ..., topics: list[Request.TopicData] = ...) -> None: ...
class Response(Message):
    class PartitionData(Message):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., leader_id: int = ..., leader_epoch: int = ..., isr: list[int] = ..., leader_recovery_state: int = ..., partition_epoch: int = ...) -> None: ...
    class TopicData(Message):
        topic_name: str
        topic_id: bytes
        partitions: list[Response.PartitionData]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partitions: list[Response.PartitionData] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    topics: list[Response.TopicData]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., topics: list[Response.TopicData] = ...) -> None: ...
