# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 51
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ScramCredentialDeletion(Message):
        name: str
        mechanism: int
        def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...
    class ScramCredentialUpsertion(Message):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(self, *, name: str = ..., mechanism: int = ..., iterations: int = ..., salt: bytes = ..., salted_password: bytes = ...) -> None: ...
    deletions: list[Request.ScramCredentialDeletion]
    upsertions: list[Request.ScramCredentialUpsertion]
    def __init__(self, *, deletions: list[Request.ScramCredentialDeletion] = ..., upsertions: list[Request.ScramCredentialUpsertion] = ...) -> None: ...
class Response(Message):
    class AlterUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        def __init__(self, *, user: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...
    throttle_time_ms: int
    results: list[Response.AlterUserScramCredentialsResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[Response.AlterUserScramCredentialsResult] = ...) -> None: ...
