# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 92
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DeleteShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        def __init__(self, *, topic_name: str = ...) -> None: ...
    group_id: str
    topics: list[Request.DeleteShareGroupOffsetsRequestTopic]
    def __init__(self, *, group_id: str = ..., topics: list[Request.DeleteShareGroupOffsetsRequestTopic] = ...) -> None: ...
class Response(Message):
    class DeleteShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: bytes
        error_code: int
        error_message: str | None
        def __init__(self, *, topic_name: str = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[Response.DeleteShareGroupOffsetsResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., responses: list[Response.DeleteShareGroupOffsetsResponseTopic] = ...) -> None: ...
