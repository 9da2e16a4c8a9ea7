# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 19
SCHEMA: Final[ApiSchema]

class Request(Message):
    class CreatableReplicaAssignment(Message):
        partition_index: int
        broker_ids: list[int]
        def __init__(self, *, partition_index: int = ..., broker_ids: list[int] = ...) -> None: ...
    class CreatableTopicConfig(Message):
        name: str
        value: str | None
        def __init__(self, *, name: str = ..., value: str | None = ...) -> None: ...
    class CreatableTopic(Message):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[Request.CreatableReplicaAssignment]
        configs: list[Request.CreatableTopicConfig]
        def __init__(self, *, name: str = ..., num_partitions: int = ..., replication_factor: int = ..., assignments: list[Request.CreatableReplicaAssignment] = ..., configs: list[Request.CreatableTopicConfig] = ...) -> None: ...
    topics: list[Request.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, *, topics: list[Request.CreatableTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...
class Response(Message):
    class CreatableTopicConfigs(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(self, *, name: str = ..., value: str | None = ..., read_only: bool = ..., config_source: int = ..., is_sensitive: bool = ...) -> None: ...
    class CreatableTopicResult(Message):
        name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[Response.CreatableTopicConfigs] | None
        def __init__(self, *, name: str = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ..., topic_config_error_code: int = ..., num_partitions: int = ..., replication_factor: int = ..., configs: list[Response.CreatableTopicConfigs] | None = ...) -> None: ...
    throttle_time_ms: int
    topics: list[Response.CreatableTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[Response.CreatableTopicResult] = ...) -> None: ...
