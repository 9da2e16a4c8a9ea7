# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 20101
SCHEMA: Final[ApiSchema]

class Request(Message):
    group_id: str
    def __init__(self, *, group_id: str = ...) -> None: ...
class Response(Message):
    class Event(Message):
        at_ms: int
        kind: str
        member_id: str
        client: str
        why: str
        took_ms: int
        def __init__(self, *, at_ms: int = ..., kind: str = ..., member_id: str = ..., client: str = ..., why: str = ..., took_ms: int = ...) -> None: ...
    class PendingOffset(Message):
        topic: str
        partition: int
        offset: int
        producer_id: int
        overtaken: bool
        def __init__(self, *, topic: str = ..., partition: int = ..., offset: int = ..., producer_id: int = ..., overtaken: bool = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    group_id: str
    events: list[Response.Event]
    pending_offsets: list[Response.PendingOffset]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., group_id: str = ..., events: list[Response.Event] = ..., pending_offsets: list[Response.PendingOffset] = ...) -> None: ...
