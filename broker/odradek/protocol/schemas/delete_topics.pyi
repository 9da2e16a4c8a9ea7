# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 20
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DeleteTopicState(Message):
        name: str | None
        topic_id: bytes
        def __init__(self, *, name: str | None = ..., topic_id: bytes = ...) -> None: ...
    topics: list[Request.DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(self, *, topics: list[Request.DeleteTopicState] = ..., topic_names: list[str] = ..., timeout_ms: int = ...) -> None: ...
class Response(Message):
    class DeletableTopicResult(Message):
        name: str | None
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(self, *, name: str | None = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    responses: list[Response.DeletableTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[Response.DeletableTopicResult] = ...) -> None: ...
