# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 57
SCHEMA: Final[ApiSchema]

class Request(Message):
    class FeatureUpdateKey(Message):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        def __init__(self, *, feature: str = ..., max_version_level: int = ..., allow_downgrade: bool = ..., upgrade_type: int = ...) -> None: ...
    timeout_ms: int
    feature_updates: list[Request.FeatureUpdateKey]
    validate_only: bool
    def __init__(self, *, timeout_ms: int = ..., feature_updates: list[Request.FeatureUpdateKey] = ..., validate_only: bool = ...) -> None: ...
class Response(Message):
    class UpdatableFeatureResult(Message):
        feature: str
        error_code: int
        error_message: str | None
        def __init__(self, *, feature: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[Response.UpdatableFeatureResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: list[Response.UpdatableFeatureResult] = ...) -> None: ...
