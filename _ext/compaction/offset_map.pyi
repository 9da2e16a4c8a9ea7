from typing import TypedDict


class Offsets:
    def __init__(self, bytes: int, load_factor: float, keys: int): ...
    def __dealloc__(self): ...
    def put(self, key: bytes, offset: int): ...
    def get(self, key: bytes): ...
    def __len__(self): ...

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

def digest(key0: int, key1: int, data: bytes): ...
