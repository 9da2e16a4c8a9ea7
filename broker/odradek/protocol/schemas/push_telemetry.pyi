# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 72
SCHEMA: Final[ApiSchema]

class Request(Message):
    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    def __init__(self, *, client_instance_id: bytes = ..., subscription_id: int = ..., terminating: bool = ..., compression_type: int = ..., metrics: bytes = ...) -> None: ...
class Response(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...
