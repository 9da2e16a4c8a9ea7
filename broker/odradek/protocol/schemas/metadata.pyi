# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 3
SCHEMA: Final[ApiSchema]

class Request(Message):
    class MetadataRequestTopic(Message):
        topic_id: bytes
        name: str | None
        def __init__(self, *, topic_id: bytes = ..., name: str | None = ...) -> None: ...
    topics: list[Request.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(self, *, topics: list[Request.MetadataRequestTopic] | None = ..., allow_auto_topic_creation: bool = ..., include_cluster_authorized_operations: bool = ..., include_topic_authorized_operations: bool = ...) -> None: ...
class Response(Message):
    class MetadataResponseBroker(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    class MetadataResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        def __init__(self, *, error_code: int = ..., partition_index: int = ..., leader_id: int = ..., leader_epoch: int = ..., replica_nodes: list[int] = ..., isr_nodes: list[int] = ..., offline_replicas: list[int] = ...) -> None: ...
    class MetadataResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: list[Response.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(self, *, error_code: int = ..., name: str | None = ..., topic_id: bytes = ..., is_internal: bool = ..., partitions: list[Response.MetadataResponsePartition] = ..., topic_authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    brokers: list[Response.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[Response.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., brokers: list[Response.MetadataResponseBroker] = ..., cluster_id: str | None = ..., controller_id: int = ..., topics: list[Response.MetadataResponseTopic] = ..., cluster_authorized_operations: int = ..., error_code: int = ...) -> None: ...
