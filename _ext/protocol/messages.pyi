from typing import Any, Final, TypedDict

from typing_extensions import TypeAlias

DefaultKind: TypeAlias = int

class ProtocolError(ValueError):
    def __init__(self, reason, *, message=None, version=None, field=None, position=None, value=None) -> None: ...

class Layout:
    cls: Final[type]
    name: Final[str]
    fields: Final[tuple[Any, ...]]
    defaults: Final[tuple[Any, ...]]
    min_version: Final[int]
    max_version: Final[int]
    compile: Final[Any]

    def __init__(self, cls: type, name: str, fields: tuple[Any, ...], defaults: tuple[Any, ...], kinds: tuple[Any, ...], min_version: int, max_version: int, compile) -> None: ...
    ...
    def plan(self, version: int) -> Any: ...

class Message:
    __hash__ = None # type: ignore[assignment]

    def __init__(self, **fields) -> None: ...
    def __eq__(self, other) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[type, dict[str, Any]]]: ...
    def __repr__(self) -> str: ...

class PyMemberDef(TypedDict):
    offset: int

class PyMemberDescrObject(TypedDict):
    d_member: PyMemberDef

def rebuild(cls, fields: dict[Any, Any]) -> Any: ...
