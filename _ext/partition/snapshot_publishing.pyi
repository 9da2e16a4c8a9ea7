from typing import Any, Final, TypedDict


class Round:
    failed: Final[dict[Any, Any]]

    ...
    def sync(self) -> None: ...
    def sync_names(self) -> None: ...
    def in_thread(self, step) -> None: ...
    def run(self) -> bool: ...

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

def publish(beat=None) -> dict[int, OSError]: ...
def pending() -> list[int]: ...
