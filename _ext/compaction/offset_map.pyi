from typing import TypedDict


class MapEntry(TypedDict):
    low: int
    high: int
    follower: int

class OffsetMap(TypedDict):
    entries: MapEntry
    mapped_bytes: int
    slots: int
    slots_used: int
    limit: int
    count: int
    key0: int
    key1: int
