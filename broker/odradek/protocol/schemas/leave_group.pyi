# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 13
SCHEMA: Final[ApiSchema]

class Request(Message):
    class MemberIdentity(Message):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., reason: str | None = ...) -> None: ...
    group_id: str
    member_id: str
    members: list[Request.MemberIdentity]
    def __init__(self, *, group_id: str = ..., member_id: str = ..., members: list[Request.MemberIdentity] = ...) -> None: ...
class Response(Message):
    class MemberResponse(Message):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., error_code: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    members: list[Response.MemberResponse]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., members: list[Response.MemberResponse] = ...) -> None: ...
