from typing import TypedDict


class Marker(TypedDict):
    kind: int
    coordinator_epoch: int
