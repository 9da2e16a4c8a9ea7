# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 44
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AlterableConfig(Message):
        name: str
        config_operation: int
        value: str | None
        def __init__(self, *, name: str = ..., config_operation: int = ..., value: str | None = ...) -> None: ...
    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: list[Request.AlterableConfig]
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., configs: list[Request.AlterableConfig] = ...) -> None: ...
    resources: list[Request.AlterConfigsResource]
    validate_only: bool
    def __init__(self, *, resources: list[Request.AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...
class Response(Message):
    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ...) -> None: ...
    throttle_time_ms: int
    responses: list[Response.AlterConfigsResourceResponse]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[Response.AlterConfigsResourceResponse] = ...) -> None: ...
