from typing import Any, TypedDict

from _typeshed import Incomplete


class Array(list):
    ...
    def __reduce__(self) -> tuple[type, tuple[list[Any]]]: ...

class PyListObject(TypedDict):
    ob_item: Incomplete
    allocated: int

def new_array() -> list[Any]: ...
def free_waiting(elements: int=...) -> int: ...
