from typing import TypedDict


class Scanner(TypedDict):
    descriptor: int
    size: int
    buffer: int
    capacity: int
    at: int
    filled: int
