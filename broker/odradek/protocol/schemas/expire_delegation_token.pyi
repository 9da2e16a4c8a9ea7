# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 40
SCHEMA: Final[ApiSchema]

class Request(Message):
    hmac: bytes
    expiry_time_period_ms: int
    def __init__(self, *, hmac: bytes = ..., expiry_time_period_ms: int = ...) -> None: ...
class Response(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    def __init__(self, *, error_code: int = ..., expiry_timestamp_ms: int = ..., throttle_time_ms: int = ...) -> None: ...
