# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 41
SCHEMA: Final[ApiSchema]

class Request(Message):
    class DescribeDelegationTokenOwner(Message):
        principal_type: str
        principal_name: str
        def __init__(self, *, principal_type: str = ..., principal_name: str = ...) -> None: ...
    owners: list[Request.DescribeDelegationTokenOwner] | None
    def __init__(self, *, owners: list[Request.DescribeDelegationTokenOwner] | None = ...) -> None: ...
class Response(Message):
    class DescribedDelegationTokenRenewer(Message):
        principal_type: str
        principal_name: str
        def __init__(self, *, principal_type: str = ..., principal_name: str = ...) -> None: ...
    class DescribedDelegationToken(Message):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[Response.DescribedDelegationTokenRenewer]
        def __init__(self, *, principal_type: str = ..., principal_name: str = ..., token_requester_principal_type: str = ..., token_requester_principal_name: str = ..., issue_timestamp: int = ..., expiry_timestamp: int = ..., max_timestamp: int = ..., token_id: str = ..., hmac: bytes = ..., renewers: list[Response.DescribedDelegationTokenRenewer] = ...) -> None: ...
    error_code: int
    tokens: list[Response.DescribedDelegationToken]
    throttle_time_ms: int
    def __init__(self, *, error_code: int = ..., tokens: list[Response.DescribedDelegationToken] = ..., throttle_time_ms: int = ...) -> None: ...
