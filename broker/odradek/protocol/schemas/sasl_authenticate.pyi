# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 36
SCHEMA: Final[ApiSchema]

class Request(Message):
    auth_bytes: bytes
    def __init__(self, *, auth_bytes: bytes = ...) -> None: ...
class Response(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(self, *, error_code: int = ..., error_message: str | None = ..., auth_bytes: bytes = ..., session_lifetime_ms: int = ...) -> None: ...
