# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 42
SCHEMA: Final[ApiSchema]

class Request(Message):
    groups_names: list[str]
    def __init__(self, *, groups_names: list[str] = ...) -> None: ...
class Response(Message):
    class DeletableGroupResult(Message):
        group_id: str
        error_code: int
        def __init__(self, *, group_id: str = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.DeletableGroupResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.DeletableGroupResult] = ...) -> None: ...
