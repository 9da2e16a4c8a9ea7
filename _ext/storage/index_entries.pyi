from typing import TypedDict


class AbortedEntry(TypedDict):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
