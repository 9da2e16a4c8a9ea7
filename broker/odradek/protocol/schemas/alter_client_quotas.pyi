# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 49
SCHEMA: Final[ApiSchema]

class Request(Message):
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    class OpData(Message):
        key: str
        value: float
        remove: bool
        def __init__(self, *, key: str = ..., value: float = ..., remove: bool = ...) -> None: ...
    class EntryData(Message):
        entity: list[Request.EntityData]
        ops: list[Request.OpData]
        def __init__(self, *, entity: list[Request.EntityData] = ..., ops: list[Request.OpData] = ...) -> None: ...
    entries: list[Request.EntryData]
    validate_only: bool
    def __init__(self, *, entries: list[Request.EntryData] = ..., validate_only: bool = ...) -> None: ...
class Response(Message):
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    class EntryData(Message):
        error_code: int
        error_message: str | None
        entity: list[Response.EntityData]
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., entity: list[Response.EntityData] = ...) -> None: ...
    throttle_time_ms: int
    entries: list[Response.EntryData]
    def __init__(self, *, throttle_time_ms: int = ..., entries: list[Response.EntryData] = ...) -> None: ...
