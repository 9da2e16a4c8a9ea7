# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 6
SCHEMA: Final[ApiSchema]

class Request(Message):
    class UpdateMetadataPartitionState(Message):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        zk_version: int
        replicas: list[int]
        offline_replicas: list[int]
        def __init__(self, *, topic_name: str = ..., partition_index: int = ..., controller_epoch: int = ..., leader: int = ..., leader_epoch: int = ..., isr: list[int] = ..., zk_version: int = ..., replicas: list[int] = ..., offline_replicas: list[int] = ...) -> None: ...
    class UpdateMetadataTopicState(Message):
        topic_name: str
        topic_id: bytes
        partition_states: list[Request.UpdateMetadataPartitionState]
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., partition_states: list[Request.UpdateMetadataPartitionState] = ...) -> None: ...
    class UpdateMetadataEndpoint(Message):
        port: int
        host: str
        listener: str
        security_protocol: int
        def __init__(self, *, port: int = ..., host: str = ..., listener: str = ..., security_protocol: int = ...) -> None: ...
    class UpdateMetadataBroker(Message):
        id: int
        v0_host: str
        v0_port: int
        endpoints: list[Request.UpdateMetadataEndpoint]
        rack: str | None
        def __init__(self, *, id: int = ..., v0_host: str = ..., v0_port: int = ..., endpoints: list[Request.UpdateMetadataEndpoint] = ..., rack: str | None = ...) -> None: ...
    controller_id: int
    is_kraft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    ungrouped_partition_states: list[Request.UpdateMetadataPartitionState]
    topic_states: list[Request.UpdateMetadataTopicState]
    live_brokers: list[Request.UpdateMetadataBroker]
    def __init__(self, *, controller_id: int = ..., is_kraft_controller: bool = ..., type: int = ..., controller_epoch: int = ..., broker_epoch: int = ..., ungrouped_partition_states: list[Request.UpdateMetadataPartitionState] = ..., topic_states: list[Request.UpdateMetadataTopicState] = ..., live_brokers: list[Request.UpdateMetadataBroker] = ...) -> None: ...
class Response(Message):
    error_code: int
    def __init__(self, *, error_code: int = ...) -> None: ...
