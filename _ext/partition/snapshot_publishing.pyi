from typing import Any, Final, TypedDict


class Round:
    failed: Final[dict[Any, Any]]

    def __dealloc__(self): ...
    def sync(self): ...
    def sync_names(self): ...
    def in_thread(self, step): ...
    def run(self): ...

class Publishing(TypedDict):
    index: int
    incarnation: int
    truncations: int
    writes: int
    below: int
    offsets: list[int]
    sound: list[int]
    count: int
    result: int
    device_failed: bool
    renamed: bool
    partial: bool

def publish(beat=None): ...
def pending(): ...
