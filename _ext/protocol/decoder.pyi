from typing import Any
from typing import Callable, TypedDict

from _typeshed import Incomplete

from odradek._ext.protocol.cursor import Cursor
from odradek._ext.protocol.plan import Trail


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

def decode(cls: type, version: int, buffer, offset: int=0, max_elements: int=...): ...
