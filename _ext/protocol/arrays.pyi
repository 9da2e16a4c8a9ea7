from typing import TypedDict

from _typeshed import Incomplete


class Array(list):
    def __dealloc__(self): ...
    def __reduce__(self): ...

class PyListObject(TypedDict):
    ob_item: Incomplete
    allocated: int

def new_array(): ...
def free_waiting(elements: int=...): ...
