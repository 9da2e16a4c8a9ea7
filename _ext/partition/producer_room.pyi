from typing import TypedDict

from typing_extensions import TypeAlias

Room: TypeAlias = int
Evicts: TypeAlias = int

class PendingProducers(TypedDict):
    producers: int
    fresh: int
