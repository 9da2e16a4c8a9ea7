# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 17
SCHEMA: Final[ApiSchema]

class Request(Message):
    mechanism: str
    def __init__(self, *, mechanism: str = ...) -> None: ...
class Response(Message):
    error_code: int
    mechanisms: list[str]
    def __init__(self, *, error_code: int = ..., mechanisms: list[str] = ...) -> None: ...
