# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 74
SCHEMA: Final[ApiSchema]

class Request(Message):
    resource_types: list[int]
    def __init__(self, *, resource_types: list[int] = ...) -> None: ...
class Response(Message):
    class ConfigResource(Message):
        resource_name: str
        resource_type: int
        def __init__(self, *, resource_name: str = ..., resource_type: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    config_resources: list[Response.ConfigResource]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., config_resources: list[Response.ConfigResource] = ...) -> None: ...
