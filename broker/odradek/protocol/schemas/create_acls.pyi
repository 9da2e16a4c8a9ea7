# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 30
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AclCreation(Message):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., resource_pattern_type: int = ..., principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...) -> None: ...
    creations: list[Request.AclCreation]
    def __init__(self, *, creations: list[Request.AclCreation] = ...) -> None: ...
class Response(Message):
    class AclCreationResult(Message):
        error_code: int
        error_message: str | None
        def __init__(self, *, error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.AclCreationResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.AclCreationResult] = ...) -> None: ...
