# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 48
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ComponentData(Message):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(self, *, entity_type: str = ..., match_type: int = ..., match: str | None = ...) -> None: ...
    components: list[Request.ComponentData]
    strict: bool
    def __init__(self, *, components: list[Request.ComponentData] = ..., strict: bool = ...) -> None: ...
class Response(Message):
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...
    class ValueData(Message):
        key: str
        value: float
        def __init__(self, *, key: str = ..., value: float = ...) -> None: ...
    class EntryData(Message):
        entity: list[Response.EntityData]
        values: list[Response.ValueData]
        def __init__(self, *, entity: list[Response.EntityData] = ..., values: list[Response.ValueData] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[Response.EntryData] | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., entries: list[Response.EntryData] | None = ...) -> None: ...
