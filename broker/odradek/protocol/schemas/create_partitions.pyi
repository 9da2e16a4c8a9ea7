# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 37
SCHEMA: Final[ApiSchema]

class Request(Message):
    class CreatePartitionsAssignment(Message):
        broker_ids: list[int]
        def __init__(self, *, broker_ids: list[int] = ...) -> None: ...
    class CreatePartitionsTopic(Message):
        name: str
        count: int
        assignments: list[Request.CreatePartitionsAssignment] | None
        def __init__(self, *, name: str = ..., count: int = ..., assignments: list[Request.CreatePartitionsAssignment] | None = ...) -> None: ...
    topics: list[Request.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(self, *, topics: list[Request.CreatePartitionsTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...) -> None: ...
class Response(Message):
    class CreatePartitionsTopicResult(Message):
        name: str
        error_code: int
        error_message: str | None
        def __init__(self, *, name: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.CreatePartitionsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.CreatePartitionsTopicResult] = ...) -> None: ...
