# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 32
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DescribeConfigsResource(Message):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        def __init__(self, *, resource_type: int = ..., resource_name: str = ..., configuration_keys: list[str] | None = ...) -> None: ...
    resources: list[Request.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(self, *, resources: list[Request.DescribeConfigsResource] = ..., include_synonyms: bool = ..., include_documentation: bool = ...) -> None: ...
class Response(Message):
    class DescribeConfigsSynonym(Message):
        name: str
        value: str | None
        source: int
        def __init__(self, *, name: str = ..., value: str | None = ..., source: int = ...) -> None: ...
    class DescribeConfigsResourceResult(Message):
        name: str
        value: str | None
        read_only: bool
        is_default: bool
        config_source: int
        is_sensitive: bool
        synonyms: list[Response.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(self, *, name: str = ..., value: str | None = ..., read_only: bool = ..., is_default: bool = ..., config_source: int = ..., is_sensitive: bool = ..., synonyms: list[Response.DescribeConfigsSynonym] = ..., config_type: int = ..., documentation: str | None = ...) -> None: ...
    class DescribeConfigsResult(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[Response.DescribeConfigsResourceResult]
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., resource_type: int = ..., resource_name: str = ..., configs: list[Response.DescribeConfigsResourceResult] = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.DescribeConfigsResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.DescribeConfigsResult] = ...) -> None: ...
