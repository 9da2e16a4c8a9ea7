# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 71
SCHEMA: Final[ApiSchema]

class Request(Message):
    client_instance_id: bytes
    def __init__(self, *, client_instance_id: bytes = ...) -> None: ...
class Response(Message):
    throttle_time_ms: int
    error_code: int
    client_instance_id: bytes
    subscription_id: int
    accepted_compression_types: list[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: list[str]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., client_instance_id: bytes = ..., subscription_id: int = ..., accepted_compression_types: list[int] = ..., push_interval_ms: int = ..., telemetry_max_bytes: int = ..., delta_temporality: bool = ..., requested_metrics: list[str] = ...) -> None: ...
