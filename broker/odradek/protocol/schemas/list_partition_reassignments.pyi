# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 46
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ListPartitionReassignmentsTopics(Message):
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    timeout_ms: int
    topics: list[Request.ListPartitionReassignmentsTopics] | None
    def __init__(self, *, timeout_ms: int = ..., topics: list[Request.ListPartitionReassignmentsTopics] | None = ...) -> None: ...
class Response(Message):
    class OngoingPartitionReassignment(Message):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        def __init__(self, *, partition_index: int = ..., replicas: list[int] = ..., adding_replicas: list[int] = ..., removing_replicas: list[int] = ...) -> None: ...
    class OngoingTopicReassignment(Message):
        name: str
        partitions: list[Response.OngoingPartitionReassignment]
        def __init__(self, *, name: str = ..., partitions: list[Response.OngoingPartitionReassignment] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[Response.OngoingTopicReassignment]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., topics: list[Response.OngoingTopicReassignment] = ...) -> None: ...
