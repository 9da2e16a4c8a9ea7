# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 50
SCHEMA: Final[ApiSchema]

class Request(Message):
    class UserName(Message):
        name: str
        def __init__(self, *, name: str = ...) -> None: ...
    users: list[Request.UserName] | None
    def __init__(self, *, users: list[Request.UserName] | None = ...) -> None: ...
class Response(Message):
    class CredentialInfo(Message):
        mechanism: int
        iterations: int
        def __init__(self, *, mechanism: int = ..., iterations: int = ...) -> None: ...
    class DescribeUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[Response.CredentialInfo]
        def __init__(self, *, user: str = ..., error_code: int = ..., error_message: str | None = ..., credential_infos: list[Response.CredentialInfo] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[Response.DescribeUserScramCredentialsResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., results: list[Response.DescribeUserScramCredentialsResult] = ...) -> None: ...
