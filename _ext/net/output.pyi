from typing import Any
from posix.uio import iovec
from typing import Final, TypedDict

from _typeshed import Incomplete
from typing_extensions import TypeAlias

SendState: TypeAlias = int

class FileSlice:
    file: Final[Any]
    fd: Final[int]
    position: Final[int]
    length: Final[int]

    def __init__(self, file, position: int, length: int) -> None: ...

class OutNode(TypedDict):
    next: OutNode
    length: int
    data: int
    owner: Incomplete
    position: int
    warm_until: int
    fd: int
    viewed: bool

class OutQueue(TypedDict):
    head: OutNode
    tail: OutNode
    span_bytes: int
    file_bytes: int
    count: int

class msghdr(TypedDict):
    msg_iov: iovec
    msg_iovlen: int
