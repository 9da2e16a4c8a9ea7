from typing import TypedDict

from typing_extensions import TypeAlias

ArenaResult: TypeAlias = int

class UnnamedRun(TypedDict):
    unit: int
    word: int
    slot: int

def initialise_arena(client_percent: int=25, partition_producers: int=32768, silent_ms: int=900000) -> None: ...
