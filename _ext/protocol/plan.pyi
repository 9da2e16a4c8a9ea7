from typing import Any, Final, TypedDict

from _typeshed import Incomplete
from typing_extensions import TypeAlias

from odradek._ext.protocol.messages import Layout

CODES: Incomplete = ...
Code: TypeAlias = int

class Plan:
    layout: Final[Layout]
    version: Final[int]
    flexible: Final[bool]
    min_bytes: Final[int]
    depth: Final[int]

    def __init__(self, layout: Layout, version: int, flexible: bool, fields: list[Any], absent: list[Any]) -> None: ...
    ...

class Op(TypedDict):
    code: int
    element: int
    nullable: int
    field: int
    tag: int
    offset: int
    min_bytes: int
    plan: Incomplete
    default_value: Incomplete
    name: Incomplete

class Trail(TypedDict):
    ops: list[Op]
    indexes: list[int]
    depth: int
