from typing import Any
from typing import Final

from typing_extensions import TypeAlias

TlsResult: TypeAlias = int

class TlsListener:
    context: Final[Any]
    authenticates: Final[bool]
    asks_certificate: Final[bool]
    slow_key: Final[bool]
    principal_of: Final[Any]

    def __init__(self, context, *, authenticates: bool=True, principal_of=None, slow_key: bool=False, ticket_keys: bytes | None=None) -> None: ...

class Tls:
    listener: Final[TlsListener]
    established: Final[bool]
    busy: Final[bool]
    begun: Final[bool]
    ended: Final[bool]
    error: Final[Any]

    def __init__(self, listener: TlsListener) -> None: ...
    ...
    @property
    def is_native(self) -> bool: ...
    def compute_handshake(self) -> TlsResult: ...

def plain_reason(error) -> str: ...
def allow_native(allowed: bool) -> None: ...
