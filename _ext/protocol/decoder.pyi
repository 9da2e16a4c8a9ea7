from collections.abc import Callable, Generator
from typing import Any, Callable, Final, TypedDict

from _typeshed import Incomplete

from odradek._ext.protocol.cursor import Cursor
from odradek._ext.protocol.plan import Trail


class Decoding:
    message: Final[Any]

    def __init__(self, cls: type, version: int, buffer, offset: int, max_elements: int) -> None: ...
    ...

class Input(TypedDict):
    cursor: Cursor
    start: int
    owner: Incomplete
    view: Incomplete
    elements: int
    max_elements: int
    trail: Trail

class TypeObject(TypedDict):
    tp_alloc: Callable[[type, int], Any]

class Level(TypedDict):
    plan: Incomplete
    message: Incomplete
    values: Incomplete
    op: int
    count: int
    next: int

def decode(cls: type, version: int, buffer, offset: int=0, max_elements: int=...) -> tuple[Any, int]: ...
def decode_in_steps(cls: type, version: int, buffer, offset: int=0, max_elements: int=..., elements: int=...) -> Generator[None, None, Any]: ...
