from typing import TypedDict

from typing_extensions import TypeAlias

CursorError: TypeAlias = int

class Cursor(TypedDict):
    ptr: int
    end: int
    refused: int
    error: int

class WriteBuffer(TypedDict):
    data: int
    size: int
    capacity: int
    error: int
