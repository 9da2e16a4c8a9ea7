from typing import Any
from collections.abc import Generator
from typing import TypedDict

from _typeshed import Incomplete

from odradek._ext.protocol.cursor import WriteBuffer
from odradek._ext.protocol.plan import Trail


class Encoding:
    def __init__(self, head: bytes, message, version: int) -> None: ...
    ...

class Output(TypedDict):
    buffer: WriteBuffer
    refused: Incomplete
    reason: int
    trail: Trail

class Level(TypedDict):
    plan: Incomplete
    message: Incomplete
    values: Incomplete
    op: int
    count: int
    next: int

def encode(message, version: int) -> bytes: ...
def encode_frame(header, header_version: int, message, version: int) -> bytes: ...
def encode_in_steps(head: bytes, message, version: int, elements: int=...) -> Generator[None, None, bytes]: ...
