# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 18
SCHEMA: Final[ApiSchema]

class Request(Message):
    client_software_name: str
    client_software_version: str
    def __init__(self, *, client_software_name: str = ..., client_software_version: str = ...) -> None: ...
class Response(Message):
    class ApiVersion(Message):
        api_key: int
        min_version: int
        max_version: int
        def __init__(self, *, api_key: int = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class SupportedFeatureKey(Message):
        name: str
        min_version: int
        max_version: int
        def __init__(self, *, name: str = ..., min_version: int = ..., max_version: int = ...) -> None: ...
    class FinalizedFeatureKey(Message):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(self, *, name: str = ..., max_version_level: int = ..., min_version_level: int = ...) -> None: ...
    error_code: int
    api_keys: list[Response.ApiVersion]
    throttle_time_ms: int
    supported_features: list[Response.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[Response.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(self, *, error_code: int = ..., api_keys: list[Response.ApiVersion] = ..., throttle_time_ms: int = ..., supported_features: list[Response.SupportedFeatureKey] = ..., finalized_features_epoch: int = ..., finalized_features: list[Response.FinalizedFeatureKey] = ..., zk_migration_ready: bool = ...) -> None: ...
